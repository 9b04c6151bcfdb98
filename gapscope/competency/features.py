"""Control feature sets: what else could take the concepts' place, down to things that know nothing of meaning.

- ``random``: the random dictionary that extract-activations applied to the same activations, as wide and as sparse.
- ``words``: bag of words, TF-IDF (term frequency over the item's words, times log of items over items with the word).
- ``sentences``: clusters of sentence embeddings, one feature a cluster, by k-means; about forty items each.
- ``metadata``: benchmark, kind, length (deciles), number of choices, and every meta value that at least two items share.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray, Rows, read_matrix
from gapscope.competency.study import Features
from gapscope.competency.words import find_words
from gapscope.items import Item

ITEMS_A_CLUSTER = 40
LENGTH_BINS = 10
MOST_VALUES = 200
"""A meta key with more values than this says which item it is, not what kind."""


def item_words(items: list[Item]) -> list[list[str]]:
    """The words of each item's text."""
    return [[word for word, _start, _end in find_words(item.text)] for item in items]


def bag_of_words(words: list[list[str]], most: int) -> Features:
    """TF-IDF of the ``most`` words that are in most items, at least in two; the alphabet decides between equals."""
    held_by = Counter(word for one in words for word in set(one))
    ranked = sorted((-count, word) for word, count in held_by.items() if count > 1)[:most]
    place = {word: column for column, (_count, word) in enumerate(ranked)}
    rarity = [math.log(len(words) / held_by[word]) for word in place]
    cells = [
        (row, place[word], count / len(one) * rarity[place[word]])
        for row, one in enumerate(words)
        for word, count in sorted(Counter(one).items())
        if word in place
    ]
    return Features.of("words", _matrix(cells, (len(words), len(place))))


def embedding_clusters(vectors: FloatArray, seed: int) -> Features:
    """One feature a k-means cluster of sentence embeddings (I x D); clusters by size, then by first member."""
    from sklearn.cluster import KMeans

    n_clusters = max(2, len(vectors) // ITEMS_A_CLUSTER)
    found = KMeans(n_clusters, n_init=4, random_state=seed % 2**32).fit_predict(vectors)
    return Features.of("sentences", _one_hot([str(code) for code in _canonical(found)]))


def metadata(items: list[Item], n_tokens: IntArray) -> Features:
    """One feature a value of everything that is known of an item without reading it."""
    edges = np.quantile(n_tokens, np.arange(1, LENGTH_BINS) / LENGTH_BINS)
    length = np.searchsorted(np.unique(edges), n_tokens, side="left")
    keys: dict[str, list[str]] = {
        "benchmark": [item.benchmark for item in items],
        "kind": [item.kind for item in items],
        "length": [str(code) for code in length],
        "choices": [str(len(item.choices)) for item in items],
    }
    for key in sorted({key for item in items for key in item.meta}):
        values = [item.meta.get(key) for item in items]
        if len({str(value) for value in values}) <= MOST_VALUES:
            keys[f"meta {key}"] = [str(value) for value in values]
    parts = [_one_hot(values) for values in keys.values()]
    joined = sp.csr_matrix(sp.hstack([part[:, np.asarray(part.sum(axis=0)).ravel() > 1] for part in parts]))
    joined.sort_indices()
    return Features.of("metadata", joined)


def random_dictionary(activations: Path, rows: Rows, width: int) -> Features | None:
    """The random dictionary's saliency; None where extract-activations was told to apply none.

    Raises:
        InputError: damaged, or of another run.
    """
    if not (activations / "control_random.npz").exists():
        return None
    return Features.of("random", read_matrix(activations, "control_random", rows, width))


def _one_hot(values: list[str]) -> sp.csr_matrix:
    names, codes = np.unique(np.array(values, dtype=object), return_inverse=True)
    ones = np.ones(len(values))
    return sp.csr_matrix((ones, (np.arange(len(values)), codes.ravel())), shape=(len(values), len(names)))


def _canonical(found: np.ndarray) -> IntArray:
    """Cluster numbers by size, the larger first, then by the first member."""
    names, first, sizes = np.unique(found, return_index=True, return_counts=True)
    order = sorted(range(len(names)), key=lambda place: (-sizes[place], first[place]))
    number = {int(names[place]): rank for rank, place in enumerate(order)}
    return np.array([number[int(one)] for one in found], dtype=np.int64)


def _matrix(cells: list[tuple[int, int, float]], shape: tuple[int, int]) -> sp.csr_matrix:
    rows, columns, values = zip(*cells, strict=True) if cells else ((), (), ())
    matrix = sp.csr_matrix((np.array(values, dtype=np.float64), (rows, columns)), shape=shape)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix
