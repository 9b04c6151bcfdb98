"""Gaps that are the same items again are one finding.

Concepts share items, so their statistics move together: under the permutation null two of them correlate by
sum_h v_h sum_u w~_uc w~_ud over the square root of both variances, with v_h the variance of scores in cell h; for rare
concepts this is the cosine of their saliency over items. A finding is led by a concept whose effect the findings before it
do not explain. From the surest on, the concept that stands out most *given the leaders so far* leads the next one:

    z(c | L) = (z_c - R_cL R_LL^-1 z_L) / sqrt(1 - R_cL R_LL^-1 R_Lc)

(conditional analysis of summary statistics, Yang et al. 2012, in genetics), until none stands out with a p of alpha over
the number of flagged concepts, or all are close to a leader. Every other concept belongs to the leader that it correlates
with most. Correlation of pairs alone would not do: hundreds of dense random directions in a space of 64 dimensions are all
flagged at little correlation with each other, and are not hundreds of findings.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.permutation import Null
from gapscope.competency.units import sum_rows

SAME = 0.5
"""Correlation of two statistics from which on they are one finding however far both stand out."""

LEFT_OVER = 0.05
"""Share of a statistic's variance that leaders must leave open for it to lead: below, the conditional z is mostly rounding."""


def collapse(null: Null, flagged: IntArray, p: FloatArray, alpha: float, same: float = SAME) -> IntArray:
    """The finding of each flagged concept (F): the concept that leads it. All must lie on one side (gaps, or strengths).

    `p` (F) says how far each stands out by itself, `alpha` how sure a further finding must be (Bonferroni over F). Of
    equals the lower index goes first. Memory is F times the number of findings.
    """
    order = np.lexsort((flagged, p))
    half = _half_null(null, flagged[order])
    given, open_variance = -ndtri(np.maximum(p[order], 1e-300) / 2), np.ones(len(order))
    bar = -ndtri(alpha / 2 / max(len(order), 1))
    nearest, closeness = np.full(len(order), -1, dtype=np.int64), np.full(len(order), -np.inf)
    eligible = np.ones(len(order), dtype=bool)
    # A partial Cholesky factorisation of the correlations, one column a leader, gives all conditional z at once.
    factor = np.zeros((0, len(order)))
    while eligible.any():
        z = np.where(eligible, given / np.sqrt(np.maximum(open_variance, LEFT_OVER)), -np.inf)
        leader = int(np.argmax(z))
        # What does not stand out given the leaders is explained by them.
        if len(factor) and z[leader] < bar:
            break
        correlation, scale = _correlation(half, leader), np.sqrt(open_variance[leader])
        column = (correlation - factor.T @ factor[:, leader]) / scale
        given = given - column * (given[leader] / scale)
        open_variance = open_variance - column**2
        factor = np.vstack([factor, column])
        closer = correlation > closeness
        nearest[closer], closeness[closer] = leader, correlation[closer]
        nearest[leader], closeness[leader] = leader, np.inf
        eligible &= (correlation < same) & (open_variance >= LEFT_OVER)
        eligible[leader] = False
    finding: IntArray = np.empty(len(order), dtype=np.int64)
    finding[order] = flagged[order][nearest]
    return finding


def _half_null(null: Null, columns: IntArray) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Two matrices H, M (F rows) with correlation H H' - M M': weights, and what their cell means take off."""
    size = null.scores.size
    spread = np.bincount(null.cells, null.residuals**2) / np.maximum(size - 1, 1)
    weights = null.weights[:, columns].astype(np.float64) @ sp.diags(1 / np.sqrt(np.maximum(null.variance[columns], 1e-300)))
    totals = sum_rows(sp.csr_matrix(weights), null.cells, len(size))
    scaled = sp.diags(np.sqrt(spread)[null.cells]) @ weights
    return sp.csr_matrix(scaled.T), sp.csr_matrix((sp.diags(np.sqrt(spread / size)) @ totals).T)


def _correlation(half: tuple[sp.csr_matrix, sp.csr_matrix], place: int) -> FloatArray:
    """Correlation under the null of every flagged statistic with one of them (F)."""
    weights, means = half
    correlation: FloatArray = weights @ weights[[place]].toarray().ravel() - means @ means[[place]].toarray().ravel()
    return correlation


def null_correlation(null: Null, columns: IntArray) -> FloatArray:
    """Correlations under the null of the statistics of the named concepts (F x F, dense: for few)."""
    half = _half_null(null, columns)
    return np.stack([_correlation(half, place) for place in range(len(columns))])
