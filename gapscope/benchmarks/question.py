"""What every benchmark format shares: columns as clean text, and the reasons for which a row is left out."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from gapscope.benchmarks.reading import Row
from gapscope.items import is_text
from gapscope.params_data import TextOptions


class UnusableRowError(Exception):
    """A row that cannot become an item; ``reason`` is the slug under which it is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Gold:
    """The choices of a row and which is right, or the target of a free-form one."""

    choices: tuple[str, ...] = ()
    answer: int | None = None
    target: str | None = None


def normalised(text: str) -> str:
    """The text by which two wordings count as the same: compatibility forms, case and white space folded."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def has_field(row: Row, column: str) -> bool:
    """Whether a row has a column, be its value null; dots reach inside objects."""
    if column in row:
        return True
    head, dot, rest = column.partition(".")
    inner = row.get(head)
    return bool(dot) and isinstance(inner, dict) and has_field(inner, rest)


def field_at(row: Row, column: str) -> Any:
    """The value of a column, null where there is none; dots reach inside objects (``choices.text``)."""
    if column in row:
        return row[column]
    head, dot, rest = column.partition(".")
    inner = row.get(head)
    return field_at(inner, rest) if dot and isinstance(inner, dict) else None


def as_text(value: Any) -> str:
    """A cell as text without white space at its ends; numbers as they are written, null as the empty string."""
    if value is None:
        return ""
    if isinstance(value, (list, dict, bytes)):
        raise UnusableRowError("not_text")
    text = str(value).strip()
    if not is_text(text):
        raise UnusableRowError("not_text")
    return text


def without(text: str, patterns: list[str]) -> str:
    """The text less everything that the patterns match, ``^`` and ``$`` at every line."""
    for pattern in patterns:
        text = re.sub(pattern, "", text, flags=re.MULTILINE).strip()
    return text


def item_text(row: Row, options: TextOptions) -> str:
    """Passage and question, one after the other, without what ``remove`` matches."""
    columns = [options.passage, options.question] if options.passage else [options.question]
    texts = [without(as_text(field_at(row, column)), options.remove) for column in columns]
    if not texts[-1]:
        raise UnusableRowError("no_text")
    return "\n".join(text for text in texts if text)


def single(value: Any) -> str:
    """The gold of a row as text; a list must say one thing only."""
    if isinstance(value, list):
        golds = {as_text(entry) for entry in value}
        if len(golds) > 1:
            raise UnusableRowError("several_golds")
        value = next(iter(golds), None)
    text = as_text(value)
    if not text:
        raise UnusableRowError("no_gold")
    return text
