"""What a permutation permutes: a family's items in one benchmark, in a cell of families that could have had its score.

A family (an item and the variants made from it) is one piece of evidence, not many: its items are right and wrong
together. So before anything calibrated is computed, the items of a family in one benchmark become one *unit*: its saliency
is the sum over its items (a concept that fires on an item and its four variants has that much to do with the family), its
score the plain mean of theirs. Scores of units are exchangeable only between units of one benchmark, one stratum and about
one number of items, because the mean of five scores varies less than one score; such a class is a *cell*. Sizes are
classed by powers of two (1, 2 to 3, 4 to 7, ...), which keeps cells large while variances inside one differ little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.errors import InputError


@dataclass(frozen=True)
class Units:
    """U units, sorted by cell. Units alone in their cell have nothing to be compared with and are left out.

    Attributes:
        saliency: sum over the unit's items (U x C, CSR).
        scores: mean chance-corrected score (U).
        floors: the lowest score that correction admits, -chance / (1 - chance), mean over the unit's items (U).
        benchmarks: code of the unit's benchmark (U).
        cells: code of the unit's cell, 0 to H-1, rising (U).
        families: code of the unit's family (U).
        n_alone: units left out because no other is in their cell.
    """

    saliency: sp.csr_matrix
    scores: FloatArray
    floors: FloatArray
    benchmarks: IntArray
    cells: IntArray
    families: IntArray
    n_alone: int


def check_inputs(saliency: sp.csr_matrix, scores: FloatArray, *codes: FloatArray | IntArray) -> None:
    """Refuse what no performance can be computed from.

    Raises:
        InputError: lengths differ, saliency is negative or not finite, or a score is outside 0 to 1 (NaN is unscored).
    """
    n_items = saliency.shape[0]
    for values in (scores, *codes):
        if len(values) != n_items:
            raise InputError(f"there are {n_items} items of saliency but {len(values)} of scores or codes")
    if not np.isfinite(saliency.data).all() or (saliency.data < 0).any():
        raise InputError("is negative or not finite", field="saliency", fix="run extract-activations again")
    if ((scores < 0) | (scores > 1)).any():
        raise InputError(f"{scores[(scores < 0) | (scores > 1)][0]} is outside 0 to 1", field="score")


def make_units(
    saliency: sp.csr_matrix,
    scores: FloatArray,
    chance: FloatArray,
    benchmark_codes: IntArray,
    strata_codes: IntArray,
    family_codes: IntArray,
) -> Units:
    """Gather scored items (I x C saliency, I scores of 0 to 1 or NaN) into units.

    A unit whose items are in several strata counts for the one that most of them are in, the lowest code of equals.

    Raises:
        InputError: as :func:`check_inputs`; or chance is outside 0 to 1 (1 itself admits no correction).
    """
    check_inputs(saliency, scores, chance, benchmark_codes, strata_codes, family_codes)
    if not ((chance >= 0) & (chance < 1)).all():
        raise InputError("must be at least 0 and below 1", field="chance")
    scored = np.flatnonzero(~np.isnan(scores))
    room = 1.0 - chance[scored]
    corrected = (scores[scored] - chance[scored]) / room
    _, unit_of = np.unique(np.stack([benchmark_codes[scored], family_codes[scored]]), axis=1, return_inverse=True)
    unit_of = unit_of.ravel()
    size = np.bincount(unit_of)
    benchmarks, families = np.empty(len(size), np.int64), np.empty(len(size), np.int64)
    benchmarks[unit_of], families[unit_of] = benchmark_codes[scored], family_codes[scored]
    home = _most_common(unit_of, strata_codes[scored])
    _, cells = np.unique(np.stack([benchmarks, home, np.floor(np.log2(size)).astype(np.int64)]), axis=1, return_inverse=True)
    cells = cells.ravel()
    kept = np.flatnonzero(np.bincount(cells)[cells] > 1)
    kept = kept[np.argsort(cells[kept], kind="stable")]
    gathered = sp.csr_matrix(sum_rows(saliency[scored], unit_of, len(size))[kept])
    return Units(
        gathered,
        (np.bincount(unit_of, corrected) / size)[kept],
        (np.bincount(unit_of, 1.0 - 1.0 / room) / size)[kept],
        benchmarks[kept],
        np.unique(cells[kept], return_inverse=True)[1],
        families[kept],
        len(size) - len(kept),
    )


def join_families(units: Units, factors: FloatArray) -> Units:
    """Units of the whole suite: saliency times its benchmark's factor of each concept (B x C), one unit a family.

    A family in several benchmarks becomes one unit: saliency summed, score and floor the mean of its units', in a cell of
    families that have the same first cell and lie in as many benchmarks. Without such families nothing but the factor changes.
    """
    saliency = units.saliency.copy().astype(np.float64)
    rows = np.repeat(np.arange(saliency.shape[0]), np.diff(saliency.indptr))
    saliency.data *= factors[units.benchmarks[rows], saliency.indices]
    families, first, family_of, size = np.unique(units.families, return_index=True, return_inverse=True, return_counts=True)
    if len(families) == len(units.families):
        return Units(saliency, units.scores, units.floors, units.benchmarks, units.cells, units.families, units.n_alone)
    residuals = units.scores - cell_means(units.scores, units.cells)[units.cells]
    base = np.bincount(family_of, units.scores - residuals) / size
    _, cells = np.unique(np.stack([units.cells[first], size]), axis=1, return_inverse=True)
    cells = cells.ravel()
    # The units' own cells set the mean that each score is compared with; the joint cell only says who may change places.
    scores = cell_means(base, cells)[cells] + np.bincount(family_of, residuals) / size
    kept = np.flatnonzero(np.bincount(cells)[cells] > 1)
    kept = kept[np.argsort(cells[kept], kind="stable")]
    return Units(
        sp.csr_matrix(sum_rows(saliency, family_of, len(families))[kept]),
        scores[kept],
        (np.bincount(family_of, units.floors) / size)[kept],
        units.benchmarks[first][kept],
        np.unique(cells[kept], return_inverse=True)[1],
        families[kept],
        units.n_alone + len(families) - len(kept),
    )


def length_strata(n_tokens: IntArray, benchmark_codes: IntArray, bins: int, key_codes: IntArray | None = None) -> IntArray:
    """Strata (I): bins of equal counts of length inside each benchmark, crossed with a key such as the subject.

    Equal lengths are never parted, so that a benchmark of short items may fill fewer bins.
    """
    inside = np.zeros(len(n_tokens), dtype=np.int64)
    for code in np.unique(benchmark_codes):
        rows = benchmark_codes == code
        edges = np.quantile(n_tokens[rows], np.arange(1, bins) / bins, method="lower")
        inside[rows] = np.searchsorted(np.unique(edges), n_tokens[rows], side="left")
    keys = inside * 0 if key_codes is None else key_codes
    return np.unique(np.stack([benchmark_codes, keys, inside]), axis=1, return_inverse=True)[1].ravel()


def cell_means(values: FloatArray, cells: IntArray) -> FloatArray:
    """Mean of the units' values (U) in each cell (H)."""
    mean: FloatArray = np.bincount(cells, values) / np.bincount(cells)
    return mean


def weighted_count(codes: IntArray, values: FloatArray, length: int) -> FloatArray:
    """Sum of the values with each code, 0 to length-1."""
    # The annotation of bincount forgets that weights make it a float.
    return np.asarray(np.bincount(codes, values, minlength=length), dtype=np.float64)


def sum_rows(matrix: sp.csr_matrix, group_of: IntArray, n_groups: int) -> sp.csr_matrix:
    """Sum the rows of each group (rows x C -> n_groups x C), indices sorted, without stored zeros."""
    n_rows = matrix.shape[0]
    groups = sp.csr_matrix((np.ones(n_rows, dtype=matrix.dtype), (group_of, np.arange(n_rows))), shape=(n_groups, n_rows))
    summed = sp.csr_matrix(groups @ matrix)
    summed.sort_indices()
    summed.eliminate_zeros()
    return summed


def _most_common(unit_of: IntArray, codes: IntArray) -> IntArray:
    """The code that most items of each unit have, the lowest of equals."""
    pairs, counts = np.unique(np.stack([unit_of, codes]), axis=1, return_counts=True)
    order = np.lexsort((pairs[1], -counts, pairs[0]))
    units, first = np.unique(pairs[0][order], return_index=True)
    common: IntArray = np.empty(len(units), dtype=np.int64)
    common[units] = pairs[1][order][first]
    return common
