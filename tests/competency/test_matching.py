from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gapscope.competency.matching import (
    Matches,
    match_by_direction,
    match_by_saliency,
    permute_items,
    rank_agreement,
    spearman,
)
from tests.competency.made_activations import random_saliency


def test_a_shuffled_copy_is_found_again_and_rare_concepts_are_left_out():
    saliency = random_saliency(1, 200, 30)
    saliency[:, 7] = 0
    saliency[:3, 7] = 1
    order = np.random.default_rng(2).permutation(30)
    found = match_by_saliency(sp.csr_matrix(saliency), sp.csr_matrix(saliency[:, order] * 2))
    expected = np.argsort(order)
    expected[7] = -1
    assert found.partner.tolist() == expected.tolist()
    assert found.likeness[np.arange(30) != 7] == pytest.approx(np.ones(29), abs=2e-5)
    assert np.isnan(found.likeness[7])
    assert found.mutual.tolist() == (np.arange(30) != 7).tolist()
    assert found.n_compared == 29


def test_correlation_is_pearsons():
    saliency = random_saliency(3, 60, 6, share=0.5)
    found = match_by_saliency(sp.csr_matrix(saliency[:, :2]), sp.csr_matrix(saliency[:, 2:]))
    table = np.corrcoef(saliency.T.astype(float))[:2, 2:]
    assert found.partner.tolist() == table.argmax(axis=1).tolist()
    assert found.likeness == pytest.approx(table.max(axis=1), abs=1e-5)


def test_only_the_better_of_two_claims_is_mutual():
    directions = np.array([[1.0, 0.0], [3.0, 1.0], [0.0, 0.0]])
    found = match_by_direction(directions, np.array([[2.0, 0.0], [-1.0, 0.0]]))
    assert found.partner.tolist() == [0, 0, -1]
    assert found.likeness[:2] == pytest.approx([1.0, 3 / np.sqrt(10)], abs=1e-5)
    assert found.mutual.tolist() == [True, False, False]


def test_blocks_do_not_matter():
    saliency = random_saliency(5, 50, 1200, share=0.5)
    whole = match_by_saliency(sp.csr_matrix(saliency), sp.csr_matrix(saliency[:, ::-1]))
    assert whole.partner.tolist() == list(range(1199, -1, -1))
    assert whole.mutual.all()


def test_nothing_to_match():
    empty = sp.csr_matrix((20, 3))
    found = match_by_saliency(empty, sp.csr_matrix(random_saliency(1, 20, 4)))
    assert (found.partner.tolist(), found.n_compared) == ([-1, -1, -1], 0)
    found = match_by_saliency(sp.csr_matrix(random_saliency(1, 20, 4, share=1)), empty)
    assert found.partner.tolist() == [-1] * 4


def test_other_items_and_other_widths_are_refused():
    with pytest.raises(ValueError, match="20 items in the first matrix, 21"):
        match_by_saliency(sp.csr_matrix((20, 3)), sp.csr_matrix((21, 3)))
    with pytest.raises(ValueError, match="width 3 and 4"):
        match_by_direction(np.ones((2, 3)), np.ones((2, 4)))


def test_spearman_by_hand():
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([10.0, 30, 20, 40])) == pytest.approx(0.8)
    # Ties share their mean rank: ranks 1.5, 1.5, 3 against 1, 2, 3.
    assert spearman(np.array([5.0, 5, 7]), np.array([1.0, 2, 3])) == pytest.approx(1.5 / np.sqrt(1.5 * 2))
    assert spearman(np.array([1.0, 2]), np.array([1.0, 2])) is None
    assert spearman(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])) is None


def test_agreement_follows_partners_and_leaves_out_what_is_undefined():
    matches = Matches(np.array([2, 1, 0, -1, 3]), np.ones(5), np.array([True, True, True, False, False]))
    first, second = np.array([1.0, 2, 3, 4, np.nan]), np.array([30.0, 20, 10, 5])
    agreement = rank_agreement(first, second, matches)
    assert (agreement.n, agreement.rank_correlation) == (3, 1.0)
    assert rank_agreement(first, second, matches, np.array([True, True, False, True, True])).n == 2


def test_permuted_items_stay_in_their_benchmark_and_match_worse():
    saliency = sp.csr_matrix(random_saliency(1, 300, 20))
    codes = np.repeat([0, 1], 150)
    null = permute_items(saliency, codes, 3)
    assert (null != permute_items(saliency, codes, 3)).nnz == 0
    for half in (slice(0, 150), slice(150, 300)):
        assert sorted(map(tuple, null[half].toarray())) == sorted(map(tuple, saliency[half].toarray()))
    assert np.nanmedian(match_by_saliency(saliency, null).likeness) < 0.3
