from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from gapscope.competency.activations import FiringCounts, Rows
from gapscope.competency.representation import LogRatio, coverage_status, design_effect, is_structural, log_ratio, reference_effect

ONE = np.ones(1)


def counts(n_tokens: int, *n_firing: int) -> FiringCounts:
    """Counts on many texts, every firing token in one of its own."""
    fired = np.array(n_firing)
    return FiringCounts(1000, n_tokens, fired, fired)


def make_rows(n_items: int, tokens: int, benchmarks: int = 1) -> Rows:
    zeros = np.zeros(n_items, dtype=np.int64)
    slugs = [f"b{k}" for k in range(benchmarks)]
    return Rows([f"i{k}" for k in range(n_items)], slugs, np.arange(n_items) % benchmarks, zeros + tokens, zeros, zeros)


def test_estimate_is_at_equal_tokens_and_the_interval_is_the_binomials():
    ratio = log_ratio(np.array([4]), 50, counts(200, 8), ONE, ONE)
    assert ratio.estimate[0] == pytest.approx(np.log2(4.5 / 2.5))
    share = beta.ppf([0.025, 0.975], 4.5, 8.5)
    assert [2 ** ratio.low[0], 2 ** ratio.high[0]] == pytest.approx(200 / 50 * share / (1 - share))


def test_swapping_the_texts_changes_the_sign():
    forth = log_ratio(np.array([4]), 50, counts(200, 8), ONE, ONE)
    back = log_ratio(np.array([8]), 200, counts(50, 4), ONE, ONE)
    assert back.estimate == pytest.approx(-forth.estimate)
    assert back.low == pytest.approx(-forth.high)


def test_undefined_where_a_text_is_empty_or_nothing_fires():
    for n_tokens, reference in (
        (0, counts(9, 1)),
        (9, counts(0, 0)),
        (9, counts(9, 0)),
    ):
        ratio = log_ratio(np.array([0]), n_tokens, reference, ONE, ONE)
        assert np.isnan([ratio.estimate, ratio.low, ratio.high]).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 100_000), st.integers(1, 100_000), st.floats(0, 1), st.floats(0, 1), st.floats(1, 50))
def test_estimate_lies_in_its_finite_interval(n_here, n_there, share_here, share_there, effect):
    here, there = round(n_here * share_here), round(n_there * share_there)
    ratio = log_ratio(np.array([here]), n_here, counts(n_there, there), np.array([effect]), np.array([effect]))
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


def test_reference_effect_of_runs_and_of_scattered_tokens():
    # 100 windows of 50 tokens. Ten runs of six tokens; sixty windows with one; never.
    fired, squared = np.array([60, 60, 0]), np.array([10 * 36, 60, 0])
    by_itself = (squared[:2] - 3600 / 100) * 100 / 99 / (60 * (1 - 60 / 5000))
    assert by_itself == pytest.approx([5.521, 0.409], rel=1e-3)
    # At least one; two more texts at the median draw each there, the first known from 10 texts, the second from 60.
    median = (by_itself[0] + 1) / 2
    expected = [(10 * by_itself[0] + 2 * median) / 12, (60 * 1 + 2 * median) / 62, median]
    assert reference_effect(FiringCounts(100, 5000, fired, squared)) == pytest.approx(expected)


@pytest.mark.parametrize(("share", "rate", "n_items"), [(0.05, 0.01, 150), (0.01, 0.002, 1500), (0.1, 0.01, 1500), (0.3, 0.05, 1500)])
def test_interval_holds_the_truth_for_concepts_that_fire_in_runs(share, rate, n_items):
    """A concept is in some texts and fires there on many tokens; items are short, the corpus' windows long."""
    generator = np.random.default_rng(7)
    concepts = 1500

    def draw(texts: int, tokens: int) -> np.ndarray:
        carries = generator.random((texts, concepts)) < share
        return np.where(carries, generator.binomial(tokens, rate / share, carries.shape), 0)

    firing, windows = draw(n_items, 45), draw(400, 255)
    reference = FiringCounts(400, 400 * 255, windows.sum(axis=0), (windows**2).sum(axis=0))
    here, there = design_effect(sp.csr_matrix(firing.astype(float)), make_rows(n_items, 45)), reference_effect(reference)

    def covered(here: np.ndarray, there: np.ndarray) -> float:
        ratio = log_ratio(firing.sum(axis=0), n_items * 45, reference, here, there)
        defined = ~np.isnan(ratio.estimate)
        return float(((ratio.low <= 0) & (ratio.high >= 0))[defined].mean())

    assert 0.92 <= covered(here, there) <= 0.975
    assert covered(np.ones(concepts), np.ones(concepts)) < 0.6  # what tokens taken as independent would claim


def test_status_by_evidence():
    reference = counts(10_000, 0, 200, 1, 400, 100, 10, 0, 100)
    fired = np.array([0, 0, 0, 40, 105, 200, 3, 160])
    ratio = log_ratio(fired, 10_000, reference, np.ones(8), np.ones(8))
    # 3 against none could be chance; 160 against 100 could not, but is less than twofold.
    assert coverage_status(fired, reference, ratio, 1.0) == ["dead", "unexercised", None, "under", "typical", "over", "typical", "typical"]
    assert coverage_status(fired, reference, ratio, 0.5)[-1] == "over"


def test_a_short_benchmark_is_not_blamed_for_being_short():
    # 20 in 100,000 tokens of the corpus: 200 tokens without one say nothing, 100,000 do.
    reference = counts(100_000, 20)
    fired = np.array([0])
    for n_tokens, status in ((200, None), (100_000, "unexercised")):
        assert coverage_status(fired, reference, log_ratio(fired, n_tokens, reference, ONE, ONE), 1.0) == [status]


def test_status_without_a_reference_text_is_null():
    nan = np.full(1, np.nan)
    assert coverage_status(np.array([3]), counts(0, 0), LogRatio(nan, nan, nan), 1.0) == [None]


def test_structural_concepts_fire_as_often_without_content():
    template = counts(5, 2, 2, 0, 1)
    assert is_structural(template, np.array([20, 21, 0, 0]), 10).tolist() == [True, False, False, True]
