"""Concepts of two observers, matched: do they see the same things, and say the same of a subject?

A concept is an index that means nothing outside its SAE. Two SAEs are compared by pairing each concept of the first with
the one of the second that is most like it: by the cosine of their decoder directions where both decode into the same layer of
the same model, else by the correlation of their saliency over the items that both have read.

The best of thousands is always something, so a likeness is read against two nulls: the same with the second observer's items
permuted inside their benchmarks (nothing but chance and the benchmark is left), and with random features in place of the second
observer's concepts (same model, same sparsity, no training).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray

MIN_ITEMS = 10
"""A concept that fires on fewer items is not matched by saliency: a correlation over three items is mostly 1 or nothing."""

BLOCK = 512
"""Concepts of the first observer that are compared at once."""

DIGITS = 5
"""To which likenesses are rounded before the best is taken: the last bits of a product depend on the number of threads."""


@dataclass(frozen=True)
class Matches:
    """The partner of each concept of a first observer (C1) among those of a second.

    Attributes:
        partner: index of the most alike concept, the lowest of equals; -1 where the concept was not compared.
        likeness: cosine or correlation with it; NaN where not compared.
        mutual: whether the concept is also its partner's best match.
    """

    partner: IntArray
    likeness: FloatArray
    mutual: np.ndarray

    @property
    def n_compared(self) -> int:
        """Concepts that were compared at all."""
        return int((self.partner >= 0).sum())


@dataclass(frozen=True)
class Agreement:
    """Rank correlation (Spearman's) of a value over matched concepts, and over how many of them; None below three."""

    n: int
    rank_correlation: float | None


def match_by_saliency(first: sp.csr_matrix, second: sp.csr_matrix, min_items: int = MIN_ITEMS) -> Matches:
    """Match on Pearson's correlation of saliency over items; rows of both matrices (I x C1, I x C2) are the same items.

    Raises:
        ValueError: the two have another number of items.
    """
    if first.shape[0] != second.shape[0]:
        raise ValueError(f"{first.shape[0]} items in the first matrix, {second.shape[0]} in the second")
    left, right = _frequent(first, min_items), _frequent(second, min_items)
    others = _standardised(second, right)
    blocks = (_standardised(first, left[start : start + BLOCK]).T @ others for start in range(0, len(left), BLOCK))
    return _best(blocks, left, right, first.shape[1], second.shape[1])


def match_by_direction(first: FloatArray, second: FloatArray) -> Matches:
    """Match on the cosine of decoder directions (C1 x d, C2 x d); directions of length 0 are not compared.

    Raises:
        ValueError: the two have another width.
    """
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"directions of width {first.shape[1]} and {second.shape[1]}")
    norms = [np.linalg.norm(matrix, axis=1) for matrix in (first, second)]
    left, right = (np.flatnonzero(norm > 0).astype(np.int64) for norm in norms)
    others = (second[right] / norms[1][right, None]).T
    parts = (left[start : start + BLOCK] for start in range(0, len(left), BLOCK))
    return _best((first[part] / norms[0][part, None] @ others for part in parts), left, right, len(first), len(second))


def rank_agreement(first: FloatArray, second: FloatArray, matches: Matches, used: np.ndarray | None = None) -> Agreement:
    """Rank correlation of a value of the first observer's concepts (C1) with that of their partners (values C2).

    Pairs without both values are left out, and those whose first concept is not among ``used`` (C1, bool), such as the
    mutual matches alone.
    """
    pairs = matches.partner >= 0 if used is None else (matches.partner >= 0) & used
    left, right = first[pairs], second[matches.partner[pairs]]
    both = ~(np.isnan(left) | np.isnan(right))
    return Agreement(int(both.sum()), spearman(left[both], right[both]))


def spearman(first: FloatArray, second: FloatArray) -> float | None:
    """Rank correlation, ties at their mean rank; None below three pairs or where one side is all the same."""
    if len(first) < 3:
        return None
    ranks = [_ranks(values) for values in (first, second)]
    centred = [rank - rank.mean() for rank in ranks]
    scale = np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum())
    return float((centred[0] * centred[1]).sum() / scale) if scale > 0 else None


def permute_items(matrix: sp.csr_matrix, benchmark_codes: IntArray, seed: int) -> sp.csr_matrix:
    """The matrix (I x C) with its rows permuted inside each benchmark, the same for one seed: a null for matches."""
    order = np.arange(matrix.shape[0])
    generator = np.random.default_rng([seed, 7])
    for code in np.unique(benchmark_codes):
        rows = np.flatnonzero(benchmark_codes == code)
        order[rows] = generator.permutation(rows)
    return matrix[order]


def _frequent(matrix: sp.csr_matrix, min_items: int) -> IntArray:
    counts = np.bincount(matrix.indices[matrix.data > 0], minlength=matrix.shape[1])
    return np.flatnonzero(counts >= max(min_items, 1)).astype(np.int64)


def _standardised(matrix: sp.csr_matrix, columns: IntArray) -> np.ndarray:
    """The named columns, dense (I x n, float32), each of mean 0 and length 1; all 0 where a column is constant."""
    dense = matrix[:, columns].toarray().astype(np.float32)
    dense -= dense.mean(axis=0)
    length = np.linalg.norm(dense, axis=0)
    unit: np.ndarray = np.divide(dense, length, out=np.zeros_like(dense), where=length > 0)
    return unit


def _best(blocks: Iterator[np.ndarray], left: IntArray, right: IntArray, n_first: int, n_second: int) -> Matches:
    """The best partner in blocks of a likeness table whose rows are the concepts ``left``, columns ``right``."""
    partner: IntArray = np.full(n_first, -1, dtype=np.int64)
    likeness, mutual = np.full(n_first, np.nan), np.zeros(n_first, dtype=bool)
    back_likeness, back = np.full(len(right), -np.inf), np.full(len(right), -1, dtype=np.int64)
    row = 0
    for block in blocks:
        table = np.round(block.astype(np.float64), DIGITS)
        rows = left[row : row + len(table)]
        row += len(table)
        if not len(right):
            continue
        best = table.argmax(axis=1)
        partner[rows], likeness[rows] = right[best], table[np.arange(len(table)), best]
        top = table.argmax(axis=0)
        values = table[top, np.arange(len(right))]
        better = values > back_likeness
        back_likeness[better], back[better] = values[better], rows[top[better]]
    returned = np.full(n_second, -1, dtype=np.int64)
    returned[right] = back
    found = partner >= 0
    mutual[found] = returned[partner[found]] == np.flatnonzero(found)
    return Matches(partner, likeness, mutual)


def _ranks(values: FloatArray) -> FloatArray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: FloatArray = (last - (counts - 1) / 2)[place.ravel()]
    return ranks
