"""Rows that are all answered from the same choices: yes and no, or a few more."""

from __future__ import annotations

from gapscope.benchmarks.question import Gold, UnusableRowError, field_at, normalised, single
from gapscope.benchmarks.reading import Row
from gapscope.params_data import YesNoOptions

SAME_AS = {"true": "yes", "1": "yes", "false": "no", "0": "no"}


def read_gold(row: Row, options: YesNoOptions) -> Gold:
    """The choices of the benchmark and the one that the row's answer names.

    Raises:
        UnusableRowError: there is no answer, or it is none of the choices (``no_gold``).
    """
    names = [normalised(choice) for choice in options.choices]
    answer = normalised(single(field_at(row, options.answer)))
    if answer not in names:
        answer = SAME_AS.get(answer, answer)
    if answer not in names:
        raise UnusableRowError("no_gold")
    return Gold(tuple(options.choices), names.index(answer))
