"""What is wrong with a params.yaml, said of the key as it stands in the file."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gapscope.errors import InputError
from gapscope.params_types import Strict


def _written_key(loc: tuple[int | str, ...], raw: Any, *, absent: bool) -> str:
    """The key as it stands in the file: pydantic's location also names the variant it chose (package, rows, ...).

    ``absent`` says that the last part of the location is a key that the file should have.
    """
    parts: list[str] = []
    tagged = False
    for depth, part in enumerate(loc):
        # A variant may have a key of its own name (kind: path has path), so its name is known by what chose it, and passed over once.
        if not tagged and isinstance(raw, dict) and part in (raw.get("kind"), raw.get("format")):
            tagged = True
            continue
        if (isinstance(raw, dict) and part in raw) or (isinstance(raw, list) and isinstance(part, int)):
            raw = raw[part]  # type: ignore[index]
        elif depth < len(loc) - 1 or not absent:
            continue
        parts.append(str(part))
    return ".".join(parts)


def first_fault(error: ValidationError, path: Path, raw: Any) -> InputError:
    """The first of pydantic's complaints, with the key as it stands in the file, its value and the fix."""
    faults = error.errors()
    # A key that is missing because its name is misspelt is told by the name that is not known.
    fault = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    key = _written_key(fault["loc"], raw, absent=fault["type"] == "missing")
    value = fault.get("input")
    # Where an endpoint's address or the name of its key's variable belongs, somebody may have put the key itself.
    plain = isinstance(value, (str, int, float, bool, type(None))) and not key.startswith("labels.llm.")
    shown = f", is {value!r}" if plain else ""
    if fault["type"] == "extra_forbidden":
        return InputError("unknown parameter", file=path, field=key, fix=_likely(fault["loc"], raw))
    if fault["type"] == "missing":
        return InputError("parameter is missing", file=path, field=key, fix="add it")
    message = fault["msg"].removeprefix("Value error, ")
    others = len(faults) - 1
    return InputError(message + shown, file=path, field=key, fix=f"{others} more after this one" if others else None)


def _likely(loc: tuple[int | str, ...], raw: Any) -> str:
    """What an unknown key was probably meant to be: the nearest name in the sections that have most of the keys beside it."""
    beside: set[str] = set()
    for part in loc:
        if isinstance(raw, dict) and part in raw:
            beside, raw = set(raw), raw[part]
        elif isinstance(raw, list) and isinstance(part, int):
            raw = raw[part]
    wrong = str(loc[-1])
    sections = [fields for section in _sections(Strict) if wrong not in (fields := set(section.model_fields))]
    most = max(len(fields & beside) for fields in sections)
    names = set[str]().union(*(fields for fields in sections if len(fields & beside) == most))
    close = get_close_matches(wrong, sorted(names), n=1)
    return f"do you mean {close[0]}?" if close else "remove it or correct its name"


def _sections(base: type[Strict]) -> Iterator[type[Strict]]:
    for section in base.__subclasses__():
        yield section
        yield from _sections(section)
