from test_report_rows import NAN, performance_of

from gapscope.report.extremes import UNTESTED, rank_extremes
from gapscope.report.inputs import Label
from gapscope.report.rows import extreme_concepts

LABELS = {0: Label("heat", "keywords", None), 1: Label("</script>\nwater", "keywords", 0.9)}


def calibrated():
    return performance_of(
        [0.1, 0.2, 0.3, 0.5, 0.6, 0.9, NAN, 0.0],
        [30, 40, 50, 60, 70, 80, 0, 5],
        adjusted=[-0.3, -0.28, -0.2, -0.1, 0.1, 0.3, NAN, -0.5],
        shrunk=[-0.2, -0.19, -0.15, -0.05, 0.05, 0.2, NAN, -0.1],
        adjusted_low=[-0.4] * 6 + [NAN, NAN],
        adjusted_high=[-0.1] * 6 + [NAN, NAN],
        p=[0.001] * 3 + [0.4, 0.4, 0.001, NAN, NAN],
        q=[0.01] * 3 + [0.5, 0.5, 0.01, NAN, NAN],
        status=["gap", "gap", "gap", "typical", "typical", "strength", "undefined", "unsupported"],
        finding=["1", "1", "2", "", "", "5", "", ""],
    )


def test_calibrated_takes_one_concept_a_finding_then_the_surest_of_the_rest() -> None:
    ranking = rank_extremes(calibrated(), LABELS, set(), 9, 20, 10)
    assert [(extreme.concept, extreme.status, extreme.n_alike) for extreme in ranking.worst] == [
        (0, "gap", 2),
        (2, "gap", 1),
        (3, "typical", 1),
    ]
    assert [(extreme.concept, extreme.status) for extreme in ranking.best] == [(5, "strength"), (4, "typical")]
    assert ranking.worst[0].value == -0.3
    assert (ranking.n_ranked, ranking.n_gap, ranking.n_strength, ranking.n_unsupported, ranking.n_undefined) == (6, 3, 1, 1, 2)


def test_structural_concepts_are_never_extreme() -> None:
    ranking = rank_extremes(calibrated(), LABELS, {0, 5}, 9, 20, 10)
    assert [extreme.concept for extreme in ranking.worst] == [1, 2, 3]
    assert [extreme.concept for extreme in ranking.best] == [4]


def test_uncalibrated_ranks_supported_concepts_by_chi_model_and_keeps_sides_apart() -> None:
    performance = performance_of([0.5, 0.0, 0.5, 0.9, NAN], [20, 19.9, 40, 30, 0], ci_low=[0.4] * 4 + [NAN], ci_high=[0.6] * 4 + [NAN])
    ranking = rank_extremes(performance, {}, set(), 5, 20, 10)
    assert not ranking.calibrated
    assert [extreme.concept for extreme in ranking.worst] == [2], "equal values: more support first; at most half of three"
    assert [extreme.concept for extreme in ranking.best] == [3]
    assert ranking.worst[0].status == UNTESTED
    assert (ranking.worst[0].low, ranking.worst[0].high) == (0.4, 0.6)


def test_rows_hold_labels_without_markup_and_nulls_where_nothing_is_known() -> None:
    ranking = rank_extremes(calibrated(), LABELS, {0}, 9, 20, 2)
    worst = extreme_concepts("o", "s", ranking, "worst")
    assert worst[0]["name"] == "‹/script› water #1"
    assert worst[1]["label"] == "(no label)"
    assert [row["rank"] for row in worst] == [1, 2]


def test_no_supported_concept_is_one_row_that_says_so() -> None:
    ranking = rank_extremes(performance_of([0.5, NAN], [3, 0]), {}, set(), 2, 20, 5)
    for side in ("worst", "best"):
        (row,) = extreme_concepts("o", "s", ranking, side)
        assert row["concept"] is None
        assert row["value"] is None
        assert row["n"] == 0
    some = extreme_concepts("o", "s", rank_extremes(calibrated(), LABELS, set(), 9, 20, 1), "worst")
    assert row.keys() == some[0].keys()
