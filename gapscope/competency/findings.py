"""Concepts that are the same items again are one finding.

Two concepts that fire on the same items have nearly the same statistic, and are flagged together or not at all. How much
they are one is the correlation that their statistics have under the permutation null,
sum_h v_h sum_u w~_uc w~_ud over the square root of both variances, with v_h the variance of scores in cell h: for rare
concepts the cosine of their saliency over items. Starting from the surest, a concept takes in every concept not yet taken
whose correlation with it is at least the threshold. No chains form: each member is close to the concept that names the finding.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.permutation import Null
from gapscope.competency.units import sum_rows

SAME = 0.5
"""Correlation of two statistics from which on they are one finding: a quarter of the variance is shared."""

ROWS_AT_ONCE = 256


def collapse(null: Null, flagged: IntArray, order: FloatArray, same: float = SAME) -> IntArray:
    """The finding of each flagged concept (F): the concept that leads it.

    Concepts lead in rising `order` (F; for instance p), the lower index first of equals. No table of all concepts by all
    concepts is made, and of flagged by flagged concepts only 256 rows at a time.
    """
    ranked = np.lexsort((flagged, order))
    links = null_correlation(null, flagged[ranked], same)
    leader = np.full(len(flagged), -1, dtype=np.int64)
    for place in range(len(flagged)):
        if leader[place] < 0:
            members = links.indices[links.indptr[place] : links.indptr[place + 1]]
            leader[members[leader[members] < 0]] = place
            leader[place] = place
    finding: IntArray = np.empty(len(flagged), dtype=np.int64)
    finding[ranked] = flagged[ranked][leader]
    return finding


def null_correlation(null: Null, columns: IntArray, least: float) -> sp.csr_matrix:
    """Correlations of statistics under the null that are at least `least` (F x F, CSR), of the named concepts."""
    size = null.scores.size
    spread = np.bincount(null.cells, null.residuals**2) / np.maximum(size - 1, 1)
    weights = null.weights[:, columns].astype(np.float64)
    weights = sp.csr_matrix(weights @ sp.diags(1 / np.sqrt(np.maximum(null.variance[columns], 1e-300))))
    totals = sum_rows(weights, null.cells, len(size))
    scaled = sp.csr_matrix(sp.diags(np.sqrt(spread)[null.cells]) @ weights)
    centre = sp.csr_matrix(sp.diags(np.sqrt(spread / size)) @ totals)
    by_concept, centre_by_concept = scaled.T.tocsr(), centre.T.tocsr()
    blocks = []
    for start in range(0, len(columns), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        block = (by_concept[rows] @ scaled).toarray() - (centre_by_concept[rows] @ centre).toarray()
        blocks.append(sp.csr_matrix(np.where(block >= least, block, 0.0)))
    return sp.csr_matrix(sp.vstack(blocks)) if blocks else sp.csr_matrix((0, 0))
