"""The reward of a generator: the verifier's probability that a variant is valid, and nothing for form or length.

It is 0 where a completion cannot be parsed, is a copy, breaks its type's rule, or repeats another of its group: a policy
that found one good answer would else write it again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gapscope.items import Item
from gapscope.params_robustness import FilterParams
from gapscope.variants.duplicates import key
from gapscope.variants.filtering import Candidate, Decision, Judge, Screen

PARTS = ("unparsable", "copy", "rule", "repeat")
"""Why a completion gets nothing."""


@dataclass(frozen=True)
class Attempt:
    """A completion of the prompt about an original and a type, its tokens, and whether it came to an end."""

    original: Item
    type: str
    completion: str
    n_tokens: int
    ended: bool


@dataclass(frozen=True)
class Reward:
    """What a completion earns, and why it earns nothing (one of PARTS) where it does not."""

    value: float
    reason: str | None


def decide(attempts: Sequence[Attempt], judge: Judge, generator: str = "grpo") -> list[Decision]:
    """What the filter stage would decide on each of the attempts, in the order given, were they all that there is."""
    originals: Mapping[str, Item] = {attempt.original.id: attempt.original for attempt in attempts}
    candidates = [
        Candidate(f"{k:06d}", one.original.id, one.type, 0, generator, one.completion, one.n_tokens, one.ended)
        for k, one in enumerate(attempts)
    ]
    return Screen(judge, originals, FilterParams()).decide(candidates)


def rewards(attempts: Sequence[Attempt], judge: Judge) -> list[Reward]:
    """A reward an attempt; attempts at the same original and type are a group, of equal variants only the first earns."""
    found, seen = [], set()
    for attempt, decision in zip(attempts, decide(attempts, judge), strict=True):
        if decision.verdict is None or decision.item is None:
            found.append(Reward(0.0, decision.reason))
            continue
        mark = attempt.original.id, attempt.type, key(decision.item)
        repeated = mark in seen
        seen.add(mark)
        found.append(Reward(0.0, "repeat") if repeated else Reward(decision.verdict.p, None))
    return found
