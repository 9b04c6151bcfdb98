from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from gapscope.competency.activations import FiringCounts, Rows
from gapscope.competency.representation import LogRatio, coverage_status, design_effect, is_structural, log_ratio

ONE = np.ones(1)


def make_rows(n_items: int, tokens: int, benchmarks: int = 1) -> Rows:
    zeros = np.zeros(n_items, dtype=np.int64)
    slugs = [f"b{k}" for k in range(benchmarks)]
    return Rows([f"i{k}" for k in range(n_items)], slugs, np.arange(n_items) % benchmarks, zeros + tokens, zeros, zeros)


def test_estimate_is_at_equal_tokens_and_the_interval_is_the_binomials():
    ratio = log_ratio(np.array([4]), 50, FiringCounts(200, np.array([8])), ONE)
    assert ratio.estimate[0] == pytest.approx(np.log2(4.5 / 2.5))
    share = beta.ppf([0.025, 0.975], 4.5, 8.5)
    assert [2 ** ratio.low[0], 2 ** ratio.high[0]] == pytest.approx(200 / 50 * share / (1 - share))


def test_swapping_the_texts_changes_the_sign():
    forth = log_ratio(np.array([4]), 50, FiringCounts(200, np.array([8])), ONE)
    back = log_ratio(np.array([8]), 200, FiringCounts(50, np.array([4])), ONE)
    assert back.estimate == pytest.approx(-forth.estimate)
    assert back.low == pytest.approx(-forth.high)


def test_undefined_where_a_text_is_empty_or_nothing_fires():
    for n_tokens, reference in (
        (0, FiringCounts(9, np.array([1]))),
        (9, FiringCounts(0, np.array([0]))),
        (9, FiringCounts(9, np.array([0]))),
    ):
        ratio = log_ratio(np.array([0]), n_tokens, reference, ONE)
        assert np.isnan([ratio.estimate, ratio.low, ratio.high]).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 100_000), st.integers(1, 100_000), st.floats(0, 1), st.floats(0, 1), st.floats(1, 50))
def test_estimate_lies_in_its_finite_interval(n_here, n_there, share_here, share_there, effect):
    here, there = round(n_here * share_here), round(n_there * share_there)
    ratio = log_ratio(np.array([here]), n_here, FiringCounts(n_there, np.array([there])), np.array([effect]))
    if here or there:
        assert np.isfinite([ratio.low[0], ratio.high[0]]).all()
        assert ratio.low[0] <= ratio.estimate[0] <= ratio.high[0]


def test_design_effect_of_one_item_is_its_run_and_of_scattered_tokens_one():
    n_items = 2000
    firing = np.zeros((n_items, 3))
    firing[0, 0] = 6  # one run of six tokens: worth one
    firing[:6, 1] = 1  # six items, one token each: worth six
    effect = design_effect(sp.csr_matrix(firing), make_rows(n_items, 50))
    # By themselves 6, 1 and unknown; two more items at the median of the first two, 3.5, draw each there.
    assert effect == pytest.approx([(1 * 6 + 2 * 3.5) / 3, (6 * 1 + 2 * 3.5) / 8, 3.5], rel=0.01)


def test_design_effect_is_within_benchmarks():
    # The concept fires on every token of benchmark 0 and nowhere else: within each there is no spread at all.
    firing = np.zeros((40, 1))
    firing[::2] = 10
    assert design_effect(sp.csr_matrix(firing), make_rows(40, 10, benchmarks=2)) == [1]


@pytest.mark.parametrize(
    ("item_rate", "run", "n_items"), [(0.02, 4, 150), (0.1, 4, 150), (0.005, 4, 1500), (0.05, 8, 1500), (0.3, 3, 1500)]
)
def test_interval_holds_the_truth_for_concepts_that_fire_in_runs(item_rate, run, n_items):
    generator = np.random.default_rng(7)
    concepts, tokens, documents = 1500, 40, 1500

    def draw(texts: int) -> np.ndarray:
        carries = generator.random((texts, concepts)) < item_rate
        return np.minimum(np.where(carries, 1 + generator.poisson(run - 1, carries.shape), 0), tokens)

    firing, reference = draw(n_items), FiringCounts(documents * tokens, draw(documents).sum(axis=0))
    effect = design_effect(sp.csr_matrix(firing.astype(float)), make_rows(n_items, tokens))

    def covered(effect: np.ndarray) -> float:
        ratio = log_ratio(firing.sum(axis=0), n_items * tokens, reference, effect)
        defined = ~np.isnan(ratio.estimate)
        return float(((ratio.low <= 0) & (ratio.high >= 0))[defined].mean())

    assert 0.92 <= covered(effect) <= 0.975
    assert covered(np.ones(concepts)) < 0.8  # what tokens taken as independent would claim


def test_status_by_evidence():
    reference = FiringCounts(10_000, np.array([0, 200, 1, 400, 100, 10, 0, 100]))
    fired = np.array([0, 0, 0, 40, 105, 200, 3, 160])
    ratio = log_ratio(fired, 10_000, reference, np.ones(8))
    # 3 against none could be chance; 160 against 100 could not, but is less than twofold.
    assert coverage_status(fired, reference, ratio, 1.0) == ["dead", "unexercised", None, "under", "typical", "over", "typical", "typical"]
    assert coverage_status(fired, reference, ratio, 0.5)[-1] == "over"


def test_a_short_benchmark_is_not_blamed_for_being_short():
    # 20 in 100,000 tokens of the corpus: 200 tokens without one say nothing, 100,000 do.
    reference = FiringCounts(100_000, np.array([20]))
    fired = np.array([0])
    for n_tokens, status in ((200, None), (100_000, "unexercised")):
        assert coverage_status(fired, reference, log_ratio(fired, n_tokens, reference, ONE), 1.0) == [status]


def test_status_without_a_reference_text_is_null():
    nan = np.full(1, np.nan)
    assert coverage_status(np.array([3]), FiringCounts(0, np.array([0])), LogRatio(nan, nan, nan), 1.0) == [None]


def test_structural_concepts_fire_as_often_without_content():
    template = FiringCounts(5, np.array([2, 2, 0, 1]))
    assert is_structural(template, np.array([20, 21, 0, 0]), 10).tolist() == [True, False, False, True]
