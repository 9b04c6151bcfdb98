"""The parameters of the compare-pairs stage: which subjects are compared."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from gapscope.params_types import Slug, Strict


def _two(pair: list[str]) -> list[str]:
    if pair[0] == pair[1]:
        raise ValueError(f"compares {pair[0]!r} with itself")
    return pair


Pair = Annotated[list[Slug], Field(min_length=2, max_length=2), AfterValidator(_two)]
"""A subject, and the one that is compared with it: an earlier version and a later one, say."""


class CompareParams(Strict):
    """The compare-pairs stage: pairs of keys under ``models``. Differences are the second's scores minus the first's."""

    pairs: list[Pair] = Field(default_factory=list)
