"""Rows whose columns the parameters name: most data sets of a hub, and most people's own files."""

from __future__ import annotations

import json
import string
from typing import Any

from gapscope.benchmarks.question import Gold, UnusableRowError, as_text, field_at, normalised, single
from gapscope.benchmarks.reading import Row
from gapscope.params_data import RowsOptions


def as_list(value: Any) -> list[Any]:
    """A list, or the list that a cell of text spells in JSON; null is the empty list."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise UnusableRowError("unparsable_options") from None
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        raise UnusableRowError("unparsable_options")
    return value


def read_choices(row: Row, columns: str | list[str]) -> list[str]:
    """The choices of a row; of several columns, empty ones at the end are choices that this row does not have."""
    if isinstance(columns, str):
        return [as_text(value) for value in as_list(field_at(row, columns))]
    choices = [as_text(field_at(row, column)) for column in columns]
    while choices and not choices[-1]:
        choices.pop()
    return choices


def _position(value: Any, first: int) -> int:
    if isinstance(value, bool):
        raise UnusableRowError("no_gold")
    text = single(value)
    try:
        number = float(text)
    except ValueError:
        raise UnusableRowError("no_gold") from None
    if not number.is_integer():
        raise UnusableRowError("no_gold")
    return int(number) - first


def _place(wanted: str, among: list[str]) -> int:
    found = [index for index, text in enumerate(among) if text == wanted]
    if len(found) != 1:
        raise UnusableRowError("several_golds" if found else "no_gold")
    return found[0]


def read_answer(row: Row, choices: list[str], options: RowsOptions) -> int:
    """Index of the gold choice, read as ``answer_is`` says.

    Raises:
        UnusableRowError: there is no gold, there are several, or it is out of range.
    """
    value = field_at(row, options.answer or "")
    match options.answer_is:
        case "index" | "index_from_1":
            index = _position(value, 0 if options.answer_is == "index" else 1)
        case "letter":
            letter = single(value).strip(" ().").upper()
            if len(letter) != 1 or letter not in string.ascii_uppercase:
                raise UnusableRowError("no_gold")
            index = string.ascii_uppercase.index(letter)
        case "label":
            index = _place(single(value), [as_text(label) for label in as_list(field_at(row, options.labels or ""))])
        case "text":
            index = _place(normalised(single(value)), [normalised(choice) for choice in choices])
        case "one_hot":
            index = _place("1", [as_text(int(mark)) if isinstance(mark, (bool, float)) else as_text(mark) for mark in as_list(value)])
    if not 0 <= index < len(choices):
        raise UnusableRowError("answer_out_of_range")
    return index


def read_gold(row: Row, options: RowsOptions) -> Gold:
    """The choices and the answer of one row, or its target."""
    if options.choices is None:
        target = single(field_at(row, options.target or ""))
        if options.target_after is not None:
            _before, found, target = target.rpartition(options.target_after)
            if not found or not target.strip():
                raise UnusableRowError("no_gold")
        return Gold(target=target.strip())
    choices = read_choices(row, options.choices)
    if not choices:
        raise UnusableRowError("no_choices")
    return Gold(tuple(choices), read_answer(row, choices, options))
