"""Answers of a log put to items: by the item's own id, by the log's hash of it, or by its text; never by position.

An id is believed only where the texts agree. Where they do not, the log is of another version of the benchmark, or its ids
are wrong; either is an error that shows both texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gapscope.benchmarks.question import normalised
from gapscope.errors import InputError
from gapscope.items import Item
from gapscope.results.answers import Answer, content_key, shorten

Way = Literal["auto", "id", "hash", "text"]

FIRST_WORDS = 4
"""Words at the start of a question's longest line by which candidates are looked up inside a prompt; fewer prove nothing."""


@dataclass
class Joined:
    """Which answers are of which item.

    Attributes:
        by_item: answers by item id.
        ways: how many answers were matched by id, by hash and by text.
        unmatched: answers of no item.
        ambiguous: answers whose text is that of several items.
    """

    by_item: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    ways: Counter[str] = field(default_factory=Counter)
    unmatched: list[Answer] = field(default_factory=list)
    ambiguous: list[Answer] = field(default_factory=list)


def join(answers: Iterable[Answer], items: Sequence[Item], way: Way = "auto", id_prefix: str = "", file: Path | None = None) -> Joined:
    """Put every answer to its item; ``auto`` tries id, then hash, then text. ``file`` is named in errors.

    Raises:
        InputError: an id is an item's, and the texts are of different questions.
    """
    index = _Index(items, id_prefix, file)
    joined = Joined()
    for answer in answers:
        found: list[Item] = []
        for name in ("id", "hash", "text") if way == "auto" else (way,):
            found = index.find(answer, name)
            if found:
                break
        if len(found) == 1:
            joined.by_item[found[0].id].append(answer)
            joined.ways[name] += 1
        else:
            (joined.ambiguous if found else joined.unmatched).append(answer)
    return joined


def same_question(item: Item, answer: Answer) -> bool:
    """Whether the texts may be of one question: equal, or one inside the other, but for case and white space.

    A log that keeps no text contradicts nothing.
    """
    if not answer.text and not answer.prompt:
        return True
    ours, theirs = normalised(item.text), normalised(answer.text)
    if ours == theirs or (theirs and theirs in ours):
        return True
    whole = normalised(f"{answer.text}\n{answer.prompt}")
    return all(line in whole for line in (normalised(part) for part in item.text.split("\n")))


class _Index:
    """Items by everything that an answer may name them by."""

    def __init__(self, items: Sequence[Item], id_prefix: str, file: Path | None) -> None:
        self.prefix, self.file = id_prefix, file
        self.by_id: dict[str, list[Item]] = defaultdict(list)
        self.by_hash: dict[str, list[Item]] = defaultdict(list)
        self.by_content: dict[tuple[str, ...], list[Item]] = defaultdict(list)
        self.by_text: dict[str, list[Item]] = defaultdict(list)
        self.by_words: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            # An item's id is its benchmark's slug and its own id, or its own id alone.
            for name in {item.id, item.id.removeprefix(f"{item.benchmark}-")}:
                self.by_id[name].append(item)
            if isinstance(item.meta.get("doc_hash"), str):
                self.by_hash[item.meta["doc_hash"]].append(item)
            self.by_content[content_key(item.text, item.choices)].append(item)
            self.by_text[normalised(item.text)].append(item)
            words = max((normalised(line).split() for line in item.text.split("\n")), key=len)
            if len(words) >= FIRST_WORDS:
                self.by_words[" ".join(words[:FIRST_WORDS])].append(item)

    def find(self, answer: Answer, way: str) -> list[Item]:
        """The items that the answer may be of, at most one of each benchmark's."""
        if way == "id":
            return self._by_id(answer)
        if way == "hash":
            hashed = self.by_hash.get(answer.doc_hash or "", [])
            return _of_task([item for item in hashed if same_question(item, answer)], answer)
        found = self.by_content.get(content_key(answer.text, answer.choices), [])
        if not found:
            alike = self.by_text.get(normalised(answer.text), []) or self._inside(answer)
            found = [item for item in alike if _may_share_choices(item, answer)]
        return _of_task(found, answer)

    def _by_id(self, answer: Answer) -> list[Item]:
        if answer.name is None:
            return []
        named = self.by_id.get(self.prefix + answer.name, [])
        agreeing = [item for item in named if same_question(item, answer)]
        if named and not agreeing:
            log, ours = shorten(answer.text or answer.prompt, 160), shorten(named[0].text, 160)
            message = f"id {answer.name!r} is of another question here: the log has {log!r}, the item {ours!r}"
            raise InputError(message, file=self.file, line=answer.line, fix="give the run's own items, or join by text alone")
        return _of_task(agreeing, answer)

    def _inside(self, answer: Answer) -> list[Item]:
        """Items whose every line stands in what the subject read; of several, the one that ends last, after the examples."""
        whole = normalised(f"{answer.prompt}\n{answer.text}")
        words = whole.split()
        ends: dict[str, int] = {}
        named: dict[str, Item] = {}
        for start in range(len(words) - FIRST_WORDS + 1):
            for item in self.by_words.get(" ".join(words[start : start + FIRST_WORDS]), []):
                lines = [normalised(line) for line in item.text.strip().split("\n")]
                if item.id not in ends and all(line in whole for line in lines):
                    ends[item.id], named[item.id] = whole.rfind(lines[-1]) + len(lines[-1]), item
        return [named[key] for key, end in ends.items() if end == max(ends.values())]


def _may_share_choices(item: Item, answer: Answer) -> bool:
    """Whether two questions of one text may be the same: many questions are "Which of these is true?".

    Choices that are letters say nothing; the options then stand in the prompt.
    """
    ours, theirs = ({normalised(choice) for choice in choices} for choices in (item.choices, answer.choices))
    if not ours or not theirs or ours == theirs:
        return True
    return len(ours) == len(theirs) and all(len(choice) == 1 for choice in theirs)


def _of_task(items: Sequence[Item], answer: Answer) -> list[Item]:
    """Of several items with one id or text: those with the same choices, then those of the benchmark of the same name."""
    found = list({item.id: item for item in items}.values())
    for alike in (
        lambda item: content_key("", item.choices) == content_key("", answer.choices),
        lambda item: item.benchmark == answer.task or item.meta.get("task") == answer.task,
    ):
        if len(found) > 1:
            found = [item for item in found if alike(item)] or found
    return found
