"""The permutation null: how large a concept's statistic gets when scores change places inside their cells.

The statistic of concept c is T_c = sum_u w_uc r_u, with w its saliency and r the units' scores minus the mean of their cell.
Under a random permutation of r inside each cell its moments are closed forms, with tilde for minus the cell mean, N the
cell's units, and each sum over one cell (the third is the two-sample form of the third moment of sampling without
replacement, e.g. Strasser and Weber 1999 and, by hand, the note in :func:`moments`):

    E T = 0,   E T^2 = sum_h  (sum w~^2)(sum r^2) / (N-1),   E T^3 = sum_h  N (sum w~^3)(sum r^3) / ((N-1)(N-2))

All are sums over stored saliency, so that they cost one sparse product and not a thousand draws. Draws are here too, to
check them with, and to see what a whole analysis does under the null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.tails import CellScores, p_values
from gapscope.competency.units import cell_means, sum_rows, weighted_count

DRAW_CELLS = 8_000_000
"""Numbers of a block of draws' table: 32 MB in float32, small enough to stay well below the bound on memory."""


@dataclass(frozen=True)
class Null:
    """The permutation distribution of C concepts' statistics over U units in H cells.

    Attributes:
        weights: saliency (U x C, CSR).
        cells: cell of each unit (U), rising.
        scores: distribution of r in the cells.
        residuals: r (U).
        variance: E T^2 (C).
        third: E T^3 (C).
    """

    weights: sp.csr_matrix
    cells: IntArray
    scores: CellScores
    residuals: FloatArray
    variance: FloatArray
    third: FloatArray

    def statistic(self) -> FloatArray:
        """T as observed (C)."""
        observed: FloatArray = self.weights.T @ self.residuals
        return observed

    def p(self, statistic: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Two-sided p of a statistic of each concept, or of the named ones (see :mod:`gapscope.competency.tails`)."""
        chosen = np.arange(self.weights.shape[1]) if columns is None else columns
        weights = sp.csc_matrix(self.weights[:, chosen])
        return p_values(statistic, self.variance[chosen], self.third[chosen], weights, self.cells, self.scores)


def null_of(weights: sp.csr_matrix, scores: FloatArray, cells: IntArray) -> Null:
    """The permutation distribution for scores (U) in cells (U, rising codes 0 to H-1), weights U x C."""
    residuals = scores - cell_means(scores, cells)[cells]
    variance, third = moments(weights, residuals, cells)
    return Null(weights, cells, CellScores.of(residuals, cells), residuals, variance, third)


def moments(weights: sp.csr_matrix, residuals: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
    """Exact variance and third central moment (each C) of w'r, r permuted inside cells. r sums to 0 in every cell.

    For the third: with sum r = 0, E r_a^3 = R3/N, E r_a^2 r_b = -R3/(N(N-1)) and E r_a r_b r_c = 2 R3/(N(N-1)(N-2)) for
    different places a, b, c; with sum w~ = 0 the weights' sums over such places are W3, -W3 and 2 W3. Adding up, the factor
    is (1/N) (1 + 3/(N-1) + 4/((N-1)(N-2))) = N/((N-1)(N-2)). In a cell of two it is 0, because then sum r^3 is.
    """
    n_cells = int(cells[-1]) + 1 if len(cells) else 0
    size = np.bincount(cells).astype(np.float64)
    second_factor = np.bincount(cells, residuals**2) / np.maximum(size - 1, 1)
    third_factor = np.bincount(cells, residuals**3) * np.where(size > 2, size / np.maximum((size - 1) * (size - 2), 1), 0.0)
    powers = weights.astype(np.float64)
    first = sum_rows(powers, cells, n_cells)
    second = sum_rows(powers.multiply(powers).tocsr(), cells, n_cells)
    cubes = sum_rows(powers.power(3), cells, n_cells)
    # All weights are above 0, so the three have the same stored entries, and one set of indices serves.
    cell = np.repeat(np.arange(n_cells), np.diff(first.indptr))
    mean = first.data / size[cell]
    spread = np.maximum(second.data - mean * first.data, 0.0)
    skew = cubes.data - 3 * mean * second.data + 2 * mean**2 * first.data
    # A cell where every unit has the same weight spreads nothing; what rounding leaves there is not variance.
    spread[spread < 1e-6 * second.data] = 0.0
    n_concepts = weights.shape[1]
    variance = weighted_count(first.indices, spread * second_factor[cell], n_concepts)
    return variance, weighted_count(first.indices, skew * third_factor[cell], n_concepts)


def permuted(residuals: FloatArray, cells: IntArray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Residuals permuted inside their cells, one draw a column (U x n_draws, float32). Cells must be rising."""
    table = np.repeat(residuals.astype(np.float32)[:, None], n_draws, axis=1)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(cells)], strict=True):
        rng.permuted(table[start:stop], axis=0, out=table[start:stop])
    return table


def draw_statistics(
    null: Null, n_draws: int, seed: int, columns: IntArray | None = None, block: int = 250
) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Draws of T by brute force: (slice of the columns, slice of the draws, float32 table), all draws of a block in one product.

    A draw depends on the seed and its block alone; neither concepts nor blocks of concepts change it.
    """
    chosen = null.weights if columns is None else null.weights[:, columns]
    by_concept = sp.csr_matrix(chosen.T.astype(np.float32))
    for index, start in enumerate(range(0, n_draws, block)):
        draws = slice(start, min(start + block, n_draws))
        table = permuted(null.residuals, null.cells, draws.stop - draws.start, np.random.default_rng([seed, index]))
        step = max(1, DRAW_CELLS // table.shape[1])
        for first in range(0, by_concept.shape[0], step):
            concepts = slice(first, min(first + step, by_concept.shape[0]))
            yield concepts, draws, by_concept[concepts] @ table
