"""How well a verifier tells valid variants from invalid ones: the rows of its table, and the headline made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gapscope.variants.calibration import balanced_accuracy, choose_threshold, expected_calibration_error, fit_temperature, scaled
from gapscope.variants.contrasts import Labelled
from gapscope.variants.types import TYPES

COLUMNS = ("tc", "lc", "au", "valid")
"""What is judged, and the columns of every array of probabilities."""
ALL = "all"


@dataclass(frozen=True)
class Calibration:
    """Temperature and threshold (on the probability after scaling) of each column."""

    temperature: dict[str, float]
    threshold: dict[str, float]

    def scale(self, p: np.ndarray) -> np.ndarray:
        """Probabilities (rows, COLUMNS) after temperature scaling."""
        return np.column_stack([scaled(p[:, k], self.temperature[column]) for k, column in enumerate(COLUMNS)])


def truths(rows: Sequence[Labelled]) -> np.ndarray:
    """What is so, (rows, COLUMNS) of 0 and 1."""
    return np.array([[*(row.verdict[column] for column in COLUMNS[:-1]), row.valid] for row in rows], dtype=int)


def calibrate(p: np.ndarray, truth: np.ndarray) -> Calibration:
    """Temperature of greatest likelihood, then threshold of greatest balanced accuracy, of each column.

    ``p`` and ``truth`` are (rows, COLUMNS); the rows must be of families that the probabilities were not fitted to.
    """
    temperature = {column: fit_temperature(p[:, k], truth[:, k]) for k, column in enumerate(COLUMNS)}
    threshold = {column: choose_threshold(scaled(p[:, k], temperature[column]), truth[:, k]) for k, column in enumerate(COLUMNS)}
    return Calibration(temperature, threshold)


def auroc(p: np.ndarray, truth: np.ndarray) -> float:
    """Share of pairs of a true and a false row that are in the right order, ties half; NaN without both."""
    positive, negative = p[truth > 0], p[truth == 0]
    if not len(positive) or not len(negative):
        return float("nan")
    difference = positive[:, None] - negative[None, :]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def f1(accepted: np.ndarray, truth: np.ndarray) -> float:
    """Harmonic mean of precision and recall of the true rows; NaN where neither any is true nor accepted."""
    hits = int((accepted & (truth > 0)).sum())
    total = int(accepted.sum() + truth.sum())
    return 2 * hits / total if total else float("nan")


def measure(p: np.ndarray, truth: np.ndarray, temperature: float, threshold: float) -> dict[str, Any]:
    """The measures of one column; those that need both true and false rows are NaN without."""
    after = scaled(p, temperature)
    accepted = after >= threshold
    both = 0 < truth.sum() < len(truth)
    return {
        "n": len(truth),
        "n_true": int(truth.sum()),
        "accuracy": float((accepted == (truth > 0)).mean()),
        "balanced_accuracy": balanced_accuracy(accepted, truth) if both else float("nan"),
        "f1": f1(accepted, truth),
        "auroc": auroc(p, truth),
        "ece_before": expected_calibration_error(p, truth),
        "ece_after": expected_calibration_error(after, truth),
    }


def table(name: str, split: str, p: np.ndarray, rows: Sequence[Labelled], calibration: Calibration) -> Iterator[dict[str, Any]]:
    """Rows of one verifier on one split: every column on all types together and on each by itself."""
    truth = truths(rows)
    kinds = np.array([row.pair.type for row in rows])
    for slug in (ALL, *TYPES):
        chosen = np.ones(len(rows), dtype=bool) if slug == ALL else kinds == slug
        for k, column in enumerate(COLUMNS if chosen.any() else ()):
            how = calibration.temperature[column], calibration.threshold[column]
            yield {"verifier": name, "split": split, "type": slug, "column": column} | measure(p[chosen, k], truth[chosen, k], *how)
