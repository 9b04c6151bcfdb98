"""Robustness measures against values worked out by hand.

What must hold: oa, ara, rla, cra_pair and cra_all are what their definitions give on three families; intervals hold the
estimate, are the same on every run and do not depend on the order of rows; an unscored side takes its pair out and is
counted; nothing is 0 where it is undefined; McNemar, the sign flip and Holm agree with hand counts and brute force.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from made_families import nota, original, scored, variant
from scipy.stats import binomtest

from gapscope.variants.comparison import compare
from gapscope.variants.robustness import NOTA_DISTRACTOR, NOTA_GOLD, SUBSETS, Outcomes, in_subset, measures, outcomes, summary
from gapscope.variants.robustness_stats import holm, mcnemar, rank_agreement, sign_flip

ORIGINALS = {f"o{k}": original(k) for k in range(3)}
VARIANTS = [
    variant(0, "problem_restatement"),
    variant(0, "reverse_conversion"),
    variant(1, "problem_restatement"),
    variant(1, "causal_inference"),
    variant(2, "problem_restatement"),
]
RIGHT = {
    "o0": 1.0, "o1": 1.0, "o2": 0.0,
    "o0-problem_restatement": 1.0, "o0-reverse_conversion": 1.0,
    "o1-problem_restatement": 0.0, "o1-causal_inference": 1.0,
    "o2-problem_restatement": 1.0,
}  # fmt: skip


def found(right: dict[str, float | None] | None = None) -> Outcomes:
    return outcomes(ORIGINALS, VARIANTS, scored({**RIGHT, **(right or {})}))


def test_measures_by_hand() -> None:
    values = summary(found(), 500, 0.95, 1)
    assert values["oa"] == pytest.approx(2 / 3)
    assert values["ara"] == pytest.approx(4 / 5)
    assert values["rla"] == pytest.approx(2 / 3 - 4 / 5)
    assert values["rla_relative"] == pytest.approx((2 / 3 - 4 / 5) / (2 / 3))
    assert values["cra_pair"] == pytest.approx(3 / 5)  # both of o0, one of o1
    assert values["cra_all"] == pytest.approx(1 / 3)  # o0 alone
    for name in ("oa", "ara", "rla", "cra_pair", "cra_all"):
        assert values[f"{name}_low"] <= values[name] <= values[f"{name}_high"]  # type: ignore[operator]


def test_chance_is_that_of_what_was_asked() -> None:
    assert found().chance == (pytest.approx(1 / 4), pytest.approx(1 / 3))


def test_unscored_takes_its_pair_out() -> None:
    got = found({"o1": None, "o0-reverse_conversion": None})
    assert got.families == ("o0", "o2")
    assert got.n_unscored == 3
    values = summary(got, 500, 0.95, 1)
    assert (values["oa"], values["ara"], values["cra_all"]) == (0.5, 1.0, 0.5)


def test_undefined_is_null() -> None:
    nothing = outcomes(ORIGINALS, [], scored(dict(RIGHT)))
    assert set(summary(nothing, 500, 0.95, 1).values()) == {None}
    wrong = summary(found({"o0": 0.0, "o1": 0.0}), 500, 0.95, 1)
    assert wrong["oa"] == 0.0
    assert wrong["rla_relative"] is None
    assert wrong["oa_low"] is None  # every draw gives 0: no width, so no interval


def test_bootstrap_is_over_families_and_stable() -> None:
    once = summary(found(), 500, 0.95, 7)
    assert once == summary(found(), 500, 0.95, 7)
    shuffled = outcomes(dict(reversed(ORIGINALS.items())), VARIANTS[::-1], scored(dict(RIGHT)))
    again = summary(shuffled, 500, 0.95, 7)
    assert {k: v for k, v in again.items() if v is not None} == pytest.approx({k: v for k, v in once.items() if v is not None})
    # A family that is drawn twice counts twice, with all its variants: o0 twice and o2 once.
    got = measures(found(), np.array([[2.0, 0.0, 1.0]]))
    assert got["oa"][0] == pytest.approx(2 / 3)
    assert got["ara"][0] == pytest.approx(5 / 5)
    assert got["cra_pair"][0] == pytest.approx(4 / 5)


def test_bootstrap_interval_covers_families() -> None:
    """200 families whose two variants go together: the interval is as wide as 200 families make it, not 400 variants."""
    rng = np.random.default_rng(0)
    family = rng.integers(0, 2, 200).astype(float)
    got = Outcomes(
        tuple(f"f{k}" for k in range(200)),
        family,
        tuple(f"v{k}" for k in range(400)),
        np.repeat(np.arange(200), 2),
        np.repeat(family, 2),
        (0.5, 0.5),
        0,
    )
    values = summary(got, 4000, 0.95, 3)
    width = values["ara_high"] - values["ara_low"]  # type: ignore[operator]
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 200), rel=0.1)


def test_none_of_the_above_is_told_apart() -> None:
    gold, distractor = nota(0, right=True), nota(1, right=False)
    assert [in_subset(gold, s) for s in (NOTA_GOLD, NOTA_DISTRACTOR, "critical_testing", "all")] == [True, False, True, True]
    assert [in_subset(distractor, s) for s in (NOTA_GOLD, NOTA_DISTRACTOR)] == [False, True]
    assert not any(in_subset(VARIANTS[0], s) for s in SUBSETS if s not in ("all", "problem_restatement"))


def test_mcnemar_by_hand() -> None:
    a, b = np.array([1.0, 1, 1, 1, 1, 0, 0, 1]), np.array([0.0, 0, 0, 0, 0, 1, 0, 1])
    assert mcnemar(a, b) == pytest.approx(binomtest(5, 6).pvalue)
    assert mcnemar(a, b) == mcnemar(b, a)
    assert mcnemar(a, a) == 1.0


@pytest.mark.parametrize("differences", [[1, 2, -1, 0, 3], [2, 2, 2, 2], [0, 0], [-1], [1, -1, 2, -2]])
def test_sign_flip_against_every_flip(differences: list[int]) -> None:
    values = np.array(differences, dtype=float)
    sums = [abs(sum(s * abs(d) for s, d in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))]
    assert sign_flip(values) == pytest.approx(np.mean([total >= abs(values.sum()) for total in sums]))


def test_sign_flip_refuses_fractions() -> None:
    with pytest.raises(ValueError, match="whole numbers"):
        sign_flip(np.array([0.5]))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_subjects_are_compared_on_what_both_answered() -> None:
    table = compare({"b": found({"o0": 0.0, "o0-problem_restatement": 0.0}), "a": found({"o2": None})})
    rows = {asked: k for k, asked in enumerate(table["asked"])}
    assert (table["subject"], table["other"]) == (["a", "a"], ["b", "b"])
    assert table["n_families"] == [2, 2]
    assert table["difference"][rows["originals"]] == pytest.approx(1 / 2)
    assert table["difference"][rows["variants"]] == pytest.approx(1 / 4)
    assert table["p"] == table["p_holm"] == [1.0, 1.0]


def test_comparisons_are_corrected_by_kind_of_question() -> None:
    right, wrong = (dict.fromkeys(RIGHT, value) for value in (1.0, 0.0))
    table = compare({"a": found(right), "b": found(wrong), "c": found(wrong)})
    pairs = {(o, s, t): (p, h) for o, s, t, p, h in zip(*(table[c] for c in ("asked", "subject", "other", "p", "p_holm")), strict=True)}
    assert pairs["originals", "a", "b"] == (pytest.approx(0.25), pytest.approx(0.75))
    assert pairs["variants", "b", "c"] == (1.0, 1.0)


def test_rank_agreement() -> None:
    assert rank_agreement([0.1, 0.2, 0.3, 0.4], [1, 2, 4, 3]) == {"spearman": pytest.approx(0.8), "kendall": pytest.approx(2 / 3)}
    assert rank_agreement([0.1, 0.2], [1, 2]) == {}
    assert rank_agreement([0.1, 0.1, 0.1], [1, 2, 3]) == {}
