"""The measures of a verifier by hand, and its table: every column on all types together and on each by itself."""

from __future__ import annotations

import numpy as np
import pytest

from gapscope.items import Item
from gapscope.variants.baselines import bag_of_words, majority
from gapscope.variants.contrasts import Labelled
from gapscope.variants.measures import COLUMNS, Calibration, auroc, calibrate, f1, measure, table, truths
from gapscope.variants.prompts import Pair
from gapscope.variants.tables import VERIFIERS, calibration_points, columns

PLAIN = Calibration(dict.fromkeys(COLUMNS, 1.0), dict.fromkeys(COLUMNS, 0.5))


def row(slug: str, word: str, **failing: bool) -> Labelled:
    item = Item(f"{slug}-{word}", "t", "f", f"Why {word}?", ("a", "b"), 0)
    return Labelled(Pair(item, item, slug), {"tc": True, "lc": True, "au": True} | failing)


ROWS = [
    row("causal_inference", "rain"),
    row("causal_inference", "sun", lc=False),
    row("critical_testing", "rain"),
    row("critical_testing", "sun", lc=False),
]


def test_auroc_and_f1_by_hand() -> None:
    assert auroc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([1, 1, 0, 0])) == pytest.approx(3.5 / 4)
    assert np.isnan(auroc(np.array([0.9]), np.array([1])))
    assert f1(np.array([True, True, False]), np.array([1, 0, 1])) == pytest.approx(0.5)
    assert np.isnan(f1(np.array([False]), np.array([0])))


def test_one_column_by_hand() -> None:
    found = measure(np.array([0.9, 0.8, 0.7, 0.2]), np.array([1, 0, 1, 0]), temperature=1.0, threshold=0.75)
    assert found["accuracy"] == 0.5 and found["balanced_accuracy"] == 0.5 and found["auroc"] == 0.75
    assert found["n"] == 4 and found["n_true"] == 2 and found["ece_before"] == found["ece_after"]


def test_truth_of_a_row_is_the_verdict_and_that_all_hold() -> None:
    assert truths(ROWS[:2]).tolist() == [[1, 1, 1, 1], [1, 0, 1, 0]]


def test_the_table_has_every_column_for_all_types_and_each_and_undefined_is_null(tmp_path: object) -> None:
    p = np.tile([[0.9, 0.6, 0.9, 0.6]], (4, 1))
    found = list(table("x", "heldout", p, ROWS, PLAIN))
    assert len(found) == 3 * 4
    written = VERIFIERS.build(columns(found)).to_pylist()
    tc = next(entry for entry in written if entry["column"] == "tc" and entry["type"] == "all")
    assert tc["auroc"] is None and tc["balanced_accuracy"] is None and tc["accuracy"] == 1.0
    lc = next(entry for entry in written if entry["column"] == "lc" and entry["type"] == "all")
    assert lc["auroc"] == 0.5 and lc["balanced_accuracy"] == 0.5


def test_baselines_know_what_they_should() -> None:
    train = [row("causal_inference", word, lc=word == "rain") for word in ("rain", "sun") for _ in range(4)]
    assert majority(train, ROWS)[0].tolist() == [1.0, 0.5, 1.0, 0.5]
    train = [row("causal_inference", "rain", tc=False, au=False), row("causal_inference", "sun", lc=False, tc=True)] * 3
    words = bag_of_words([*train, row("causal_inference", "rain")], ROWS)
    assert words.shape == (4, 4) and words[0, 1] > words[1, 1]


def test_calibration_is_of_the_columns_given() -> None:
    p = np.tile(np.linspace(0.05, 0.95, 10)[:, None], (1, 4))
    found = calibrate(p, np.tile((np.arange(10) > 6).astype(int)[:, None], (1, 4)))
    assert 0.5 < found.threshold["valid"] < 0.99 and found.scale(p).shape == (10, 4)


def test_points_of_calibration_leave_out_empty_bins() -> None:
    points = calibration_points(np.array([0.05, 0.95, 0.92]), np.array([0, 1, 0]))
    assert points == [{"stated": 0.05, "observed": 0.0, "n": 1}, {"stated": pytest.approx(0.935), "observed": 0.5, "n": 2}]
