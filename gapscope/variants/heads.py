"""Small classifiers on evidence: fitted by scikit-learn, stored as JSON and applied without it, never pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gapscope.errors import InputError

HeadKind = Literal["logistic", "boosting"]
CLIP = 1e-4
"""Probabilities stay this far from 0 and 1, so that a logit is finite."""


def logit(p: np.ndarray) -> np.ndarray:
    """Log-odds of probabilities, which are clipped to [CLIP, 1 - CLIP]."""
    clipped = np.clip(p, CLIP, 1 - CLIP)
    odds: np.ndarray = np.log(clipped) - np.log1p(-clipped)
    return odds


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The inverse of :func:`logit`, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(x, dtype=np.float64)))


@dataclass(frozen=True)
class Head:
    """A fitted classifier: rows of evidence to the probability that a statement holds.

    Attributes:
        names: what the columns are, in order.
        fill: what stands in for an undefined (NaN) value of each column: its median in training.
        kind: logistic, or boosting (a sum of regression trees).
        state: of logistic ``mean``, ``scale``, ``weights``, ``bias``; of boosting ``bias``, ``rate`` and ``trees``, each a
            dict of equally long lists ``feature`` (-1 at a leaf), ``threshold``, ``left``, ``right`` and ``value``.
    """

    names: tuple[str, ...]
    fill: np.ndarray
    kind: HeadKind
    state: dict[str, Any]

    def probability(self, rows: np.ndarray) -> np.ndarray:
        """Probability (rows,) of each row of evidence (rows, columns)."""
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise ValueError(f"evidence is {rows.shape}, needed are {len(self.names)} columns")
        filled = np.where(np.isnan(rows), self.fill, rows)
        if self.kind == "logistic":
            scaled = (filled - np.array(self.state["mean"])) / np.array(self.state["scale"])
            return sigmoid(scaled @ np.array(self.state["weights"]) + self.state["bias"])
        total = np.full(len(rows), self.state["bias"], dtype=np.float64)
        for tree in self.state["trees"]:
            total += self.state["rate"] * _leaf_values(tree, filled)
        return sigmoid(total)

    def to_json(self) -> dict[str, Any]:
        """The head as JSON values; :meth:`from_json` gives it back."""
        return {"names": list(self.names), "fill": self.fill.tolist(), "kind": self.kind, "state": self.state}

    @staticmethod
    def from_json(data: Any) -> Head:
        """The head that :meth:`to_json` described.

        Raises:
            InputError: a part is missing or of another length.
        """
        try:
            head = Head(tuple(data["names"]), np.array(data["fill"], dtype=np.float64), data["kind"], data["state"])
            head.probability(np.zeros((1, len(head.names))))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"not a stored head: {error}", fix="run sft again") from error
        return head


def _leaf_values(tree: dict[str, list[float]], rows: np.ndarray) -> np.ndarray:
    """Value of the leaf that each row ends in. scikit-learn compares in float32, so this does too."""
    feature, threshold = np.array(tree["feature"], dtype=int), np.array(tree["threshold"])
    left, right = np.array(tree["left"], dtype=int), np.array(tree["right"], dtype=int)
    single = rows.astype(np.float32)
    node = np.zeros(len(rows), dtype=int)
    while (inner := feature[node] >= 0).any():
        at = node[inner]
        goes_left = single[inner, feature[at]] <= threshold[at]
        node[inner] = np.where(goes_left, left[at], right[at])
    return np.array(tree["value"])[node]


def fit_head(
    rows: np.ndarray, truth: np.ndarray, names: tuple[str, ...], kind: HeadKind, seed: int, weights: np.ndarray | None = None
) -> Head:
    """Fit a head to evidence (rows, columns) and truth (rows,), which must hold both values.

    A column that is NaN everywhere says nothing and is filled with 0.
    """
    defined = ~np.isnan(rows).all(axis=0)
    fill = np.zeros(rows.shape[1])
    fill[defined] = np.nanmedian(rows[:, defined], axis=0)
    filled = np.where(np.isnan(rows), fill, rows)
    state = _logistic(filled, truth, weights) if kind == "logistic" else _boosting(filled, truth, seed, weights)
    return Head(names, fill, kind, state)


def _logistic(rows: np.ndarray, truth: np.ndarray, weights: np.ndarray | None) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression

    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    model = LogisticRegression(C=0.1, max_iter=2000).fit((rows - mean) / scale, truth, sample_weight=weights)
    return {"mean": mean.tolist(), "scale": scale.tolist(), "weights": model.coef_[0].tolist(), "bias": float(model.intercept_[0])}


def _boosting(rows: np.ndarray, truth: np.ndarray, seed: int, weights: np.ndarray | None) -> dict[str, Any]:
    from sklearn.ensemble import GradientBoostingClassifier

    model = GradientBoostingClassifier(
        n_estimators=200, learning_rate=0.05, max_depth=3, min_samples_leaf=8, subsample=0.6, max_features=0.3, random_state=seed
    ).fit(rows, truth, sample_weight=weights)
    prior = float(np.average(truth, weights=weights))
    trees = [
        {
            "feature": np.where(tree.children_left < 0, -1, tree.feature).tolist(),
            "threshold": np.where(tree.children_left < 0, 0.0, tree.threshold).tolist(),
            "left": tree.children_left.tolist(),
            "right": tree.children_right.tolist(),
            "value": tree.value[:, 0, 0].tolist(),
        }
        for tree in (estimator.tree_ for estimator in model.estimators_[:, 0])
    ]
    return {"bias": float(logit(np.array([prior]))[0]), "rate": model.learning_rate, "trees": trees}
