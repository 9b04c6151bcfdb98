"""Rows whose options are one text, "A. one\\nB. two", and whose gold is an option's text."""

from __future__ import annotations

import re
import string

from gapscope.benchmarks.question import Gold, UnusableRowError, as_text, field_at, normalised, single, without
from gapscope.benchmarks.reading import Row
from gapscope.params_data import LetteredOptions

MARKED = re.compile(r"^\s*\(?([A-Z])[.):]\s*(.*)$")


def split_options(text: str) -> list[str]:
    """The options of a lettered text, in order.

    A line opens an option only if it bears the next letter of the alphabet, so that an option may go over several lines
    and may quote letters of its own.

    Raises:
        UnusableRowError: the text does not begin with option A (``unparsable_options``).
    """
    options: list[list[str]] = []
    for line in text.strip().split("\n"):
        mark = MARKED.match(line)
        if mark and len(options) < len(string.ascii_uppercase) and mark[1] == string.ascii_uppercase[len(options)]:
            options.append([mark[2]])
        elif options:
            options[-1].append(line)
        elif line.strip():
            raise UnusableRowError("unparsable_options")
    if not options:
        raise UnusableRowError("unparsable_options")
    return ["\n".join(lines).strip() for lines in options]


def gold_index(gold: str, options: list[str]) -> int:
    """Which option a gold text names: by its text, by letter and text, or by the letter alone.

    Raises:
        UnusableRowError: it names none (``no_gold``) or more than one (``several_golds``).
    """
    wanted = normalised(gold)
    texts = [normalised(option) for option in options]
    found = [index for index, text in enumerate(texts) if wanted == text]
    mark = MARKED.match(gold.replace("\n", " "))
    if mark and not found:
        index = string.ascii_uppercase.index(mark[1])
        found = [index] if index < len(texts) and normalised(mark[2]) in ("", texts[index]) else []
    if not found and len(gold) == 1 and gold in string.ascii_uppercase[: len(options)]:
        found = [string.ascii_uppercase.index(gold)]
    if len(found) != 1:
        raise UnusableRowError("several_golds" if found else "no_gold")
    return found[0]


def read_gold(row: Row, options: LetteredOptions) -> Gold:
    """The choices and the answer of one row."""
    choices = split_options(without(as_text(field_at(row, options.options)), options.remove))
    return Gold(tuple(choices), gold_index(single(field_at(row, options.answer)), choices))
