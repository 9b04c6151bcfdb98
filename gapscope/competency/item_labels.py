"""How well a few words say on which items a feature is strong: one detection score for concepts and controls alike.

Labels of concepts come from example contexts, which controls do not have. So for comparison each feature, of whatever set,
is labelled from whole items: the keywords of the items on which it is strongest, by class-based TF-IDF, and the area under the
ROC curve with which these words pick such items, held out of the label, out of items without the feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.labels import area_under_roc
from gapscope.files import stable_hash

STRONGEST = 30
"""Items that a feature's label is made from and tested on."""

SILENT = 200
"""Items without the feature against which its label is tested."""

FOLDS, KEYWORDS = 3, 4
FEWEST = 6
"""With fewer strong, or fewer silent, items there is no score."""


@dataclass(frozen=True)
class ItemWords:
    """Which words are in which item (I x W, ones), how rare each is (W), and the fold of each item (I)."""

    present: sp.csr_matrix
    rarity: FloatArray
    fold: IntArray

    @staticmethod
    def of(words: list[list[str]], item_ids: list[str]) -> ItemWords:
        """Index the words that at least two items hold."""
        vocabulary: dict[str, int] = {}
        rows, columns = [], []
        for row, one in enumerate(words):
            for word in sorted(set(one)):
                rows.append(row)
                columns.append(vocabulary.setdefault(word, len(vocabulary)))
        present = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(words), len(vocabulary)))
        count = np.asarray(present.sum(axis=0)).ravel()
        present, count = sp.csr_matrix(present[:, count > 1]), count[count > 1]
        fold = np.array([stable_hash("fold", item_id) % FOLDS for item_id in item_ids], dtype=np.int64)
        return ItemWords(present, np.log(1 + len(words) / count), fold)


def detection_scores(matrix: sp.csr_matrix, columns: IntArray, words: ItemWords) -> FloatArray:
    """The detection score of the named features (len(columns)); NaN where a feature has too few items, with it or without."""
    by_feature = sp.csc_matrix(matrix)
    order = np.argsort(words.fold, kind="stable")
    spread = np.random.default_rng(0).permutation(order)
    return np.array([_detection(by_feature, int(column), words, spread) for column in columns])


def _detection(by_feature: sp.csc_matrix, column: int, words: ItemWords, spread: IntArray) -> float:
    here = slice(by_feature.indptr[column], by_feature.indptr[column + 1])
    rows, values = by_feature.indices[here], by_feature.data[here]
    strong = rows[np.lexsort((rows, -values))][:STRONGEST]
    silent = spread[~np.isin(spread, rows)][:SILENT]
    if len(strong) < FEWEST or len(silent) < FEWEST:
        return float("nan")
    areas: list[float] = []
    for fold in range(FOLDS):
        known, held_out = strong[words.fold[strong] != fold], strong[words.fold[strong] == fold]
        if not len(known) or not len(held_out):
            continue
        share = np.asarray(words.present[known].sum(axis=0)).ravel() / len(known)
        # What sets the strong items apart, and is in more than one of them.
        lift = np.where(share * len(known) > 1, share * words.rarity, 0.0)
        chosen = np.argsort(-lift, kind="stable")[:KEYWORDS]
        weights = np.zeros(len(lift))
        weights[chosen] = lift[chosen]
        positives, negatives = words.present[held_out] @ weights, words.present[silent] @ weights
        areas += [area_under_roc([one], negatives) for one in positives]
    return float(np.mean(areas)) if areas else float("nan")
