"""Text that others wrote (labels, names), made fit for a plot: one line, no hidden characters, no markup, bounded width."""

from __future__ import annotations

import unicodedata
from collections.abc import Container

NO_LABEL = "(no label)"
# Control, format (bidirectional overrides, zero-width), surrogate, private-use and unassigned characters.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn"}
_MAX_MARKS = 2


def without_zero_sign(text: str) -> str:
    """A formatted number without the sign that a value keeps which rounds to zero."""
    return text.lstrip("+-") if float(text.rstrip("%")) == 0 else text


def one_line(text: str) -> str:
    """Composed (NFC) text on one line, without hidden characters and without stacks of combining marks."""
    kept: list[str] = []
    marks = 0
    for char in unicodedata.normalize("NFC", " ".join(text.split())):
        category = unicodedata.category(char)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if category not in _HIDDEN and marks <= _MAX_MARKS:
            kept.append(char)
    return " ".join("".join(kept).split())


def width(text: str) -> int:
    """Columns the text takes: two for a wide (East Asian) character, none for a combining mark, else one."""
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shorten(text: str, columns: int) -> str:
    """The text cut to at most ``columns`` columns, with an ellipsis where something was cut."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        kept += char
    return kept.rstrip(" ,;:") + "…"


def without_markup(text: str) -> str:
    """The text with angle brackets replaced by look-alikes.

    ``dvc plots`` writes plot data unescaped into a script element of its page, so that a label with a closing script
    tag would end the script and run what follows.
    """
    return text.replace("<", "‹").replace(">", "›")


def plot_label(label: str | None, columns: int = 60) -> str:
    """A concept's label as it goes into plot data: one line, no markup, at most ``columns`` wide."""
    return shorten(without_markup(one_line(label or "")), columns) or NO_LABEL


def drawable(text: str, glyphs: Container[int]) -> bool:
    """Whether every character of the text is among a font's code points."""
    return all(ord(char) in glyphs for char in text)
