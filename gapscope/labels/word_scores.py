"""How well the words of a label that somebody else wrote detect a concept's contexts: a score that needs no language model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from gapscope.competency.labels import MIN_ITEMS, MIN_NEGATIVES, REFERENCE, area_under_roc, learn_background
from gapscope.competency.words import find_words


def word_scores(texts: Mapping[int, str], contexts: pa.Table, firing: sp.csr_matrix, item_ids: Sequence[str]) -> dict[int, float | None]:
    """Area under the ROC curve of each label's words detecting the concept's contexts against those in which it is silent.

    A window scores the summed rarity of the label's words that it holds, as keywords do; the label was not written from any
    of these windows, so all are held out. It is harsh on labels that describe rather than quote ("legal language"), which is
    why 0.5 here does not make a label wrong. None with too few items or too few silent windows.
    """
    items = contexts.filter(pc.not_equal(contexts["group"], REFERENCE))
    background = learn_background(items)
    columns = sp.csc_matrix(firing[:, list(texts)])
    rows = {item: row for row, item in enumerate(item_ids)}
    scores: dict[int, float | None] = {}
    for place, (concept, text) in enumerate(texts.items()):
        fires = set(columns.indices[columns.indptr[place] : columns.indptr[place + 1]].tolist())
        own = items.filter(pc.equal(items["concept"], concept))
        windows = _words(own)
        silent = [words for item, words in background.others if rows[item] not in fires]
        if len(set(own["item_id"].to_pylist())) < MIN_ITEMS or len(silent) < MIN_NEGATIVES:
            scores[concept] = None
            continue
        weights = {word: background.rarity(word) for word, _start, _end in find_words(text)}
        scores[concept] = area_under_roc([_held(weights, words) for words in windows], [_held(weights, words) for words in silent])
    return scores


def _words(contexts: pa.Table) -> list[frozenset[str]]:
    texts = pc.binary_join(contexts["tokens"], "").to_pylist()
    return [frozenset(word for word, _start, _end in find_words(text)) for text in texts]


def _held(weights: dict[str, float], words: frozenset[str]) -> float:
    return math.fsum(weight for word, weight in sorted(weights.items()) if word in words)
