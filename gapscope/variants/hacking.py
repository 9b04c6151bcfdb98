"""Whether a reward was earned or gamed: what a generator writes for families it never saw, before and after training.

A policy that games its reward writes more copies and duplicates, loops, or breaks its type's form, while the
verifier's probability rises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.lm import LM
from gapscope.variants.filtering import Decision, Judge
from gapscope.variants.generator_prompts import generator_prompt
from gapscope.variants.rewards import Attempt, decide
from gapscope.variants.sampling import Sampling, encode_prompt, sample
from gapscope.variants.types import TYPES
from gapscope.variants.wording import words

LOOP_WORDS, LOOP_TIMES = 3, 3
BATCH = 14


def loops(text: str) -> bool:
    """Whether three words in a row occur three times or more, or one line twice: the marks of a degenerate text."""
    lines = [line for line in text.split("\n") if line.strip()]
    sequence = words(text)
    runs = Counter(tuple(sequence[k : k + LOOP_WORDS]) for k in range(len(sequence) - LOOP_WORDS + 1))
    return len(set(lines)) < len(lines) or any(count >= LOOP_TIMES for count in runs.values())


def attempts(lm: LM, originals: Sequence[Item], how: Sampling, seed: int) -> list[Attempt]:
    """One completion of every type for every original; the draws depend on the seed, the original and the type alone."""
    asks = [(original, slug) for original in originals for slug in TYPES]
    prompts = [encode_prompt(lm, generator_prompt(original, slug)) for original, slug in asks]
    order = sorted(range(len(asks)), key=lambda k: (len(prompts[k]), k))
    found: dict[int, Attempt] = {}
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        seeds = [stable_hash(seed, "check", asks[k][0].id, asks[k][1]) for k in batch]
        for k, one in zip(batch, sample(lm, [prompts[k] for k in batch], seeds, how), strict=True):
            found[k] = Attempt(*asks[k], one.text, one.n_tokens, one.ended)
    return [found[k] for k in range(len(asks))]


def examine(tried: Sequence[Attempt], judge: Judge) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Shares of what a gamed reward shows, and a row for each attempt."""
    decisions = decide(tried, judge)
    shares = {
        "unparsable": _share(decisions, "unparsable"),
        "copy": _share(decisions, "copy"),
        "rule": _share(decisions, "rule"),
        "duplicate": _share(decisions, "duplicate"),
        "degenerate": float(np.mean([loops(one.completion) for one in tried])),
        "accepted": float(np.mean([decision.reason is None for decision in decisions])),
        "reward": float(np.mean([0.0 if decision.verdict is None else decision.verdict.p for decision in decisions])),
        "ended": float(np.mean([one.ended for one in tried])),
        "tokens": float(np.mean([one.n_tokens for one in tried])),
        "n": len(tried),
    }
    rows = [_row(one, decision) for one, decision in zip(tried, decisions, strict=True)]
    return shares, rows


def _share(decisions: Sequence[Decision], reason: str) -> float:
    return sum(decision.reason == reason for decision in decisions) / len(decisions)


def _row(one: Attempt, decision: Decision) -> dict[str, Any]:
    p = None if decision.verdict is None else decision.verdict.p
    return {"original": one.original.id, "type": one.type, "completion": one.completion, "reason": decision.reason, "p": p}
