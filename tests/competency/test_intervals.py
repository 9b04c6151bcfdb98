from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from made_suites import sparse_saliency

from gapscope.competency.intervals import beta_interval, dispersion, linked_benchmarks, mover_interval, reference
from gapscope.errors import InputError

RATES = np.linspace(0.05, 0.95, 10)


def weights(rng: np.random.Generator, kind: str, support: float, runs: int) -> np.ndarray:
    """Uneven weights (runs x items) worth about `support` equally weighted items."""
    draw = {
        "gamma": lambda size: rng.gamma(0.7, size=size),
        "lognormal": lambda size: rng.lognormal(0, 1.2, size=size),
        "even": lambda size: rng.gamma(4, size=size),
    }[kind]
    n = int(support)
    while np.median(effective(draw((200, n)))) < support:
        n = int(n * 1.1) + 1
    return draw((runs, n))


def effective(saliency: np.ndarray) -> np.ndarray:
    return saliency.sum(axis=1) ** 2 / (saliency**2).sum(axis=1)


def graded(rng: np.random.Generator, rate: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.beta(2 * rate, 2 * (1 - rate), shape)


def families_of_four(rng: np.random.Generator, rate: float, shape: tuple[int, ...]) -> np.ndarray:
    """Mean scores of families whose four items share how hard they are."""
    return rng.binomial(4, rng.beta(2 * rate, 2 * (1 - rate), shape)) / 4


def right_or_wrong(rng: np.random.Generator, rate: float, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.random(shape) < rate).astype(float)


@pytest.mark.parametrize(("score", "worth"), [(right_or_wrong, 1.0), (graded, 3.0), (families_of_four, 2.0)])
@pytest.mark.parametrize("kind", ["gamma", "lognormal", "even"])
@pytest.mark.parametrize("support", [5, 10, 20, 50])
def test_intervals_cover(score, worth, kind, support):
    rng = np.random.default_rng([support, len(kind), int(worth)])
    covered = []
    for rate in RATES:
        saliency = weights(rng, kind, support, 2000)
        values = score(rng, rate, saliency.shape)
        mean = (saliency * values).sum(axis=1) / saliency.sum(axis=1)
        low, high = beta_interval(mean, effective(saliency) * worth)
        covered.append(((low <= rate) & (rate <= high)).mean())
    assert 0.93 <= np.mean(covered) <= 0.97
    assert min(covered) >= 0.92


def test_reference_interval_covers_by_concept_and_suite():
    rng = np.random.default_rng(3)
    n_items, n_concepts = 900, 150
    firing = rng.random((n_items, n_concepts)) < np.exp(rng.uniform(np.log(0.02), np.log(0.1), n_concepts))
    benchmarks, hits, kept = rng.integers(0, 3, n_items), [], []
    rates = np.array([0.2, 0.5, 0.85])
    for _ in range(40):
        found = reference(
            sparse_saliency(rng, firing),
            right_or_wrong(rng, 0, (n_items,)) + (rng.random(n_items) < rates[benchmarks]),
            benchmarks,
            np.arange(n_items),
        )
        truth = np.append(rates, rates.mean())[:, None]
        hits.append((found.low <= truth) & (truth <= found.high))
        kept.append(found.n_eff >= 4)
    share = [np.mean(np.array(hits)[:, row][np.array(kept)[:, row]]) for row in range(4)]
    assert all(0.93 <= value <= 0.98 for value in share)


def test_a_binary_interval_by_hand():
    low, high = beta_interval(np.array([0.0, 0.5, 1.0, np.nan]), np.array([2.0, 1.0, 2.0, 0.0]))
    # Beta(1, 1) is uniform, and the quantile of Beta(1/2, n + 1/2) has no lower end above 0.
    assert (low[1], high[1]) == (pytest.approx(0.025), pytest.approx(0.975))
    assert (low[0], high[2]) == (0.0, 1.0)
    assert np.isnan([low[3], high[3]]).all()


def test_reference_by_hand():
    saliency = sp.csr_matrix(np.array([[1, 0, 0], [3, 0, 2], [0, 1, 0], [2, 2, 0], [9, 9, 0]], dtype=np.float32))
    scores = np.array([1, 0, 1, 0.5, np.nan])
    found = reference(saliency, scores, np.array([0, 0, 0, 1, 1]), np.arange(5))
    assert found.chi_model[:, 0].tolist() == [0.25, 0.5, 0.375]
    assert found.n[:, 0].tolist() == [2, 1, 3]
    assert found.n_eff[:, 0].tolist() == pytest.approx([1.6, 1, 2.6])
    assert found.chi_model[2, 1] == 0.75
    assert np.isnan(found.chi_model[1, 2])
    assert (found.n[1, 2], found.n_eff[1, 2]) == (0, 0)
    assert np.isnan([found.low[1, 2], found.high[1, 2]]).all()
    assert found.chi_model[2, 2] == 0.0


def test_graded_scores_are_worth_more_trials():
    rng = np.random.default_rng(2)
    saliency, scores = sparse_saliency(rng, rng.random((300, 10)) < 0.2), graded(rng, 0.6, (300,))
    found = reference(saliency, scores, np.zeros(300, dtype=np.int64), np.arange(300))
    low, high = beta_interval(found.chi_model[0], found.n_eff[0] * scores.mean() * (1 - scores.mean()) / scores.var())
    assert found.low[0] == pytest.approx(low)
    assert found.high[0] == pytest.approx(high)


def test_families_widen_the_interval():
    rng = np.random.default_rng(1)
    saliency = sparse_saliency(rng, rng.random((400, 20)) < 0.9)
    family = np.arange(400) // 4
    scores = right_or_wrong(rng, 0.5, (100,))[family]
    apart = reference(saliency, scores, np.zeros(400, dtype=np.int64), np.arange(400))
    together = reference(saliency, scores, np.zeros(400, dtype=np.int64), family)
    assert (together.chi_model == apart.chi_model).all()
    assert ((together.high - together.low) > 1.15 * (apart.high - apart.low)).all()


def test_dispersion():
    worth = np.array([1.0, 5.0, 1e9])
    assert dispersion(np.array([1.0, 0, 0, 1, 0]), np.arange(5), worth) == pytest.approx([1, 1, 1])
    # Families (1, 0) and (1, 1): means 0.5 and 1, variance 1/16 over 3/4 * 1/4; half a 0 and half a 1 make 5/16 over 2 or 6.
    pair = dispersion(np.array([1.0, 0, 1, 1]), np.array([0, 0, 1, 1]), worth)
    assert pair == pytest.approx([5 / 16 / 2 / (3 / 16), 1 / 3, 1 / 3])
    assert (dispersion(np.ones(3), np.arange(3), worth) == 1).all()


def whole(scores, families=None):
    """Mean and interval of a concept that is equally active on every item."""
    found = reference(sp.csr_matrix(np.ones((len(scores), 1))), scores, np.zeros(len(scores), dtype=np.int64), families)
    return found.chi_model[0, 0], found.low[0, 0], found.high[0, 0]


@pytest.mark.parametrize("value", [0.1, 0.3, 0.5, 0.7, 1 / 3])
def test_scores_that_are_all_alike_leave_room_for_what_was_not_seen(value):
    for families in (np.arange(60), np.r_[np.zeros(3, dtype=np.int64), np.arange(1, 58)]):
        mean, low, high = whole(np.full(60, value), families)
        assert mean == pytest.approx(value)
        # As if one in 60 were a 0 or a 1, to within a factor of two.
        assert 0.5 / 60 < value - low < 2 / 60
        assert 0.5 / 60 < high - value < 2 / 60


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_of_right_and_wrong_scores_nothing_goes_unseen(value):
    _, low, high = whole(np.full(50, value), np.arange(50))
    assert (low, high) == beta_interval(np.array([value]), np.array([50.0]))


@pytest.mark.parametrize(("value", "other"), [(0.5, 0.51), (0.0, 0.01), (1.0, 0.99)])
def test_one_score_that_differs_a_little_changes_an_interval_a_little(value, other):
    alike = whole(np.full(20, value), np.arange(20))
    differing = whole(np.r_[np.full(19, value), other], np.arange(20))
    assert differing == pytest.approx(alike, abs=0.01)


def test_graded_scores_with_rare_extremes_are_covered():
    rng, inside = np.random.default_rng(3), []
    for _ in range(600):
        scores = rng.choice([0.5, 0.52, 1.0], 50, p=[0.9, 0.09, 0.01])
        _, low, high = whole(scores, np.arange(50))
        inside.append(low <= 0.5 * 0.9 + 0.52 * 0.09 + 0.01 <= high)
    assert np.mean(inside) > 0.93


def test_mover_adds_distances_in_quadrature_between_groups_and_straight_inside():
    mean, low, high = np.array([[0.5], [0.3], [np.nan]]), np.array([[0.2], [0.26], [np.nan]]), np.array([[0.6], [0.4], [np.nan]])
    apart = mover_interval(mean, low, high, np.array([0, 1, 2]))
    assert (apart[0][0], apart[1][0]) == (pytest.approx(0.4 - np.hypot(0.3, 0.04) / 2), pytest.approx(0.4 + np.hypot(0.1, 0.1) / 2))
    linked = mover_interval(mean, low, high, np.array([0, 0, 0]))
    assert (linked[0][0], linked[1][0]) == (pytest.approx(0.4 - 0.34 / 2), pytest.approx(0.4 + 0.2 / 2))
    assert np.isnan(mover_interval(mean[2:], low[2:], high[2:], np.array([0]))[0]).all()


def test_benchmarks_that_share_a_family_are_linked():
    groups = linked_benchmarks(np.array([0, 1, 1, 2, 3]), np.array([7, 7, 8, 9, 8]))
    assert groups[0] == groups[1] == groups[3] != groups[2]


@pytest.mark.parametrize(("value", "scores"), [(-1.0, [1.0, 0.0]), (np.nan, [1.0, 0.0]), (1.0, [1.5, 0.0]), (1.0, [1.0])])
def test_bad_input_is_refused(value, scores):
    saliency = sp.csr_matrix(np.array([[value], [1.0]], dtype=np.float32))
    with pytest.raises(InputError):
        reference(saliency, np.array(scores), np.zeros(2, dtype=np.int64), np.arange(2))
