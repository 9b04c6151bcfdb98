from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from made_suites import sparse_saliency

from gapscope.competency.intervals import beta_interval, constant_interval, dispersion, linked_benchmarks, mover_interval, reference
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
    assert dispersion(np.array([1.0, 0, 0, 1, 0]), np.arange(5)) == pytest.approx(1)
    # Families (1, 0) and (1, 1): means 0.5 and 1, variance 1/16 over 3/4 * 1/4.
    assert dispersion(np.array([1.0, 0, 1, 1]), np.array([0, 0, 1, 1])) == pytest.approx(1 / 3)
    assert dispersion(np.ones(3), np.arange(3)) == 1


def test_scores_that_are_all_alike_leave_room_for_what_was_not_seen():
    mean, trials = np.array([0.0, 0.5, 1.0, 0.2, np.nan]), np.array([100.0, 100.0, 100.0, 3.0, 0.0])
    low, high = constant_interval(mean, trials)
    plain = beta_interval(mean, trials)
    # Of 0 and 1 it is the plain one; of 0.5 half as wide as the whole share that may differ, which is about 2.5 in 100.
    assert (low[[0, 2]], high[[0, 2]]) == (pytest.approx(plain[0][[0, 2]]), pytest.approx(plain[1][[0, 2]]))
    assert (low[1], high[1]) == (pytest.approx(0.5 - high[0] / 2), pytest.approx(0.5 + high[0] / 2))
    assert 0.02 < high[0] < 0.03
    assert 0 < low[3] < 0.2 < high[3] < 1
    assert np.isnan([low[4], high[4]]).all()


def test_only_alike_scores_between_0_and_1_are_without_spread():
    saliency, codes, families = sp.csr_matrix(np.ones((50, 1))), np.zeros(50, dtype=np.int64), np.arange(50)
    half = reference(saliency, np.full(50, 0.5), codes, families)
    assert (half.low[0, 0], half.high[0, 0]) == constant_interval(np.array([0.5]), np.array([50.0]))
    for value in (0.0, 1.0):
        found = reference(saliency, np.full(50, value), codes, families)
        assert (found.low[0, 0], found.high[0, 0]) == beta_interval(np.array([value]), np.array([50.0]))


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
