from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import ndtr

from gapscope.competency.findings import collapse, null_correlation
from gapscope.competency.inference import calibrate
from gapscope.competency.permutation import draw_statistics, null_of

ALPHA = 0.05
CELLS = np.repeat([0, 1], [120, 80])


def made_null(columns: np.ndarray):
    scores = (np.random.default_rng(0).random(200) < np.array([0.4, 0.7])[CELLS]).astype(float)
    return null_of(sp.csr_matrix(columns), scores, CELLS)


def two_groups() -> np.ndarray:
    """Concepts 0, 1, 2 fire on nearly the same items, 3 and 4 on others, 5 on its own."""
    rng = np.random.default_rng(1)
    columns = np.zeros((200, 6))
    for column, items in (
        (0, range(40)),
        (1, range(38)),
        (2, range(2, 42)),
        (3, range(100, 150)),
        (4, range(104, 150)),
        (5, range(160, 190)),
    ):
        columns[list(items), column] = rng.gamma(6, size=len(items))
    return columns


def test_correlation_is_that_of_drawn_statistics():
    null = made_null(two_groups())
    ((_, _, table),) = draw_statistics(null, 8000, 3, block=8000)
    assert null_correlation(null, np.arange(6)) == pytest.approx(np.corrcoef(table), abs=0.05)


def test_concepts_of_the_same_items_are_one_finding_led_by_the_surest():
    null = made_null(two_groups())
    p = np.array([3e-9, 1e-10, 2e-9, 4e-9, 1e-9, 5e-9])
    assert collapse(null, np.arange(6), p, ALPHA).tolist() == [1, 1, 1, 4, 4, 5]
    # The first of equals leads.
    assert collapse(null, np.arange(6), np.full(6, 1e-10), ALPHA).tolist() == [0, 0, 0, 3, 3, 5]
    assert collapse(null, np.array([2, 5]), np.array([1e-9, 1e-9]), ALPHA).tolist() == [2, 5]
    assert collapse(null, np.empty(0, dtype=np.int64), np.empty(0), ALPHA).tolist() == []


def test_no_chain_forms():
    """1 is close to 0 and 2 to 1, but 2 is not to 0: it is not taken in through 1."""
    columns = np.zeros((200, 3))
    columns[0:40, 0], columns[8:48, 1], columns[16:56, 2] = 1, 1, 1
    null = made_null(columns)
    assert (null_correlation(null, np.arange(3)) >= 0.5).tolist() == [[True, True, False], [True, True, True], [False, True, True]]
    assert collapse(null, np.arange(3), np.array([1e-12, 1e-11, 1e-10]), ALPHA).tolist() == [0, 0, 2]


def test_what_the_leaders_explain_is_no_finding_of_its_own():
    """Concept 2 fires on half of the items of 0 and half of those of 1, and stands out just as far as that makes it."""
    columns = np.zeros((200, 3))
    columns[0:30, 0], columns[50:80, 1], columns[15:30, 2], columns[65:80, 2] = 1, 1, 1, 1
    null = made_null(columns)
    correlation = null_correlation(null, np.arange(3))
    z = np.array([6.0, 5.8])
    explained = correlation[2, :2] @ np.linalg.solve(correlation[:2, :2], z)
    p = 2 * ndtr(-np.array([*z, explained]))
    assert correlation[2, :2].max() < 0.9
    assert collapse(null, np.arange(3), p, ALPHA, same=0.9).tolist() == [0, 1, np.argmax(correlation[2, :2])]
    beyond = explained + 3.5 * np.sqrt(1 - correlation[2, :2] @ np.linalg.solve(correlation[:2, :2], correlation[2, :2]))
    p[2] = 2 * ndtr(-beyond)
    assert len(set(collapse(null, np.arange(3), p, ALPHA, same=0.9).tolist())) == 3


def test_many_directions_of_a_small_space_are_few_findings():
    """150 random mixtures of 6 features, of which one decides the score: pairs correlate little, the findings are few."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(3000, 6))
    saliency = np.maximum(features @ rng.normal(size=(6, 150)), 0)
    scores = (rng.random(3000) < 1 / (1 + np.exp(-features[:, 0]))).astype(float)
    codes = np.zeros(3000, dtype=np.int64)
    found = calibrate(
        sp.csr_matrix(saliency.astype(np.float32)), scores, np.zeros(3000), codes, codes, np.arange(3000), min_n_eff=10.0, alpha=ALPHA
    )
    assert (found.status[-1] == 0).sum() > 40
    assert 1 <= found.findings()[-1] <= 6


def test_dense_concepts_are_compared_beyond_what_all_items_share():
    """Two concepts on every item have a cosine near 1, but their statistics depend on where each is above its mean."""
    rng = np.random.default_rng(2)
    columns = 5 + rng.random((200, 2))
    assert np.dot(*columns.T) / np.linalg.norm(columns[:, 0]) / np.linalg.norm(columns[:, 1]) > 0.95
    assert abs(null_correlation(made_null(columns), np.arange(2))[0, 1]) < 0.3


def test_duplicated_gap_concepts_count_once():
    rng = np.random.default_rng(3)
    n_items = 1500
    firing = rng.random((n_items, 30)) < 0.08
    scores = (rng.random(n_items) < np.where(firing[:, :2].any(axis=1), 0.2, 0.7)).astype(float)
    saliency = firing * rng.gamma(2, size=firing.shape)
    copies = [saliency[:, [0]] * rng.uniform(0.8, 1.2, (n_items, 1)) for _ in range(6)]
    codes = np.zeros(n_items, dtype=np.int64)
    found = calibrate(
        sp.csr_matrix(np.hstack([saliency, *copies]).astype(np.float32)),
        scores,
        np.zeros(n_items),
        codes,
        codes,
        np.arange(n_items),
        min_n_eff=10.0,
        alpha=0.05,
    )
    gaps = np.flatnonzero(found.status[-1] == 0)
    assert set(gaps.tolist()) == {0, 1, *range(30, 36)}
    assert found.findings()[-1] == 2
    leads = found.finding[-1]
    assert leads[1] == 1
    assert len(set(leads[[0, *range(30, 36)]].tolist())) == 1
