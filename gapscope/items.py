"""Items: the questions of a benchmark in one schema, checked on the way in and written deterministically."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unicodedata import category

from gapscope.artifacts import SUITE
from gapscope.errors import InputError
from gapscope.files import dump_json, read_jsonl, write_jsonl

FIELDS = ("id", "benchmark", "family", "text", "choices", "answer", "target", "kind", "meta")


@dataclass(frozen=True)
class Item:
    """One question of a benchmark.

    Attributes:
        id: unique over the suite.
        benchmark: slug of the benchmark it belongs to.
        family: id shared by an item and every variant made from it; the unit of splits and of bootstraps.
        text: passage and question as the observer reads them, without the choices.
        choices: the options in order; empty where the item is free-form.
        answer: index of the gold choice, or None where free-form.
        target: gold text of a free-form item, or None.
        kind: kind of ability the benchmark exercises (knowledge, commonsense, reasoning, social, reading, ...).
        meta: anything else the source says of it (subject, variant type, ...), JSON values only.
    """

    id: str
    benchmark: str
    family: str
    text: str
    choices: tuple[str, ...] = ()
    answer: int | None = None
    target: str | None = None
    kind: str = "knowledge"
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def chance(self) -> float:
        """Expected score of a blind guess: one over the number of choices, 0 where free-form."""
        return 1 / len(self.choices) if self.choices else 0.0


def item_faults(item: Item) -> list[tuple[str, str]]:
    """Every (reason slug, explanation) for which an item cannot be used; empty for a sound one."""
    faults: list[tuple[str, str]] = []
    if not is_text("".join((item.id, item.text, *item.choices, item.target or "", dump_json(item.meta)))):
        faults.append(("not_text", "holds a character that UTF-8 cannot encode, or NUL"))
    for name in (name for name in ("id", "benchmark", "family", "kind") if _has_control(getattr(item, name))):
        faults += [("control_character", f"{name} holds a line break or another control character")]
    if item.benchmark == SUITE:
        faults.append(("reserved_name", f"benchmark is {SUITE}, the name of the whole suite"))
    if not item.id.strip():
        faults.append(("no_id", "id is empty"))
    if not item.text.strip():
        faults.append(("no_text", "text is empty"))
    if item.choices:
        faults += _choice_faults(item)
    elif not item.target:
        faults.append(("no_gold", "neither choices nor a target"))
    return faults


def is_text(text: str) -> bool:
    """Whether UTF-8 can hold the text: JSON may spell half of a surrogate pair (``\\ud800``), which nothing can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def _has_control(name: str) -> bool:
    return any(category(letter) in ("Cc", "Zl", "Zp") for letter in name)


def _choice_faults(item: Item) -> list[tuple[str, str]]:
    faults: list[tuple[str, str]] = []
    texts = [choice.strip() for choice in item.choices]
    if len(texts) == 1:
        faults.append(("single_choice", "only one choice"))
    if any(not text for text in texts):
        faults.append(("empty_choice", "a choice is empty"))
    if len(set(texts)) < len(texts):
        faults.append(("duplicate_choice", "two choices are the same text"))
    if item.answer is None:
        faults.append(("no_gold", "choices but no answer"))
    elif not 0 <= item.answer < len(texts):
        faults.append(("answer_out_of_range", f"answer {item.answer} with {len(texts)} choices"))
    return faults


def parse_item(row: dict[str, Any], file: Path, line: int) -> Item:
    """Build an Item from one JSON object.

    Raises:
        InputError: a field is missing or of the wrong type, or the item has a fault (:func:`item_faults`).
    """

    def fail(name: str, message: str, fix: str | None = None) -> InputError:
        return InputError(message, file=file, line=line, field=name, fix=fix)

    for name in ("id", "text"):
        if not isinstance(row.get(name), str):
            raise fail(name, "must be a string")
    choices = row.get("choices", [])
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise fail("choices", "must be a list of strings", "use an empty list for a free-form item")
    answer = row.get("answer")
    if answer is not None and (isinstance(answer, bool) or not isinstance(answer, int)):
        raise fail("answer", "must be the index of the gold choice, from 0, or null")
    if not isinstance(row.get("target"), (str, type(None))):
        raise fail("target", "must be a string or null")
    if not isinstance(row.get("meta", {}), dict):
        raise fail("meta", "must be an object")
    texts = {name: row.get(name) or default for name, default in (("benchmark", "items"), ("family", row["id"]), ("kind", "knowledge"))}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise fail(name, "must be a string")
    item = Item(
        row["id"],
        texts["benchmark"],
        texts["family"],
        row["text"],
        tuple(choices),
        answer,
        row.get("target"),
        texts["kind"],
        row.get("meta", {}),
    )
    for reason, explanation in item_faults(item)[:1]:
        raise fail("id" if reason == "control_character" else item.id or "id", explanation)
    return item


def read_items(path: Path) -> list[Item]:
    """Read items from JSON lines, in file order.

    Raises:
        InputError: a line is damaged, an item has a fault, an id occurs twice, or there is no item at all.
    """
    items: list[Item] = []
    first_seen: dict[str, int] = {}
    for line, row in read_jsonl(path):
        item = parse_item(row, path, line)
        if item.id in first_seen:
            raise InputError(f"duplicate id {item.id!r}, first on line {first_seen[item.id]}", file=path, line=line, field="id")
        first_seen[item.id] = line
        items.append(item)
    if not items:
        raise InputError("holds no item", file=path)
    return items


def write_items(path: Path, items: Iterable[Item]) -> None:
    """Write items as JSON lines, sorted by id."""
    write_jsonl(path, (asdict(item) for item in sorted(items, key=lambda item: item.id)))
