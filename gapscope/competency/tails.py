"""Two-sided p of a permutation statistic from its moments near the middle, by saddlepoint in the tails.

With tens of thousands of concepts, Benjamini-Hochberg asks for p-values far below what draws can resolve, and of concepts
worth ten items each, where a normal or a three-moment tail is wrong by factors of two to a hundred. So:

- Up to 1.3 standard deviations from 0: Pearson's type III (a shifted gamma) with the exact variance and skewness.
- Beyond: the saddlepoint approximation of Lugannani and Rice (1980) in Barndorff-Nielsen's r* form, for the sum over units
  of w~_u R_u, with R_u drawn at random from the unit's cell and w~ centred in the cell. Centring makes the independent draws
  behave as the permutation (it is the part of w that the fixed total does not settle; Robinson 1982 conditions on the
  total instead), and a factor sqrt(N/(N-1)) gives the sum the exact permutation variance.
- A tail is never below the probability that the concept's units hold the most extreme scores of their cells, which is
  exact; and where all weights are equal the statistic moves in steps, of which half a one is taken off before (the
  continuity correction).

Against brute draws (bench and tests) the p is within a tenth at n_eff of 10 and more, and errs to the large side below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import gammainc, gammaincc, gammaln, ndtr

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.units import sum_rows, weighted_count

NODES = 4
MIDDLE = 1.3
BLOCK = 500_000
"""Stored weights worked on at once: bounds the memory of the saddlepoint at about 200 MB."""


@dataclass(frozen=True)
class CellScores:
    """The distribution of residual scores in each of H cells.

    Attributes:
        size: units in the cell (H).
        nodes: places of the Gauss quadrature of the cell's residuals (up to 4 x H): it has their first seven moments, and is
            exact where at most four different values occur, as for right and wrong.
        shares: weights of the nodes (up to 4 x H), 0 where there are fewer.
        n_low, n_high: units with the lowest and the highest residual (H).
        step: smallest difference between two residuals (H).
    """

    size: FloatArray
    nodes: FloatArray
    shares: FloatArray
    n_low: FloatArray
    n_high: FloatArray
    step: FloatArray

    @staticmethod
    def of(residuals: FloatArray, cells: IntArray) -> CellScores:
        """Summarise the residuals (U) of each cell; cells are rising."""
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        groups = np.split(residuals, starts[1:]) if len(residuals) else []
        nodes, shares = np.zeros((len(groups), NODES)), np.zeros((len(groups), NODES))
        counts = np.zeros((3, len(groups)))
        for row, group in enumerate(groups):
            # Residuals of equal scores may differ in the last bit; they are one value.
            values, count = np.unique(np.round(group, 12), return_counts=True)
            nodes[row], shares[row] = gauss_quadrature(values, count / count.sum())
            counts[:, row] = count[0], count[-1], np.diff(values).min() if len(values) > 1 else 0.0
        used = max(1, int((shares > 0).sum(axis=1).max(initial=1)))
        size = np.bincount(cells).astype(np.float64)
        return CellScores(size, nodes.T[:used].copy(), shares.T[:used].copy(), *counts)


def gauss_quadrature(values: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights (each of 4) with the first seven moments of a discrete distribution (Golub and Welsch 1969)."""
    n = min(NODES, len(values))
    diagonal, beside = np.zeros(n), np.zeros(n)
    before, now, norm = np.zeros_like(values), np.ones_like(values), 1.0
    for k in range(n):
        squared = float((shares * now * now).sum())
        diagonal[k] = (shares * values * now * now).sum() / squared
        beside[k] = np.sqrt(squared / norm) if k else 0.0
        before, now, norm = now, (values - diagonal[k]) * now - beside[k] ** 2 * before, squared
    found, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[1:], 1) + np.diag(beside[1:], -1))
    nodes, weights = np.zeros(NODES), np.zeros(NODES)
    nodes[:n], weights[:n] = found, vectors[0] ** 2
    return nodes, weights


def p_values(
    statistic: FloatArray, variance: FloatArray, third: FloatArray, weights: sp.csc_matrix, cells: IntArray, scores: CellScores
) -> FloatArray:
    """Two-sided p (C): twice the smaller tail, at most 1; 1 where the statistic cannot vary. Weights are U x C."""
    p = np.ones(len(statistic))
    moving = np.flatnonzero(variance > 0)
    z = statistic[moving] / np.sqrt(variance[moving])
    skewness = third[moving] / variance[moving] ** 1.5
    p[moving] = pearson_three(z, skewness)
    # A strongly skewed gamma ends close to the middle on its short side, and knows nothing beyond.
    far = moving[np.abs(z) > np.minimum(MIDDLE, 1 / np.maximum(np.abs(skewness), 1e-9))]
    heads = np.cumsum(np.diff(weights.indptr)[far])
    for block in np.split(far, np.searchsorted(heads, np.arange(BLOCK, heads[-1] if len(heads) else 0, BLOCK))):
        if len(block):
            tail = saddlepoint_tail(statistic[block], variance[block], weights[:, block], cells, scores)
            p[block] = np.minimum(1.0, 2 * tail)
    return p


def pearson_three(z: FloatArray, skewness: FloatArray) -> FloatArray:
    """Two-sided p of a standardised value under a gamma shifted and scaled to mean 0, variance 1 and this skewness."""
    size = np.maximum(np.abs(skewness), 1e-4)
    shape = 4 / size**2
    place = np.maximum(shape + np.where(skewness < 0, -z, z) * np.sqrt(shape), 0.0)
    p: FloatArray = np.minimum(1.0, 2 * np.minimum(gammainc(shape, place), gammaincc(shape, place)))
    return p


def saddlepoint_tail(
    statistic: FloatArray, variance: FloatArray, weights: sp.csc_matrix, cells: IntArray, scores: CellScores
) -> FloatArray:
    """Probability (C) of a statistic at least as far out on its side. Weights are U x C with at least one stored in each."""
    sums = _Sums.of(weights, variance, cells, scores)
    z = statistic / np.sqrt(variance)
    z = np.sign(z) * np.maximum(np.abs(z) - sums.half_step, 0.1)
    t = _solve(sums, z)
    k0, _, k2 = sums.cumulants(t)
    root = np.sqrt(np.maximum(2 * (t * z - k0), 1e-12))
    with np.errstate(invalid="ignore", divide="ignore"):
        corrected = root + np.log(np.abs(t) * np.sqrt(k2) / root) / root
    tail = np.where(np.isfinite(corrected), ndtr(-corrected), ndtr(-root))
    floored: FloatArray = np.maximum(tail, np.where(z > 0, sums.all_high, sums.all_low))
    return floored


def _solve(sums: _Sums, z: FloatArray) -> FloatArray:
    """The t at which the first derivative of the cumulant function is z: Newton, kept inside a bracket."""
    solution = z.copy()
    open_, t = np.arange(len(z)), z.copy()
    low, high = np.where(z > 0, 0.0, -1e4), np.where(z > 0, 1e4, 0.0)
    for _ in range(60):
        _, k1, k2 = sums.cumulants(t)
        error = z - k1
        low, high = np.where(error > 0, t, low), np.where(error > 0, high, t)
        ahead = t + error / np.maximum(k2, 1e-12)
        halved = np.where(high - low > 5e3, t * 2, (low + high) / 2)
        solution[open_] = t
        t = np.where((ahead > low) & (ahead < high), ahead, halved)
        going = np.abs(error) > 1e-6 * np.abs(z)
        if not going.any():
            break
        if going.mean() < 0.7:
            sums, open_, t, z, low, high = sums.only(going), open_[going], t[going], z[going], low[going], high[going]
    return solution


@dataclass(frozen=True)
class _Sums:
    """Independent terms whose sum stands for each concept's statistic: one a stored weight, one a cell's other units."""

    concept: IntArray
    cell: IntArray
    weight: FloatArray
    times: FloatArray
    half_step: FloatArray
    all_low: FloatArray
    all_high: FloatArray
    scores: CellScores

    @staticmethod
    def of(weights: sp.csc_matrix, variance: FloatArray, cells: IntArray, scores: CellScores) -> _Sums:
        n_cells, n_concepts = len(scores.size), weights.shape[1]
        scaled = (weights.astype(np.float64) @ sp.diags(1 / np.sqrt(variance))).tocsc()
        concept = np.repeat(np.arange(n_concepts), np.diff(scaled.indptr))
        cell = cells[scaled.indices]
        total = sum_rows(scaled.tocsr(), cells, n_cells).tocsc()
        total.sort_indices()
        pair_concept, pair_cell = np.repeat(np.arange(n_concepts), np.diff(total.indptr)), total.indices.astype(np.int64)
        # (concept, cell) is sorted in both, so the cell mean of a stored weight is found by its place.
        place = np.searchsorted(pair_concept * n_cells + pair_cell, concept * n_cells + cell)
        held = np.bincount(place, minlength=len(pair_cell)).astype(np.float64)
        mean = total.data / scores.size[pair_cell]
        stretch = np.sqrt(scores.size / np.maximum(scores.size - 1, 1))
        step = np.minimum.reduceat(scaled.data * scores.step[cell], scaled.indptr[:-1])
        chances = [
            np.exp(np.bincount(pair_concept, _log_all(number[pair_cell], held, scores.size[pair_cell]), n_concepts))
            for number in (scores.n_low, scores.n_high)
        ]
        return _Sums(
            np.concatenate([concept, pair_concept]),
            np.concatenate([cell, pair_cell]),
            np.concatenate([(scaled.data - mean[place]) * stretch[cell], -mean * stretch[pair_cell]]),
            np.concatenate([np.ones(len(cell)), scores.size[pair_cell] - held]),
            step / 2,
            chances[0],
            chances[1],
            scores,
        )

    def only(self, chosen: np.ndarray) -> _Sums:
        """The sums of some of the concepts (bool, C)."""
        kept, number = chosen[self.concept], np.cumsum(chosen) - 1
        parts = (number[self.concept[kept]], self.cell[kept], self.weight[kept], self.times[kept])
        return _Sums(*parts, self.half_step[chosen], self.all_low[chosen], self.all_high[chosen], self.scores)

    def cumulants(self, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The cumulant function of each concept's sum at t (C) and its first two derivatives."""
        at = t[self.concept] * self.weight
        nodes = self.scores.nodes
        # Nodes lie on both sides of 0, the mean, or are 0: the greatest exponent is that of an outermost one.
        top = at * np.where(at > 0, nodes.max(axis=0)[self.cell], nodes.min(axis=0)[self.cell])
        total, first, second = np.zeros_like(at), np.zeros_like(at), np.zeros_like(at)
        for node, share in zip(nodes, self.scores.shares, strict=True):
            place = node[self.cell]
            mass = share[self.cell] * np.exp(at * place - top)
            total += mass
            mass *= place
            first += mass
            mass *= place
            second += mass
        first /= total
        spread = np.maximum(second / total - first**2, 0.0)
        parts = (top + np.log(total), self.weight * first, self.weight**2 * spread)
        k0, k1, k2 = (weighted_count(self.concept, self.times * part, len(t)) for part in parts)
        return k0, k1, k2


def _log_all(number: FloatArray, held: FloatArray, size: FloatArray) -> FloatArray:
    """Log-probability that `held` units drawn from `size` are all among its `number` extreme ones."""
    some = np.maximum(number - held, 0.0)
    log_ratio = gammaln(number + 1) - gammaln(some + 1) - gammaln(size + 1) + gammaln(size - held + 1)
    possible: FloatArray = np.where(number >= held, log_ratio, -np.inf)
    return possible
