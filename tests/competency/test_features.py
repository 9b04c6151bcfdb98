"""Control feature sets and labels made from items."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from gapscope.competency.features import bag_of_words, embedding_clusters, item_words, metadata, random_dictionary
from gapscope.competency.item_labels import ItemWords, detection_scores
from gapscope.items import Item


def item(place: int, text: str, **meta: object) -> Item:
    return Item(f"i{place}", "b", f"i{place}", text, ("a", "b", "c")[: 2 + place % 2], 0, meta=dict(meta))


def test_bag_of_words_by_hand():
    words = item_words([item(0, "The cat, the dog"), item(1, "the cat"), item(2, "The bird")])
    found = bag_of_words(words, 10)
    # In two items and more: "the" (3 of 3, so no weight at all) and "cat" (2 of 3).
    assert found.matrix.shape == (3, 2)
    cat = math.log(3 / 2)
    assert found.matrix.toarray() == pytest.approx(np.array([[0, cat / 5], [0, cat / 2], [0, 0]]))
    assert bag_of_words(words, 1).matrix.shape == (3, 1)
    assert bag_of_words([["one"], ["two"]], 5).matrix.shape == (2, 0)


def test_metadata_is_one_feature_a_shared_value():
    items = [item(k, "x", subject="law" if k < 4 else "art", number=k, none=None) for k in range(8)]
    found = metadata(items, np.arange(8))
    # benchmark 1, kind 1, choices 2, subject 2, none 1; a number that no two items share is no feature, and so of eight lengths.
    assert found.matrix.shape == (8, 7)
    assert set(found.matrix.data) == {1.0}
    assert (np.asarray(found.matrix.sum(axis=0)) >= 2).all()


def test_clusters_are_those_of_the_vectors_whatever_their_order():
    rng = np.random.default_rng(0)
    vectors = np.concatenate([centre + 0.01 * rng.normal(size=(size, 4)) for centre, size in ((np.eye(4)[0], 50), (np.eye(4)[1], 35))])
    found = embedding_clusters(vectors, 3)
    assert np.asarray(found.matrix.sum(axis=0)).ravel().tolist() == [50, 35]
    order = rng.permutation(85)
    assert np.array_equal(embedding_clusters(vectors[order], 3).matrix.toarray(), found.matrix.toarray()[order])


def test_no_random_dictionary_is_none(tmp_path):
    assert random_dictionary(tmp_path, None, 3) is None  # type: ignore[arg-type]


def test_a_feature_that_is_a_word_has_a_perfect_label_and_noise_has_none():
    rng = np.random.default_rng(1)
    n_items = 400
    has = rng.random(n_items) < 0.2
    filler = [" ".join(f"w{number}" for number in rng.integers(0, 30, 12)) for _ in range(n_items)]
    items = [item(k, filler[k] + (" magnet" if has[k] else "")) for k in range(n_items)]
    noise = np.where(rng.random((n_items, 40)) < 0.2, rng.random((n_items, 40)), 0)
    rare = np.zeros((n_items, 1))
    rare[:3] = 1
    matrix = sp.csr_matrix(np.hstack([has[:, None] * rng.uniform(0.5, 1, (n_items, 1)), noise, rare]))
    words = ItemWords.of(item_words(items), [one.id for one in items])
    scores = detection_scores(matrix, np.arange(42), words)
    assert scores[0] > 0.98
    assert 0.4 < np.nanmean(scores[1:41]) < 0.62
    assert np.isnan(scores[41])
    order = rng.permutation(n_items)
    moved = ItemWords.of(item_words([items[k] for k in order]), [items[k].id for k in order])
    assert detection_scores(matrix[order], np.array([0]), moved)[0] == pytest.approx(scores[0], abs=0.01)
