"""Figures of the reach stage worked out by hand: concepts reached, random items, rates, and whether a gap holds.

What must hold: every number is that of the arithmetic beside it; what is undefined is None; the order of texts says nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gapscope.competency.activations import IntArray
from gapscope.loop.held import Answered, difference, hold
from gapscope.loop.reached import Texts, against, n_reached, random_groups, rate_change

FIRING = sp.csr_matrix(np.array([[1, 0, 0, 2], [0, 3, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]))


def places(*rows: int) -> IntArray:
    return np.array(rows, dtype=np.int64)


def test_concepts_are_counted_once_a_group() -> None:
    groups = [places(0), places(0, 2), places(0, 1, 2, 3), places(3), places()]
    assert n_reached(FIRING, groups).tolist() == [2, 3, 3, 0, 0]
    assert n_reached(FIRING, []).tolist() == []
    assert n_reached(FIRING, [places(0)] * 150).tolist() == [2] * 150


def test_texts_have_their_rates() -> None:
    texts = Texts(list("abcd"), ["x", "y", "x", "y"], places(4, 3, 2, 1), FIRING, FIRING.astype(float))
    assert texts.n_firing().tolist() == [2, 2, 0, 1]
    assert texts.rates().tolist() == [0.2, 0.4, 0.0, 0.2]
    assert texts.of("y").ids == ["b", "d"]
    assert np.isnan(texts.of("z").rates()).all()
    assert Texts.none(4).n_firing().tolist() == [0] * 4


def test_random_groups_hold_as_many_items_or_tokens() -> None:
    items, equal = random_groups(places(5, 5, 5, 5), np.arange(4), 2, 11, 20, 1)
    # 10 tokens are nearer to 11 than 15 are.
    assert {len(group) for group in items} == {2} and {len(group) for group in equal} == {2}
    assert {len(group) for group in random_groups(places(5, 5, 5, 5), np.arange(4), 2, 13, 20, 1)[1]} == {3}
    some = [np.concatenate(groups) for groups in random_groups(places(5, 5, 5, 5), places(1, 3), 1, 5, 20, 1)]
    assert [set(group.tolist()) for group in some] == [{1, 3}, {1, 3}]
    assert all(len(set(group.tolist())) == len(group) for group in (*items, *equal))
    assert len({tuple(group.tolist()) for group in items}) > 3
    assert {len(group) for group in random_groups(places(5, 5, 5, 5), np.arange(4), 4, 20, 3, 1)[1]} == {4}
    assert random_groups(places(5, 5), np.arange(2), 3, 11, 4, 1) == ([], [])
    assert random_groups(places(5, 5), np.arange(2), 0, 0, 4, 1) == ([], [])
    assert random_groups(places(5, 5), places(), 1, 5, 4, 1) == ([], [])


def test_a_count_against_draws() -> None:
    counts = places(1, 2, 3, 4)
    assert against(counts, 3, 0.5) == {"mean": 2.5, "low": 1.75, "high": 3.25, "at_least": 0.6}
    assert against(counts, 5, 0.5)["at_least"] == 0.2
    assert against(places(), 3, 0.5) == dict.fromkeys(("mean", "low", "high", "at_least"))


def test_rate_changes_by_hand() -> None:
    variants = np.array([2.0, 6.0]), np.array([10.0, 10.0])
    originals = np.array([4.0, 4.0]), np.array([20.0, 20.0])
    got = rate_change(variants, originals, 0.1, 400, 0.95, 3)
    # 8 of 20 against 8 of 40, and against a tenth; a draw of one family twice gives 0.2 or 0.6.
    assert got["originals"] == pytest.approx(1.0) and got["suite"] == pytest.approx(2.0)
    assert got["originals_low"] == pytest.approx(0.0) and got["originals_high"] == pytest.approx(np.log2(3))
    assert got["suite_low"] == pytest.approx(1.0) and got["suite_high"] == pytest.approx(np.log2(6))


def test_a_rate_that_may_be_nought_has_no_lower_end() -> None:
    # A quarter of the draws take the second family twice, and then the variants' rate is 0.
    variants, originals = (np.array([6.0, 0.0]), np.array([10.0, 10.0])), (np.array([1.0, 1.0]), np.array([10.0, 10.0]))
    got = rate_change(variants, originals, None, 400, 0.95, 3)
    assert got["originals_low"] is None
    assert got["originals_high"] == pytest.approx(np.log2(6))


def test_undefined_rate_changes_are_none() -> None:
    nothing = np.zeros(2), np.array([10.0, 10.0])
    some = np.array([1.0, 1.0]), np.array([10.0, 10.0])
    assert set(rate_change(nothing, some, 0.1, 100, 0.95, 3).values()) == {None}
    assert rate_change(some, nothing, 0.1, 100, 0.95, 3)["originals"] is None
    # Every draw is the same: a figure, but no interval.
    assert rate_change(some, some, None, 100, 0.95, 3) == {"originals": 0.0} | dict.fromkeys(
        ("originals_low", "originals_high", "suite", "suite_low", "suite_high")
    )
    empty = np.empty(0), np.empty(0)
    assert set(rate_change(empty, empty, 0.1, 100, 0.95, 3).values()) == {None}


WEIGHTS = np.array([1.0, 3.0, 0.0, 2.0, 2.0, 9.0, 1.0])
SCORES = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, np.nan])
CELLS, FAMILIES = list("AABBBCB"), ["f0", "f1", "f2", "f1", "f3", "f0", "f0"]


def answered(order: list[int] | None = None, chance: float = 0.0) -> Answered:
    rows = order or list(range(len(WEIGHTS)))
    return Answered.of(
        WEIGHTS[rows], SCORES[rows], np.full(len(rows), chance), [CELLS[row] for row in rows], [FAMILIES[row] for row in rows]
    )


def test_the_difference_from_the_rest_by_hand() -> None:
    # A: mean 1/2, B: mean 2/3; C has one text and nothing to be compared with, the last is unscored.
    # (1/2 - 3/2 + 0 + 2/3 - 4/3) / (1 + 3 + 2 + 2); weights by family 1, 5, 0, 2.
    texts = answered()
    assert texts.n == 4
    assert texts.n_eff == pytest.approx(64 / 30)
    assert difference(texts, np.ones((1, 4)))[0] == pytest.approx(-5 / 24)
    # f0 and f1 drawn twice: in A 1 - 3, in B one text alone and no difference; over 2 (1 + 3 + 2).
    drawn = difference(texts, np.array([[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0]]))
    assert drawn[0] == pytest.approx(-1 / 6) and np.isnan(drawn[1])
    # With a guess right in one of four a wrong answer is -1/3, and every difference 4/3 as large.
    assert difference(answered(chance=0.25), np.ones((1, 4)))[0] == pytest.approx(-5 / 18)


def test_the_order_of_texts_says_nothing() -> None:
    assert hold(answered(), 2.0, 200, 0.95, 5) == pytest.approx(hold(answered([6, 3, 1, 5, 0, 4, 2]), 2.0, 200, 0.95, 5), abs=1e-12)


def test_what_a_gap_s_interval_says() -> None:
    rng = np.random.default_rng(1)
    weights = np.repeat([1.0, 0.0], 60)
    families = [f"f{k}" for k in range(120)]

    def status(shares: tuple[float, float], min_n_eff: float = 20.0) -> object:
        scores = np.concatenate([(rng.permutation(60) < 60 * share).astype(float) for share in shares])
        one = hold(Answered.of(weights, scores, np.zeros(120), ["t"] * 120, families), min_n_eff, 500, 0.95, 2)
        if one["status"] != "unsupported":
            # Half of the texts carry the concept, so that the mean of all is halfway between the two shares.
            assert one["difference"] == pytest.approx((shares[0] - shares[1]) / 2)
            assert one["low"] < one["difference"] < one["high"]  # type: ignore[operator]
        return one["status"]

    assert [status(shares) for shares in ((0.2, 0.8), (0.8, 0.2), (0.5, 0.5))] == ["holds", "reversed", "undecided"]
    assert status((0.2, 0.8), 61.0) == "unsupported"


def test_too_little_support_gives_no_figure() -> None:
    assert hold(answered(), 3.0, 100, 0.95, 5) == {
        "n": 4, "n_eff": pytest.approx(64 / 30), "difference": None, "low": None, "high": None, "status": "unsupported",
    }  # fmt: skip
    nothing = Answered.of(np.zeros(2), np.array([1.0, 0.0]), np.zeros(2), ["t", "t"], ["a", "b"])
    assert (nothing.n, nothing.n_eff) == (0, 0.0)
    assert hold(nothing, 3.0, 100, 0.95, 5)["status"] == "unsupported"
    assert Answered.of(np.empty(0), np.empty(0), np.empty(0), [], []).n_eff == 0.0
    # As if the difference were known: every text answers alike, no interval, nothing decided.
    same = Answered.of(np.ones(4), np.ones(4), np.zeros(4), ["t"] * 4, list("abcd"))
    assert hold(same, 3.0, 100, 0.95, 5) == {"n": 4, "n_eff": 4.0, "difference": 0.0, "low": None, "high": None, "status": "undecided"}
