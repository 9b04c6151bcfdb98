"""Whether a probability means what it says, and where to draw the line."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from gapscope.variants.heads import logit, sigmoid

ECE_BINS = 10


def expected_calibration_error(p: np.ndarray, truth: np.ndarray, bins: int = ECE_BINS) -> float:
    """Mean distance between stated probability and observed share over bins of equal width, weighted by their rows.

    Naeini et al. 2015, with the probability of the positive class (not of the predicted one).
    """
    place = np.minimum((p * bins).astype(int), bins - 1)
    total = 0.0
    for index in range(bins):
        inside = place == index
        if inside.any():
            total += inside.mean() * abs(p[inside].mean() - truth[inside].mean())
    return float(total)


def fit_temperature(p: np.ndarray, truth: np.ndarray) -> float:
    """The T > 0 for which sigmoid(logit(p) / T) has the greatest likelihood (Guo et al. 2017).

    Looked for between 1/20 and 20.
    """
    scores = logit(p)

    def loss(log_t: float) -> float:
        return float(np.logaddexp(0, np.where(truth > 0, -1, 1) * scores / np.exp(log_t)).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-np.log(20), np.log(20)), method="bounded").x))


def scaled(p: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities after temperature scaling; their order is unchanged."""
    return sigmoid(logit(p) / temperature)


def balanced_accuracy(accepted: np.ndarray, truth: np.ndarray) -> float:
    """Mean of the shares of true and of false rows that are decided rightly; both must occur."""
    positive = truth > 0
    return float((accepted[positive].mean() + (~accepted[~positive]).mean()) / 2)


def choose_threshold(p: np.ndarray, truth: np.ndarray) -> float:
    """The threshold (p >= threshold accepts) of greatest balanced accuracy, midway between two observed probabilities.

    Of equally good ones the nearest to 0.5. Balanced accuracy is first averaged over the neighbours on either side
    (five thresholds in all), since the single best of a few hundred rows is mostly luck.
    """
    values = np.unique(p)
    cuts = np.concatenate([[0.0], (values[1:] + values[:-1]) / 2, [1.0]])
    raw = np.array([balanced_accuracy(p >= cut, truth) for cut in cuts])
    padded = np.pad(raw, 2, mode="edge")
    smooth = np.round(np.mean([padded[k : k + len(raw)] for k in range(5)], axis=0), 9)
    best = np.flatnonzero(smooth == smooth.max())
    return float(cuts[best[np.argmin(abs(cuts[best] - 0.5))]])
