"""Small classifiers on evidence: fitted by scikit-learn, stored as JSON and applied without it, never pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gapscope.errors import InputError

HeadKind = Literal["logistic", "boosting", "forest"]
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
        kind: logistic, boosting (log-odds as a sum of trees) or forest (the mean share of many trees grown at random).
        state: of logistic ``mean``, ``scale``, ``weights``, ``bias``; of boosting ``bias``, ``rate`` and ``trees``; of forest
            ``trees``. A tree is a dict of equally long lists ``feature`` (-1 at a leaf), ``threshold``, ``left``, ``right``, ``value``.
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
        # One after the other: numpy's own sum would group the trees by the number of rows, and the last bits with them.
        total = np.zeros(len(rows))
        for tree in self.state["trees"]:
            total += _leaf_values(tree, filled)
        if self.kind == "forest":
            return np.asarray(total / len(self.state["trees"]))
        return sigmoid(self.state["bias"] + self.state["rate"] * total)

    def to_json(self) -> dict[str, Any]:
        """The head as JSON values; :meth:`from_json` gives it back."""
        return {"names": list(self.names), "fill": self.fill.tolist(), "kind": self.kind, "state": self.state}

    @staticmethod
    def from_json(data: Any) -> Head:
        """The head that :meth:`to_json` described.

        Raises:
            InputError: a part is missing, of another length, or no number.
        """
        try:
            head = Head(tuple(data["names"]), np.array(data["fill"], dtype=np.float64), data["kind"], data["state"])
            with np.errstate(all="ignore"):
                if not np.isfinite(head.probability(np.zeros((1, len(head.names))))).all():
                    raise ValueError("its probability is not a finite number")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
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
    if kind == "logistic":
        return Head(names, fill, kind, _logistic(filled, truth, weights))
    return Head(names, fill, kind, (_boosting if kind == "boosting" else _forest)(filled, truth, seed, weights))


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
    trees = [_tree(estimator.tree_, estimator.tree_.value[:, 0, 0]) for estimator in model.estimators_[:, 0]]
    return {"bias": float(logit(np.array([prior]))[0]), "rate": model.learning_rate, "trees": trees}


def _forest(rows: np.ndarray, truth: np.ndarray, seed: int, weights: np.ndarray | None) -> dict[str, Any]:
    from sklearn.ensemble import ExtraTreesClassifier

    model = ExtraTreesClassifier(n_estimators=150, min_samples_leaf=4, max_features=0.3, random_state=seed, n_jobs=1)
    model.fit(rows, truth, sample_weight=weights)
    true = model.classes_.tolist().index(1)
    # The value of a node is the share of each class since scikit-learn 1.3, and was the weight of each before.
    shares = [estimator.tree_.value[:, 0, :] / estimator.tree_.value[:, 0, :].sum(axis=1, keepdims=True) for estimator in model.estimators_]
    return {"trees": [_tree(estimator.tree_, share[:, true]) for estimator, share in zip(model.estimators_, shares, strict=True)]}


def _tree(tree: Any, values: np.ndarray) -> dict[str, list[float]]:
    leaf = tree.children_left < 0
    return {
        "feature": np.where(leaf, -1, tree.feature).tolist(),
        "threshold": np.where(leaf, 0.0, tree.threshold).tolist(),
        "left": tree.children_left.tolist(),
        "right": tree.children_right.tolist(),
        "value": np.where(leaf, values, 0.0).tolist(),
    }
