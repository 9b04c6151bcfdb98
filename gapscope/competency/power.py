"""How small a gap a suite could show, and how many items more it would take: for planning, before any subject is scored.

A concept worth n_eff items is taken as n_eff / dispersion trials of a binomial. A gap is found when so few are right that
this has probability level/2 at the expected accuracy; the smallest gap detectable is the one for which that happens with
the wanted power. Both are exact binomial tails, continued to trials that are not whole by the incomplete beta function:
P(X <= k) = I_{1-p}(m - k, k + 1). Where not even all answers wrong would be rare enough, no gap can be found: NaN.

With many concepts tested the level of one is not alpha. Benjamini-Hochberg stops at alpha * discoveries / tests: with one
discovery that is Bonferroni's, and it is milder where more is expected to be found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, betaincinv

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.units import make_units
from gapscope.errors import InputError

BISECTIONS = 60


@dataclass(frozen=True)
class Plan:
    """What a suite can show of each concept (C).

    Attributes:
        support: effective number of families that carry the concept, pooled over benchmarks.
        smallest_gap: least drop below the strata's mean, chance-corrected, that is found; NaN where none is.
        support_needed: support at which `gap` is found; NaN where no support would do.
        items_more: items to add so, at the suite's present make-up; 0 where there are enough, NaN where none would do or
            where the suite never carries the concept.
        level: the p below which a concept is taken to be a discovery.
    """

    support: FloatArray
    smallest_gap: FloatArray
    support_needed: float
    items_more: FloatArray
    level: float


def plan(
    support: FloatArray,
    n_items: int,
    *,
    accuracy: float,
    chance: float,
    gap: float,
    alpha: float,
    power: float,
    min_n_eff: float,
    discoveries: int = 1,
) -> Plan:
    """Plan for concepts of this support (C) in a suite of n_items, for a subject of this accuracy (0 to 1, not corrected).

    `gap` is the chance-corrected drop that should be found. `discoveries` is how many concepts are expected to be found.

    Raises:
        InputError: accuracy, chance, gap, alpha or power is out of range.
    """
    for name, value in (("accuracy", accuracy), ("gap", gap), ("alpha", alpha), ("power", power)):
        if not 0 < value < 1:
            raise InputError(f"is {value}, must be above 0 and below 1", field=name)
    if not 0 <= chance < 1:
        raise InputError(f"is {chance}, must be at least 0 and below 1", field="chance")
    n_tests = max(1, int((support >= min_n_eff).sum()))
    level = alpha * min(max(discoveries, 1), n_tests) / n_tests
    needed = float(np.maximum(support_needed(gap, accuracy, chance, level, power), min_n_eff))
    more = np.where(support > 0, np.ceil(n_items * np.maximum(needed / np.maximum(support, 1e-12) - 1, 0.0)), np.nan)
    # A concept below min_n_eff is not tested, so its gap is not found however deep.
    smallest = np.where(support >= min_n_eff, smallest_gap(support, accuracy, chance, level, power), np.nan)
    return Plan(support, smallest, needed, more, level)


def suite_support(saliency: sp.csr_matrix, benchmark_codes: IntArray, strata_codes: IntArray, family_codes: IntArray) -> FloatArray:
    """Support of each concept (C) were every item scored: the sum over benchmarks of (sum a)^2 / sum a^2 over families."""
    zeros = np.zeros(saliency.shape[0])
    units = make_units(saliency, zeros, zeros, benchmark_codes, strata_codes, family_codes)
    support = np.zeros(saliency.shape[1])
    for code in np.unique(units.benchmarks):
        part = units.saliency[np.flatnonzero(units.benchmarks == code)].astype(np.float64)
        squared = np.asarray(part.multiply(part).sum(axis=0)).ravel()
        total = np.asarray(part.sum(axis=0)).ravel()
        support += np.divide(total**2, squared, out=np.zeros_like(total), where=squared > 0)
    return support


def smallest_gap(trials: FloatArray, accuracy: float, chance: float, level: float, power: float) -> FloatArray:
    """Smallest chance-corrected gap found with this power at this two-sided level, for each number of trials; NaN if none."""
    m = np.atleast_1d(np.asarray(trials, dtype=np.float64))
    possible = (m > 0) & ((1 - accuracy) ** m <= level / 2)
    low, high = np.zeros(len(m)), np.where(possible, m * accuracy, 0.0)
    safe = np.where(possible, m, 1.0)
    for _ in range(BISECTIONS):
        k = (low + high) / 2
        rare = betainc(np.maximum(safe - k, 1e-12), k + 1, 1 - accuracy) <= level / 2
        low, high = np.where(rare, k, low), np.where(rare, high, k)
    worse = 1 - betaincinv(np.maximum(safe - low, 1e-12), low + 1, power)
    return np.where(possible, np.maximum(accuracy - worse, 0.0) / (1 - chance), np.nan)


def support_needed(gap: float, accuracy: float, chance: float, level: float, power: float) -> float:
    """Number of trials from which on the gap is found with this power; NaN where it is more than the accuracy can fall."""
    if gap * (1 - chance) >= accuracy:
        return float("nan")
    low, high = 0.0, 1.0
    while not _found(high, gap, accuracy, chance, level, power):
        low, high = high, high * 2
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _found(middle, gap, accuracy, chance, level, power) else (middle, high)
    return high


def _found(trials: float, gap: float, accuracy: float, chance: float, level: float, power: float) -> bool:
    smallest = float(smallest_gap(np.array([trials]), accuracy, chance, level, power)[0])
    return smallest <= gap
