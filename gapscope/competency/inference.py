"""Which concepts a subject does worse or better on than its average says, at a stated error rate.

chi_model says mostly which benchmark a concept fires in, how long its items are, and how few they are. The calibrated
columns take these out:

- ``adjusted``: mean chance-corrected score minus the mean of the stratum, weighted by saliency; over benchmarks pooled with
  weights n_eff, which makes each unit of effective support count the same.
- its interval: the Jeffreys interval on as many trials as give, at the mean expected from the strata, the permutation
  variance. So it is exact in spread where there is no effect, keeps its skewness near 0 and 1, and holds at small support.
- ``p``: permutation of families' scores inside strata (:mod:`gapscope.competency.permutation`); ``q``: Benjamini and
  Hochberg (1995) over the concepts that are tested: supported and not excluded. Concepts share items, and their statistics
  then correlate positively, the case in which that procedure holds (Benjamini and Yekutieli 2001).
- ``shrunk``: posterior mean of the effect under a normal prior around 0 (no effect is the average, by construction), its
  variance by Paule and Mandel's (1982) moment equation over the tested concepts.

Nothing here is drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.findings import SAME, collapse
from gapscope.competency.intervals import beta_interval, column_sums, unseen_variance
from gapscope.competency.permutation import Null, draw_statistics, null_of
from gapscope.competency.units import Units, cell_means, join_families, make_units

STATUSES = ("gap", "strength", "typical", "unsupported", "undefined")
"""Values of the performance table's ``status``; the calibrated arrays hold their places in this tuple.

Unsupported is also what was not tested because it was excluded; undefined has no scored item at all to compare.
"""
GAP, STRENGTH, TYPICAL, UNSUPPORTED, UNDEFINED = range(5)

ROUNDING = 1e-20
"""A variance of a mean below this is what rounding leaves of none."""

INSIDE = 2.0
"""Standard deviations from 0 within which draws are not looked at: p is 0.01 to 0.05 there, a discovery only among hundreds."""


@dataclass(frozen=True)
class Contrast:
    """One benchmark's, or the suite's, comparison of concepts with their strata: each C, NaN where undefined.

    Attributes:
        adjusted: the effect.
        low, high: its interval.
        error: its standard error under the permutation null.
        support: (sum w)^2 / sum w^2 over units that have others to be compared with.
        p: two-sided.
        null: the permutation distribution of sum w r = adjusted * sum w.
    """

    adjusted: FloatArray
    low: FloatArray
    high: FloatArray
    error: FloatArray
    support: FloatArray
    p: FloatArray
    null: Null


@dataclass(frozen=True)
class Calibrated:
    """The calibrated columns, each B+1 x C; the last row is the suite. NaN where undefined.

    Attributes:
        adjusted, low, high, shrunk, p, q: as told at the top of this module.
        support: (sum w)^2 / sum w^2 over units (families in a benchmark); what min_n_eff is held against.
        finding: the concept that leads the finding of a gap or strength, else -1.
        status: places in :data:`STATUSES`.
        n_alone: units that had no other to be compared with, and were left out.
        contrasts: the comparisons themselves (B+1), for validity checks.
    """

    adjusted: FloatArray
    low: FloatArray
    high: FloatArray
    shrunk: FloatArray
    p: FloatArray
    q: FloatArray
    support: FloatArray
    finding: IntArray
    status: IntArray
    n_alone: int
    contrasts: tuple[Contrast, ...]

    def findings(self, status: int = GAP) -> IntArray:
        """Number of independent findings of that status in each benchmark and the suite (B+1)."""
        return np.array([len(np.unique(row[state == status])) for row, state in zip(self.finding, self.status, strict=True)])


def calibrate(
    saliency: sp.csr_matrix,
    scores: FloatArray,
    chance: FloatArray,
    benchmark_codes: IntArray,
    strata_codes: IntArray,
    family_codes: IntArray,
    *,
    min_n_eff: float,
    alpha: float,
    excluded: np.ndarray | None = None,
    confidence: float = 0.95,
    same: float = SAME,
) -> Calibrated:
    """The calibrated columns of every concept in each benchmark and in the suite.

    Args:
        saliency: a(i,c), I x C, at least 0.
        scores: 0 to 1, NaN where unscored (I).
        chance: expected score of a blind guess (I).
        benchmark_codes: 0 to B-1 (I).
        strata_codes: any codes (I); crossed with the benchmark here. See :func:`gapscope.competency.units.length_strata`.
        family_codes: any codes (I).
        min_n_eff: least support of a concept that is tested.
        alpha: false-discovery rate of gaps and strengths.
        excluded: concepts that are not tested (C, bool), such as structural ones.
        confidence: of the intervals.
        same: correlation from which on two concepts are one finding.

    Raises:
        InputError: as :func:`gapscope.competency.units.make_units`.
    """
    units = make_units(saliency, scores, chance, benchmark_codes, strata_codes, family_codes)
    n_benchmarks = int(benchmark_codes.max()) + 1
    contrasts = [contrast(of_benchmark(units, code), confidence) for code in range(n_benchmarks)]
    suite = join_families(units, pooling_factors(units, n_benchmarks))
    contrasts.append(contrast(suite, confidence))
    tested_everywhere = np.ones(saliency.shape[1], dtype=bool) if excluded is None else ~excluded.astype(bool)
    rows = [decide(one, tested_everywhere & (one.support >= min_n_eff), alpha, same) for one in contrasts]
    q, shrunk, finding, status = (np.stack(part) for part in zip(*rows, strict=True))
    columns = {name: np.stack([getattr(one, name) for one in contrasts]) for name in ("adjusted", "low", "high", "p", "support")}
    return Calibrated(**columns, q=q, shrunk=shrunk, finding=finding, status=status, n_alone=units.n_alone, contrasts=tuple(contrasts))


def of_benchmark(units: Units, code: int) -> Units:
    """The units of one benchmark."""
    rows = np.flatnonzero(units.benchmarks == code)
    cells = np.unique(units.cells[rows], return_inverse=True)[1]
    parts = (units.scores[rows], units.floors[rows], units.benchmarks[rows], cells, units.families[rows])
    return Units(units.saliency[rows], *parts, n_alone=0)


def pooling_factors(units: Units, n_benchmarks: int) -> FloatArray:
    """Factor of each benchmark and concept (B x C) by which saliency is multiplied before the suite is taken as one.

    With factors sum a / sum a^2 the suite's weighted mean is the benchmarks' means weighted with their n_eff.
    """
    factors = np.zeros((n_benchmarks, units.saliency.shape[1]))
    for code in range(n_benchmarks):
        part = units.saliency[np.flatnonzero(units.benchmarks == code)].astype(np.float64)
        squared = column_sums(part.multiply(part).tocsr())
        np.divide(column_sums(part), squared, out=factors[code], where=squared > 0)
    return factors


def contrast(units: Units, confidence: float = 0.95, *, with_p: bool = True) -> Contrast:
    """Compare each concept with the strata that its units are in; without p, which takes most of the time, p is NaN."""
    n_concepts = units.saliency.shape[1]
    if not len(units.scores):
        undefined = np.full(n_concepts, np.nan)
        null = null_of(units.saliency, units.scores, units.cells)
        return Contrast(undefined, undefined, undefined, undefined, np.zeros(n_concepts), undefined, null)
    weights = units.saliency.astype(np.float64)
    null = null_of(weights, units.scores, units.cells)
    statistic, total = null.statistic(), column_sums(weights)
    known = total > 0
    safe = np.where(known, total, 1.0)
    adjusted = np.where(known, statistic / safe, np.nan)
    error = np.where(known, np.sqrt(null.variance) / safe, np.nan)
    support = np.where(known, safe**2 / np.where(known, column_sums(weights.multiply(weights).tocsr()), 1.0), 0.0)
    expected = (weights.T @ cell_means(units.scores, units.cells)[units.cells]) / safe
    floor = (weights.T @ units.floors) / safe
    scaled = np.clip((units.scores - units.floors) / (1.0 - units.floors), 0.0, 1.0)
    unseen = np.divide(unseen_variance(scaled, support), support, out=np.zeros(n_concepts), where=support > 0)
    low, high = _adjusted_interval(adjusted, error, expected, floor, support, unseen, confidence)
    p = np.where(known, null.p(statistic), np.nan) if with_p else np.full(n_concepts, np.nan)
    return Contrast(adjusted, low, high, error, support, p, null)


def _adjusted_interval(
    adjusted: FloatArray,
    error: FloatArray,
    expected: FloatArray,
    floor: FloatArray,
    support: FloatArray,
    unseen: FloatArray,
    confidence: float,
) -> tuple[FloatArray, FloatArray]:
    """Interval of expected + adjusted, which lies between floor and 1, less the expected mean again; unseen adds to the variance."""
    room = 1.0 - floor
    at_null = np.clip((expected - floor) / room, 0.0, 1.0)
    variance = (error / room) ** 2 + unseen
    # Where no score differs inside any cell, but for rounding, nothing is known of the spread, and a trial is what a right or
    # wrong score is.
    known = variance > ROUNDING
    trials = np.where(known, at_null * (1 - at_null) / np.where(known, variance, 1.0), support)
    low, high = beta_interval(at_null + adjusted / room, trials, confidence)
    return low * room + floor - expected, high * room + floor - expected


def decide(one: Contrast, tested: np.ndarray, alpha: float, same: float) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """The q, shrunk effect, finding and status of each concept (C), those tested given (C, bool)."""
    q = np.full(len(one.p), np.nan)
    q[tested] = benjamini_hochberg(one.p[tested])
    shrunk = one.adjusted * shrinkage(one.adjusted, one.error, tested)
    discovered = q < alpha
    status = np.full(len(q), TYPICAL, dtype=np.int64)
    status[discovered & (one.adjusted < 0)], status[discovered & (one.adjusted > 0)] = GAP, STRENGTH
    status[~tested], status[np.isnan(one.adjusted)] = UNSUPPORTED, UNDEFINED
    finding = np.full(len(q), -1, dtype=np.int64)
    for kind in (GAP, STRENGTH):
        flagged = np.flatnonzero(status == kind)
        finding[flagged] = collapse(one.null, flagged, one.p[flagged], alpha, same)
    return q, shrunk, finding, status


def benjamini_hochberg(p: FloatArray) -> FloatArray:
    """The q of each p: the least false-discovery rate at which it is a discovery."""
    order = np.argsort(p, kind="stable")
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    q: FloatArray = np.empty(len(p))
    q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q


def shrinkage(adjusted: FloatArray, error: FloatArray, tested: np.ndarray) -> FloatArray:
    """Share of each effect (C) that is kept: t^2 / (t^2 + error^2), with t^2 the variance of true effects around 0.

    t^2 solves sum effect^2 / (t^2 + error^2) = number of tested concepts, and is 0 where already t^2 = 0 gives less.
    """
    # A square may be 0 where the error is not.
    squared = error**2
    used = tested & (np.nan_to_num(squared) > 0)
    effect, variance = adjusted[used] ** 2, squared[used]
    low, high = 0.0, float(effect.max()) if used.any() else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        if (effect / (middle + variance)).sum() > used.sum():
            low = middle
        else:
            high = middle
    # An effect without error is the average itself, 0, and stays.
    return np.divide(high, high + squared, out=np.where(np.isnan(error), np.nan, 1.0), where=squared > 0)


def null_discoveries(one: Contrast, tested: np.ndarray, alpha: float, n_draws: int, seed: int) -> IntArray:
    """How many of the tested concepts are discovered in each of n_draws analyses of permuted scores (n_draws).

    The share of draws above 0 should be at most alpha, up to its own Monte-Carlo error. Permuting leaves every moment as it
    is, so that only statistics and their p are made again.
    """
    columns = np.flatnonzero(tested)
    spread = np.sqrt(np.maximum(one.null.variance[columns], 1e-300))[:, None]
    found = np.zeros(n_draws, dtype=np.int64)
    smallest: dict[int, list[FloatArray]] = {draw: [] for draw in range(n_draws)}
    for concepts, draws, table in draw_statistics(one.null, n_draws, seed, columns):
        # Nearer the middle a p would be a discovery only if at least a fifth of all concepts were, in one draw of the null.
        row, draw = np.nonzero(np.abs(table) > INSIDE * spread[concepts])
        order = np.argsort(draw, kind="stable")
        row, draw = row[order], draw[order]
        p = one.null.p(table[row, draw].astype(np.float64), columns[concepts][row])
        for index in range(table.shape[1]):
            here = slice(*np.searchsorted(draw, [index, index + 1]))
            smallest[draws.start + index].append(p[here][p[here] <= alpha])
    for index, parts in smallest.items():
        p = np.sort(np.concatenate(parts)) if parts else np.empty(0)
        below = np.flatnonzero(p * len(columns) < alpha * np.arange(1, len(p) + 1))
        found[index] = below[-1] + 1 if len(below) else 0
    return found
