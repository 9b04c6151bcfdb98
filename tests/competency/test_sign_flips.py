from __future__ import annotations

from math import comb

import numpy as np
import pytest
import scipy.sparse as sp

from gapscope.competency.sign_flips import flip_p


def exact(values: np.ndarray) -> float:
    """Share of all sign flips whose sum is at least as far from 0."""
    flips = 1 - 2 * (np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1)
    sums = flips @ np.abs(values)
    return float((np.abs(sums) >= abs(values.sum()) - 1e-9).mean())


def column(*values: float) -> sp.csr_matrix:
    return sp.csr_matrix(np.array(values)[:, None])


def test_equal_weights_are_the_exact_test_of_mcnemar():
    for gained, lost in ((9, 1), (12, 4), (30, 15), (3, 0), (8, 8)):
        n = gained + lost
        right = 2 * sum(comb(n, k) for k in range(max(gained, lost), n + 1)) / 2**n
        found = flip_p(column(*[0.5] * gained, *[-0.5] * lost))[0]
        assert found == pytest.approx(min(right, 1), rel=0.03)


def test_uneven_weights_against_every_flip():
    rng = np.random.default_rng(4)
    few = 0
    for _ in range(60):
        values = rng.gamma(0.7, size=16) * rng.choice([-1, 1, 1, 1], size=16)
        found, right = flip_p(column(*values))[0], exact(values)
        few += right < 0.1
        assert 0.75 <= found / right <= (2 if right < 1e-4 else 1.5)
    assert few > 10


def test_a_tail_is_never_surer_than_all_on_one_side():
    assert flip_p(column(1.0, 2.0, 4.0))[0] == pytest.approx(2 / 8)
    assert flip_p(column(1.0))[0] == 1.0
    assert flip_p(column(*[1.0] * 60))[0] == pytest.approx(2**-59)


def test_nothing_differs():
    assert flip_p(sp.csr_matrix((5, 3))).tolist() == [1.0, 1.0, 1.0]
    both = sp.csr_matrix(np.array([[0.0, 1.0], [0.0, 0.5], [0.0, 2.0]]))
    assert flip_p(both).tolist() == [1.0, pytest.approx(0.25)]


def test_sign_scale_and_row_order_do_not_matter():
    values = np.random.default_rng(1).normal(0.4, 1, (40, 6))
    p = flip_p(sp.csr_matrix(values))
    assert flip_p(sp.csr_matrix(-values)) == pytest.approx(p)
    assert flip_p(sp.csr_matrix(values[::-1] * 7e-6)) == pytest.approx(p)


def test_p_is_uniform_where_the_two_are_alike():
    rng = np.random.default_rng(7)
    values = rng.gamma(0.7, size=(60, 1)) * rng.choice([-1, 0, 0, 1], size=(60, 4000))
    p = flip_p(sp.csr_matrix(values))
    for level in (0.01, 0.05, 0.2, 0.5):
        assert (p <= level).mean() == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 4000))
