"""Tests between two subjects on the same families, and agreement of rankings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest, kendalltau, spearmanr

from gapscope.variants.robustness import FloatArray


def mcnemar(a: FloatArray, b: FloatArray) -> float:
    """Two-sided exact p of McNemar's test on paired right (1) and wrong (0) answers (McNemar 1947; the binomial form).

    1 where no answer differs.
    """
    only_a, only_b = int(np.sum((a == 1) & (b == 0))), int(np.sum((a == 0) & (b == 1)))
    return 1.0 if only_a + only_b == 0 else float(binomtest(only_a, only_a + only_b, 0.5).pvalue)


def sign_flip(differences: FloatArray) -> float:
    """Two-sided exact p that the sum of the families' differences is so far from 0 if each sign is a fair coin's.

    Differences are whole numbers (right answers of one subject less the other's), so the sum's distribution is built up
    family by family over the integers, without drawing: 1 where every difference is 0.

    Raises:
        ValueError: a difference is not a whole number.
    """
    sizes = np.abs(np.rint(differences)).astype(int)
    if not np.array_equal(sizes, np.abs(differences)):
        raise ValueError("differences must be whole numbers")
    reach = int(sizes.sum())
    chance = np.zeros(2 * reach + 1)
    chance[reach] = 1.0
    for size in sizes[sizes > 0]:
        # Nothing lies within `size` of the ends before its turn, so nothing wraps around.
        chance = (np.roll(chance, size) + np.roll(chance, -size)) / 2
    distance = np.abs(np.arange(-reach, reach + 1))
    return float(min(1.0, chance[distance >= abs(int(np.rint(differences.sum())))].sum()))


def holm(ps: Sequence[float]) -> list[float]:
    """p values adjusted for their number by Holm (1979), in the order given."""
    order = np.argsort(np.array(ps), kind="stable")
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


def rank_agreement(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Spearman's rho and Kendall's tau-b of two lists of accuracies; empty where they are undefined.

    That is below three subjects, or where one list holds one value only.
    """
    if len(ours) < 3 or len(set(ours)) == 1 or len(set(theirs)) == 1:
        return {}
    return {"spearman": float(spearmanr(ours, theirs).statistic), "kendall": float(kendalltau(ours, theirs).statistic)}
