"""A stored head gives scikit-learn's probabilities; temperature, threshold and ECE are what they are defined to be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from gapscope.errors import InputError
from gapscope.variants.calibration import (
    balanced_accuracy,
    choose_threshold,
    expected_calibration_error,
    fit_temperature,
    scaled,
)
from gapscope.variants.heads import Head, fit_head, logit, sigmoid


def made(rows: int = 200, missing: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    evidence = rng.normal(size=(rows, 5))
    truth = (evidence[:, 0] + evidence[:, 1] ** 2 + 0.3 * rng.normal(size=rows) > 1).astype(int)
    evidence[rng.random(evidence.shape) < missing] = np.nan
    return evidence, truth


NAMES = ("a", "b", "c", "d", "e")


def test_boosting_equals_scikit_learn_after_a_round_trip_through_json() -> None:
    evidence, truth = made()
    head = Head.from_json(json.loads(json.dumps(fit_head(evidence, truth, NAMES, "boosting", seed=3).to_json())))
    theirs = GradientBoostingClassifier(
        n_estimators=200, learning_rate=0.05, max_depth=3, min_samples_leaf=8, subsample=0.6, max_features=0.3, random_state=3
    ).fit(evidence, truth)
    assert np.allclose(head.probability(evidence), theirs.predict_proba(evidence)[:, 1], atol=1e-12)


def test_a_forest_equals_scikit_learn() -> None:
    evidence, truth = made()
    weights = np.where(evidence[:, 2] > 0, 2.0, 0.5)
    head = Head.from_json(json.loads(json.dumps(fit_head(evidence, truth, NAMES, "forest", seed=3, weights=weights).to_json())))
    theirs = ExtraTreesClassifier(n_estimators=150, min_samples_leaf=4, max_features=0.3, random_state=3).fit(
        evidence, truth, sample_weight=weights
    )
    assert np.allclose(head.probability(evidence), theirs.predict_proba(evidence)[:, 1], atol=1e-12)


def test_logistic_equals_scikit_learn() -> None:
    evidence, truth = made()
    head = Head.from_json(json.loads(json.dumps(fit_head(evidence, truth, NAMES, "logistic", seed=0).to_json())))
    standard = (evidence - evidence.mean(0)) / evidence.std(0)
    theirs = LogisticRegression(C=0.1, max_iter=2000).fit(standard, truth)
    assert np.allclose(head.probability(evidence), theirs.predict_proba(standard)[:, 1], atol=1e-9)


@pytest.mark.parametrize("kind", ["boosting", "forest", "logistic"])
def test_what_is_undefined_is_filled_with_the_training_median(kind: str) -> None:
    evidence, truth = made(missing=0.2)
    evidence[:, 4] = np.nan
    head = fit_head(evidence, truth, NAMES, kind, seed=0)  # type: ignore[arg-type]
    assert head.fill[0] == np.nanmedian(evidence[:, 0]) and head.fill[4] == 0
    gap = evidence[:1].copy()
    gap[0, 0] = np.nan
    filled = gap.copy()
    filled[0, 0] = head.fill[0]
    assert head.probability(gap) == head.probability(filled)
    assert np.isfinite(head.probability(evidence)).all()


def test_a_row_is_judged_the_same_alone_and_among_others() -> None:
    evidence, truth = made()
    head = fit_head(evidence, truth, NAMES, "boosting", seed=0)
    alone = np.concatenate([head.probability(evidence[k : k + 1]) for k in range(20)])
    assert (alone == head.probability(evidence)[:20]).all()


def test_a_damaged_head_and_other_columns_are_refused() -> None:
    evidence, truth = made()
    head = fit_head(evidence, truth, NAMES, "logistic", seed=0)
    with pytest.raises(InputError, match="not a stored head"):
        Head.from_json({**head.to_json(), "state": {"mean": [0.0]}})
    with pytest.raises(ValueError, match="needed are 5 columns"):
        head.probability(evidence[:, :4])


def test_logit_is_clipped_and_inverted() -> None:
    assert logit(np.array([0.0, 1.0])) == pytest.approx([-np.log(9999), np.log(9999)])
    assert sigmoid(logit(np.array([0.2, 0.9]))) == pytest.approx([0.2, 0.9])
    assert sigmoid(np.array([-1e9, 1e9])).tolist() == [0.0, 1.0]


def test_ece_by_hand() -> None:
    # Two bins: 0.9 with half of it true (distance 0.4), 0.1 with none of it true (distance 0.1), two rows each.
    assert expected_calibration_error(np.array([0.9, 0.9, 0.1, 0.1]), np.array([1, 0, 0, 0])) == pytest.approx(0.25)
    assert expected_calibration_error(np.array([1.0, 0.0]), np.array([1, 0])) == 0.0


def test_temperature_undoes_overconfidence_and_keeps_the_order() -> None:
    rng = np.random.default_rng(1)
    honest = rng.uniform(0.05, 0.95, 4000)
    truth = (rng.random(4000) < honest).astype(int)
    bold = sigmoid(3 * logit(honest))
    temperature = fit_temperature(bold, truth)
    assert temperature == pytest.approx(3, rel=0.1)
    assert (np.argsort(scaled(bold, temperature)) == np.argsort(bold)).all()
    assert expected_calibration_error(scaled(bold, temperature), truth) < expected_calibration_error(bold, truth) / 3


def test_threshold_separates_what_can_be_separated() -> None:
    p = np.array([0.1, 0.2, 0.25, 0.3, 0.6, 0.7, 0.8, 0.9])
    truth = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    cut = choose_threshold(p, truth)
    assert cut == pytest.approx(0.45)
    assert balanced_accuracy(p >= cut, truth) == 1.0
    assert balanced_accuracy(p >= 0.0, truth) == 0.5
