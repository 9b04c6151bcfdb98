"""Which parts of an lm-evaluation-harness document are its question, its choices and its id: found in the log, not guessed.

A document has the fields of its data set, and the log holds the prompt made of them. A field whose text stands in the
prompts word for word, and in none of them as the gold, is part of the question; a list as long as the list of
continuations holds the choices. Where no field is found so, the prompt itself is the question.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gapscope.benchmarks.question import normalised
from gapscope.results.answers import common_start

ALMOST_ALL = 0.95
FEWEST_WORDS = 3
"""A shorter field (a subject's name, a label) may stand in a prompt by chance."""

ID_FIELDS = ("id", "question_id", "qid", "uid", "_id", "task_id", "key")
"""Fields that name an item; an index of a row (``idx``, ``ind``) is a position and does not."""
LIST_FIELDS = ("choices", "options", "endings")
META_FIELDS = ("subject", "category", "topic", "level", "type", "difficulty", "language")


@dataclass(frozen=True)
class Fields:
    """Where the parts of a question are.

    Attributes:
        text: dotted fields of the document, in the order in which they stand in the prompt; empty for the prompt itself.
        choices: dotted field of the list of choices; None for the continuations.
        name: field of the item's own id.
        shared: what every prompt begins with, up to the end of a paragraph: description and fixed examples.
    """

    text: tuple[str, ...]
    choices: str | None
    name: str | None
    shared: str


def requests(row: dict[str, Any]) -> list[tuple[str, str | None]]:
    """(prompt, continuation) of every request of a row; the continuation of a generation is None."""
    arguments = row.get("arguments") or []
    if isinstance(arguments, dict):
        # gen_args_10 comes after gen_args_9, whatever order a tool has written the keys in.
        arguments = [arguments[key] for key in sorted(arguments, key=lambda key: (len(key), key))]
    pairs: list[tuple[str, str | None]] = []
    for entry in arguments:
        parts = [entry.get("arg_0"), entry.get("arg_1")] if isinstance(entry, dict) else entry if isinstance(entry, list) else [entry]
        second = parts[1] if len(parts) > 1 else None
        pairs.append((_prompt(parts[0] if parts else ""), second if isinstance(second, str) else None))
    return pairs


def _prompt(value: Any) -> str:
    """A prompt as text; of a chat, the last message."""
    if isinstance(value, str) and value.lstrip().startswith('[{"'):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return _prompt(value[0])
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return str(value) if isinstance(value, str) else ""


def continuations(row: dict[str, Any]) -> list[str]:
    """The choices as the subject was asked for them; empty for a generation or a single continuation."""
    texts = [text for _prompt, text in requests(row) if text is not None]
    half = len(texts) // 2
    # For mutual information every choice is asked for once more, without its question.
    texts = texts[:half] if half > 1 and texts[:half] == texts[half:] and len(set(texts)) > 1 else texts
    return texts if len(texts) > 1 else []


def find_fields(rows: Sequence[dict[str, Any]]) -> Fields:
    """The fields of a log, from its first rows."""
    prompts = [(requests(row) or [("", None)])[0][0] for row in rows]
    docs = [row["doc"] for row in rows]
    shared = common_start(prompts) if len(prompts) > 1 else ""
    shared = shared[: shared.rfind("\n\n") + 2] if "\n\n" in shared else ""
    return Fields(_text_fields(docs, prompts, rows), _choice_field(docs, rows), _name_field(docs), shared)


def leaves(doc: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of everything in a document that is no object."""
    for key, value in doc.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def squeezed(text: str) -> str:
    """A text with every run of white space as one space, as templates may have changed it."""
    return " ".join(text.split())


def _text_fields(docs: Sequence[dict[str, Any]], prompts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    places: dict[str, list[int]] = {}
    words: dict[str, int] = {}
    for doc, prompt, row in zip(docs, prompts, rows, strict=True):
        whole, gold = squeezed(prompt), squeezed(str(row.get("target", "")))
        for name, value in leaves(doc):
            text = squeezed(value) if isinstance(value, str) else ""
            if text and text != gold and text in whole:
                places.setdefault(name, []).append(whole.rfind(text))
                words[name] = words.get(name, 0) + len(text.split())
    enough = ALMOST_ALL * len(docs)
    found = [name for name, at in places.items() if len(at) >= enough and words[name] >= FEWEST_WORDS * len(at)]
    texts = {name: [squeezed(str(dict(leaves(doc)).get(name, ""))) for doc in docs] for name in found}

    def inside(name: str, other: str) -> bool:
        contained = sum(a in b for a, b in zip(texts[name], texts[other], strict=True)) >= enough
        # Of two fields that always say the same, the first one counts.
        return contained and (texts[name] != texts[other] or found.index(name) > found.index(other))

    kept = [name for name in found if not any(inside(name, other) for other in found if other != name)]
    return tuple(sorted(kept, key=lambda name: sum(places[name]) / len(places[name])))


def _choice_field(docs: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str | None:
    lengths = [len(continuations(row)) for row in rows]
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for doc, length, row in zip(docs, lengths, rows, strict=True):
        for name, value in leaves(doc):
            if not isinstance(value, list) or len(value) < 2 or not all(isinstance(part, str) for part in value):
                continue
            # A generation has no continuations to compare with: there the field's name must say it, and the gold be inside.
            named = not length and any(part in LIST_FIELDS for part in name.split("."))
            if len(value) == length or (named and gold_index(row.get("target"), value, free=True) is not None):
                counts[name] = counts.get(name, 0) + 1
                sizes[name] = sizes.get(name, 0) + sum(map(len, value))
    enough = [name for name, count in counts.items() if count >= ALMOST_ALL * len(docs)]
    # Labels ("A", "B") and texts are lists of one length; the texts are longer.
    return max(enough, key=lambda name: sizes[name], default=None)


def _name_field(docs: Sequence[dict[str, Any]]) -> str | None:
    for name in ID_FIELDS:
        values = [doc.get(name) for doc in docs]
        if all(isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip() for value in values):
            return name
    return None


def gold_index(target: Any, choices: Sequence[str], *, free: bool) -> int | None:
    """Which choice the logged target names, or None where that is not clear.

    A multiple-choice target is an index (or a choice's text); that of a generation (``free``) is what the reply should
    say: a choice's text or its letter, and an index only if it is a number.
    """
    if isinstance(target, bool):
        target = int(target)
    text = squeezed(str(target))
    by_number = [int(text)] if text.isascii() and text.isdigit() and int(text) < len(choices) else []
    by_text = [k for k, choice in enumerate(choices) if normalised(choice) == normalised(text)]
    letter = re.sub(r"^\(?([A-Z])[).]?$", r"\1", text)
    by_letter = [k for k, name in enumerate(string.ascii_uppercase[: len(choices)]) if name == letter]
    ways = (by_text, by_letter, by_number) if free and not isinstance(target, int) else (by_number, by_text, by_letter)
    for found in ways:
        if found:
            return found[0] if len(found) == 1 else None
    return None
