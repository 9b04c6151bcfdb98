from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import hypergeom

from gapscope.competency.permutation import draw_statistics, moments, null_of, permuted
from gapscope.competency.tails import gauss_quadrature, pearson_three


def every_permutation(values: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """All arrangements of the values inside their cells."""
    tables = [np.array(list(permutations(values[cells == cell]))) for cell in np.unique(cells)]
    joined = tables[0]
    for table in tables[1:]:
        joined = np.hstack([np.repeat(joined, len(table), axis=0), np.tile(table, (len(joined), 1))])
    return joined


def centred(values: np.ndarray, cells: np.ndarray) -> np.ndarray:
    return values - (np.bincount(cells, values) / np.bincount(cells))[cells]


@pytest.mark.parametrize("sizes", [(6,), (4, 4), (5, 2), (2, 3, 3), (1, 5)])
def test_moments_equal_those_of_all_permutations(sizes):
    rng = np.random.default_rng(sum(sizes))
    cells = np.repeat(np.arange(len(sizes)), sizes)
    weights = rng.gamma(0.7, size=(len(cells), 6)) * (rng.random((len(cells), 6)) < 0.6)
    weights[:, 0] = 1.0
    residuals = centred(rng.choice([0.0, 0.3, 1.0], len(cells)), cells)
    statistics = every_permutation(residuals, cells) @ weights
    variance, third = moments(sp.csr_matrix(weights), residuals, cells)
    assert statistics.mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-12)
    assert variance == pytest.approx((statistics**2).mean(axis=0), abs=1e-12)
    assert third == pytest.approx((statistics**3).mean(axis=0), abs=1e-12)
    assert variance[0] == 0


def test_draws_stay_in_their_cells_and_repeat():
    cells = np.repeat([0, 1, 2], [50, 30, 1])
    residuals = np.arange(81.0)
    table = permuted(residuals, cells, 20, np.random.default_rng(4))
    for cell in range(3):
        assert (np.sort(table[cells == cell], axis=0) == residuals[cells == cell][:, None]).all()
    assert (table[:, 0] != table[:, 1]).any()
    assert (table == permuted(residuals, cells, 20, np.random.default_rng(4))).all()


def made_null(n_units: int = 1200, rates: tuple[float, ...] = (0.3, 0.55, 0.8), n_concepts: int = 40):
    rng = np.random.default_rng(9)
    cells = np.sort(rng.integers(0, len(rates), n_units))
    firing = rng.random((n_units, n_concepts)) < np.exp(rng.uniform(np.log(0.012), np.log(0.15), n_concepts))
    weights = sp.csr_matrix(firing * rng.gamma(0.7, size=firing.shape))
    return null_of(weights, (rng.random(n_units) < np.array(rates)[cells]).astype(float), cells)


def drawn(null, n_draws: int, seed: int) -> np.ndarray:
    table = np.empty((null.weights.shape[1], n_draws), dtype=np.float32)
    for concepts, draws, values in draw_statistics(null, n_draws, seed):
        table[concepts, draws] = values
    return table


def test_draws_of_one_product_match_the_moments():
    null = made_null()
    table = drawn(null, 20_000, 1).astype(float)
    assert table.mean(axis=1) / np.sqrt(null.variance) == pytest.approx(np.zeros(40), abs=0.03)
    assert table.var(axis=1) / null.variance == pytest.approx(np.ones(40), abs=0.06)
    skewness = (table**3).mean(axis=1) / null.variance**1.5
    assert skewness == pytest.approx(null.third / null.variance**1.5, abs=0.12)


def test_p_matches_brute_draws():
    null = made_null()
    table = drawn(null, 40_000, 2)
    places = np.sort(np.abs(table), axis=1)[:, [-16_000, -4_000, -2_000, -400]]
    for place in places.T:
        for side in (-1.0, 1.0):
            at = side * place.astype(float)
            beyond = (table >= at[:, None] if side > 0 else table <= at[:, None]).mean(axis=1)
            other = (table <= at[:, None] if side > 0 else table >= at[:, None]).mean(axis=1)
            truth = np.minimum(1, 2 * np.minimum(beyond, other))
            p = null.p(at)
            seen = truth > 4e-3
            ratio = p[seen] / truth[seen]
            # Never much too small; too large only where few items leave the statistic few values.
            assert np.exp(np.log(ratio).mean()) == pytest.approx(1, abs=0.25)
            assert np.quantile(ratio, 0.05) > 0.7


@pytest.mark.parametrize("pool", ["even", "uneven"])
def test_the_smallest_p_are_not_too_small(pool):
    """One cell, right or wrong: the sum over ten equal items is hypergeometric, its tails known exactly."""
    n, right, held = 400, 240, 10
    scores = np.repeat([1.0, 0.0], [right, n - right])
    column = np.zeros((n, 1))
    column[:held] = 1.0 if pool == "even" else np.random.default_rng(0).gamma(2, size=(held, 1))
    null = null_of(sp.csr_matrix(column), scores, np.zeros(n, dtype=np.int64))
    all_wrong = -column.sum() * right / n
    exact = np.prod((n - right - np.arange(held)) / (n - np.arange(held)))
    p = null.p(np.array([all_wrong]))[0]
    assert 2 * exact <= p * (1 + 1e-9)
    assert p < 6 * exact


def test_even_weights_give_hypergeometric_tails():
    n, right, held = 300, 180, 24
    column = np.zeros((n, 1))
    column[:held] = 0.5
    null = null_of(sp.csr_matrix(column), np.repeat([1.0, 0.0], [right, n - right]), np.zeros(n, dtype=np.int64))
    law = hypergeom(n, right, held)
    for count in range(1, held + 1):
        exact = min(1, 2 * min(law.cdf(count), law.sf(count - 1)))
        p = null.p(np.array([0.5 * (count - held * right / n)]))[0]
        if exact < 0.2:
            assert exact < p < (1.2 if exact > 0.001 else 2) * exact


def test_small_cells_do_not_make_p_too_small():
    rng = np.random.default_rng(6)
    cells = np.repeat(np.arange(40), 5)
    weights = sp.csr_matrix((rng.random((200, 40)) < 0.25) * rng.gamma(2, size=(200, 40)))
    null = null_of(weights, (rng.random(200) < 0.6).astype(float), cells)
    table = drawn(null, 500, 7).astype(float)
    p = np.stack([null.p(table[:, draw]) for draw in range(500)])
    for level in (0.1, 0.05, 0.01, 0.001):
        assert (p <= level).mean() <= 1.1 * level
    assert (p <= 0.1).mean() > 0.08


def test_p_under_the_null_is_uniform_and_never_too_small_in_the_tail():
    null = made_null()
    table = drawn(null, 400, 5).astype(float)
    p = np.stack([null.p(table[:, draw]) for draw in range(400)])
    for level, slack in ((0.5, 1.05), (0.2, 1.08), (0.05, 1.15), (0.01, 1.3), (0.001, 2.0)):
        assert (p <= level).mean() <= level * slack
    assert (p <= 0.2).mean() >= 0.8 * 0.2


def test_the_short_side_of_a_skewed_statistic_has_a_tail():
    """One heavy item and 200 light ones, a tenth right: a gamma of that skewness ends at -0.84 standard deviations."""
    rng = np.random.default_rng(8)
    column = np.zeros((4000, 1))
    column[:201] = np.array([1.0] + [0.02] * 200)[:, None]
    null = null_of(sp.csr_matrix(column), np.repeat([1.0, 0.0], [400, 3600]), np.zeros(4000, dtype=np.int64))
    drawn_sums = (rng.random(200_000) < 0.1) + 0.02 * rng.binomial(200, 0.1, 200_000) - 0.5
    at = np.quantile(drawn_sums, 0.002)
    assert -1.3 < at / np.sqrt(null.variance[0]) < -0.84
    assert null.p(np.array([at]))[0] == pytest.approx(2 * (drawn_sums <= at).mean(), rel=0.35)


def test_equal_weights_in_a_cell_never_vary_whatever_rounding_does():
    rng = np.random.default_rng(11)
    cells = np.repeat(np.arange(6), 7)
    columns = np.repeat(rng.random((6, 25)) + 0.01, 7, axis=0)
    null = null_of(sp.csr_matrix(columns), rng.random(42), cells)
    assert (null.variance == 0).all()
    assert (null.p(null.statistic()) == 1).all()


def test_a_statistic_that_cannot_vary_has_p_one():
    column = np.array([[1.0], [1.0], [0.0], [0.0]])
    null = null_of(sp.csr_matrix(column), np.array([1.0, 1.0, 0.0, 1.0]), np.array([0, 0, 1, 1]))
    assert null.p(null.statistic()).tolist() == [1.0]


@pytest.mark.parametrize("skewness", [-1.2, -0.3, 0.0, 0.3, 1.2])
def test_pearson_three_has_the_tail_of_a_gamma(skewness):
    size = max(abs(skewness), 1e-4)
    rng = np.random.default_rng(0)
    sample = np.sign(skewness or 1) * (rng.gamma(4 / size**2, size=200_000) - 4 / size**2) * size / 2
    for z in (-1.2, -0.5, 0.4, 1.1):
        expected = 2 * min((sample <= z).mean(), (sample >= z).mean())
        assert pearson_three(np.array([z]), np.array([skewness]))[0] == pytest.approx(expected, abs=0.01)


def test_quadrature_keeps_seven_moments_and_is_exact_for_few_values():
    rng = np.random.default_rng(2)
    values = rng.normal(size=50)
    shares = np.full(50, 0.02)
    nodes, weights = gauss_quadrature(values, shares)
    for power in range(8):
        assert (weights * nodes**power).sum() == pytest.approx((shares * values**power).sum(), rel=1e-9)
    nodes, weights = gauss_quadrature(np.array([-0.4, 0.6]), np.array([0.6, 0.4]))
    assert (sorted(nodes[:2]), weights[2:].tolist()) == (pytest.approx([-0.4, 0.6]), [0, 0])
