"""chi_model and its support, and intervals that hold at the support that concepts have: often ten items, unequally weighted.

A weighted mean of n_eff equally informative scores is treated as that many trials of a binomial, and gets the Jeffreys
interval: quantiles of Beta(n p + 1/2, n (1 - p) + 1/2) (Brown, Cai and DasGupta 2001). For scores that are not only 0 and
1, and for families, whose items go together, a trial is worth 1/dispersion: the variance of families' mean scores in the
benchmark over p (1 - p) there. In simulations over n_eff 5 to 50, gamma and lognormal weights and p from .05 to .95 the
coverage is 95 to 96.4% on average and at least 94.3% at any p, for graded scores and families as for right and wrong;
a bootstrap over families covers 76 to 92%, since it never sees values that a small sample lacks (tests, bench).

The variance is one that takes scores far from the rest to be possible though none was seen (:func:`unseen_variance`).

Intervals of means over benchmarks are put together from the ends of the benchmarks' own (MOVER, Zou and Donner 2008),
so that they keep their skewness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import betaincinv

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.units import check_inputs, sum_rows, weighted_count

NO_SPREAD = 1e-12
"""A p (1 - p) below this is that of scores that are all 0 or all 1."""


@dataclass(frozen=True)
class Reference:
    """The reference columns, each B+1 x C; the last row is the suite. NaN where undefined.

    Attributes:
        chi_model: sum a s / sum a over the benchmark's scored items with a > 0; of the suite the mean over benchmarks.
        n: scored items with a > 0.
        n_eff: (sum a)^2 / sum a^2 over them; of the suite the sum over benchmarks.
        low, high: ends of the interval of chi_model.
    """

    chi_model: FloatArray
    n: IntArray
    n_eff: FloatArray
    low: FloatArray
    high: FloatArray


def reference(
    saliency: sp.csr_matrix,
    scores: FloatArray,
    benchmark_codes: IntArray,
    family_codes: IntArray,
    *,
    confidence: float = 0.95,
) -> Reference:
    """Performance of each concept in each benchmark and in the suite (arXiv 2512.20638), with intervals.

    Saliency is I x C, scores are 0 to 1 or NaN (unscored) for I items, benchmark codes 0 to B-1. The interval is for the
    saliency-weighted mean of the items' expected scores.

    Raises:
        InputError: as :func:`gapscope.competency.units.check_inputs`.
    """
    check_inputs(saliency, scores, benchmark_codes, family_codes)
    n_benchmarks, n_concepts = int(benchmark_codes.max()) + 1, saliency.shape[1]
    shape = (n_benchmarks + 1, n_concepts)
    chi, n, n_eff = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64), np.zeros(shape)
    low, high = np.full(shape, np.nan), np.full(shape, np.nan)
    for code in range(n_benchmarks):
        rows = np.flatnonzero((benchmark_codes == code) & ~np.isnan(scores))
        if not len(rows):
            continue
        part, score = saliency[rows].astype(np.float64), scores[rows]
        total = column_sums(part)
        chi[code] = _ratio(part.T @ score, total)
        n[code] = np.bincount(part.indices[part.data > 0], minlength=n_concepts)
        n_eff[code] = _ratio(total**2, column_sums(part.multiply(part)), 0.0)
        families, family_of = np.unique(family_codes[rows], return_inverse=True)
        by_family = sum_rows(part, family_of, len(families))
        worth = _ratio(total**2, column_sums(by_family.multiply(by_family)), 0.0)
        low[code], high[code] = beta_interval(chi[code], worth / dispersion(score, family_of, worth), confidence)
    chi[-1] = _mean_defined(chi[:-1])
    n[-1], n_eff[-1] = n[:-1].sum(axis=0), n_eff[:-1].sum(axis=0)
    groups = linked_benchmarks(benchmark_codes, family_codes)
    low[-1], high[-1] = mover_interval(chi[:-1], low[:-1], high[:-1], groups)
    return Reference(chi, n, n_eff, low, high)


def beta_interval(mean: FloatArray, trials: FloatArray, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Jeffreys interval of a mean in 0 to 1 worth this many trials; it reaches 0 and 1 where the mean does. NaN stays."""
    tail = (1 - confidence) / 2
    inside = np.clip(mean, 0.0, 1.0)
    wins, losses = trials * inside + 0.5, trials * (1 - inside) + 0.5
    low, high = betaincinv(wins, losses, tail), betaincinv(wins, losses, 1 - tail)
    # A mean of 0 or 1 that rounding moved by a little is one.
    low, high = np.where(inside < 1e-9, 0.0, low), np.where(inside > 1 - 1e-9, 1.0, high)
    return np.where(np.isnan(mean), np.nan, low), np.where(np.isnan(mean), np.nan, high)


def mover_interval(mean: FloatArray, low: FloatArray, high: FloatArray, groups: IntArray) -> tuple[FloatArray, FloatArray]:
    """Interval of the mean over the benchmarks (rows; B x C) where defined.

    Distances from the mean to an end add up in quadrature between groups of benchmarks that share no family, and
    straight inside a group, as if its members erred together.
    """
    count = (~np.isnan(mean)).sum(axis=0)
    centre = _mean_defined(mean)
    down, up = np.zeros_like(centre), np.zeros_like(centre)
    for group in np.unique(groups):
        rows = groups == group
        down += np.nansum(mean[rows] - low[rows], axis=0) ** 2
        up += np.nansum(high[rows] - mean[rows], axis=0) ** 2
    at_least_one = np.maximum(count, 1)
    return np.maximum(centre - np.sqrt(down) / at_least_one, 0.0), np.minimum(centre + np.sqrt(up) / at_least_one, 1.0)


def dispersion(scores: FloatArray, family_of: IntArray, worth: FloatArray) -> FloatArray:
    """Variance of families' mean scores over p (1 - p): 1 for single items that are right or wrong, less for graded ones.

    For each concept (C), worth so many equally weighted families.
    """
    means = np.bincount(family_of, scores) / np.bincount(family_of)
    most = float(means.mean() * (1 - means.mean()))
    return (float(means.var()) + unseen_variance(means, worth)) / most if most > NO_SPREAD else np.ones(len(worth))


def unseen_variance(scores: FloatArray, worth: FloatArray) -> FloatArray:
    """What the variance of scores of 0 to 1 may lack for concepts (C) worth so many of them; at least 0.

    Twenty scores of 0.5, or nineteen and a 0.51, show no spread to speak of, yet one in fifty may be a 0 or a 1 and have gone
    unseen. So, as the Jeffreys interval counts half a hit and half a miss more than it saw, the variance is at least that of half
    a 0 and half a 1 among as many scores of p; and never more than p (1 - p), which right and wrong scores have already.
    """
    p, variance = float(scores.mean()), float(scores.var())
    least = np.minimum(p * (1 - p), (p**2 + (1 - p) ** 2) / 2 / (worth + 1))
    lacking: FloatArray = np.maximum(least - variance, 0.0)
    return lacking


def linked_benchmarks(benchmark_codes: IntArray, family_codes: IntArray) -> IntArray:
    """Group of each benchmark (B): benchmarks that share a family, directly or through others, are one group."""
    pairs = np.unique(np.stack([benchmark_codes, np.unique(family_codes, return_inverse=True)[1].ravel()]), axis=1)
    held = sp.csr_matrix((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(int(benchmark_codes.max()) + 1, pairs[1].max() + 1))
    groups: IntArray = connected_components(held @ held.T, directed=False)[1].astype(np.int64)
    return groups


def column_sums(matrix: sp.csr_matrix) -> FloatArray:
    """Sum of each column, as float64."""
    return weighted_count(matrix.indices, matrix.data, matrix.shape[1])


def _ratio(top: FloatArray, bottom: FloatArray, otherwise: float = np.nan) -> FloatArray:
    """top / bottom, and `otherwise` where bottom is 0."""
    ratio: FloatArray = np.divide(top, bottom, out=np.full(bottom.shape, otherwise), where=bottom > 0)
    return ratio


def _mean_defined(values: FloatArray) -> FloatArray:
    """Mean over the rows that are not NaN; NaN where all are."""
    defined = ~np.isnan(values)
    return _ratio(np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0).astype(np.float64))
