"""Whether a subject's gap is there on other questions: the score of the items that carry its concepts, against the rest.

The measure is that of the performance stage (``adjusted``): the chance-corrected score minus the mean of comparable items (here
variants of one type, originals of one benchmark), weighted by saliency. All of a subject's gap concepts are taken as one, each
by its shares of what the suite holds of it (:func:`gapscope.loop.gaps.carried`), because so few texts do not tell one from another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.units import weighted_count
from gapscope.loop.reached import family_draws

HOLDS, REVERSED, UNDECIDED, UNSUPPORTED, NOT_ASKED = "holds", "reversed", "undecided", "unsupported", "not_asked"


@dataclass(frozen=True)
class Answered:
    """Scored texts (T): their weights, chance-corrected scores, and codes of what is comparable and of families (from 0)."""

    weights: FloatArray
    scores: FloatArray
    cells: IntArray
    families: IntArray

    @staticmethod
    def of(weights: FloatArray, scores: FloatArray, chance: FloatArray, cells: list[str], families: list[str]) -> Answered:
        """From scores of 0 to 1, NaN where unscored. A text that has no other to be compared with is left out."""
        scored = np.flatnonzero(~np.isnan(scores))
        codes, counts = np.unique(np.array(cells, dtype=object)[scored], return_inverse=True, return_counts=True)[1:]
        kept = scored[counts[codes] > 1]
        corrected = (scores[kept] - chance[kept]) / (1 - chance[kept])
        names = (np.array(values, dtype=object)[kept] for values in (cells, families))
        cell_of, family_of = (np.unique(values, return_inverse=True)[1].astype(np.int64) for values in names)
        return Answered(weights[kept], corrected, cell_of, family_of)

    def by_family(self) -> FloatArray:
        """Sum of each family's weights."""
        return weighted_count(self.families, self.weights, 1)

    @property
    def n(self) -> int:
        """Texts that carry any of the concepts."""
        return int((self.weights > 0).sum())

    @property
    def n_eff(self) -> float:
        """How many equally weighted families they are worth: (sum w)^2 / sum w^2 over families; 0 without any."""
        total = self.by_family()
        return float(total.sum() ** 2 / (total**2).sum()) if total.any() else 0.0


def difference(texts: Answered, times: FloatArray) -> FloatArray:
    """sum w (s - mean of its cell) / sum w, with each text counted as often as its family is drawn (D x F): (D,), NaN undefined."""
    drawn = times[:, texts.families]
    cells = np.eye(int(texts.cells.max()) + 1)[texts.cells]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = ((drawn * texts.scores) @ cells) / (drawn @ cells)
        # A cell that no text is drawn of has no mean, and no weight.
        residuals = texts.scores - np.nan_to_num(means) @ cells.T
        found: FloatArray = ((drawn * texts.weights * residuals).sum(axis=1)) / (drawn @ texts.weights)
    return found


def hold(texts: Answered, min_n_eff: float, draws: int, confidence: float, seed: int) -> dict[str, float | str | None]:
    """The difference with its interval by bootstrap over families, and what it says.

    ``holds``: the interval is below 0; ``reversed``: above; ``undecided``: neither; ``unsupported``: fewer effective families than
    ``min_n_eff``, and no figure is given.
    """
    told: dict[str, float | str | None] = {"n": texts.n, "n_eff": texts.n_eff, "difference": None, "low": None, "high": None}
    if texts.n_eff < min_n_eff:
        return told | {"status": UNSUPPORTED}
    n = int(texts.families.max()) + 1
    drawn = difference(texts, family_draws(n, draws, seed))
    drawn = drawn[np.isfinite(drawn)]
    told |= {"difference": float(difference(texts, np.ones((1, n)))[0]), "status": UNDECIDED}
    if len(drawn) and np.ptp(drawn) > 1e-12:
        low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
        told |= {"low": low, "high": high, "status": HOLDS if high < 0 else REVERSED if low > 0 else UNDECIDED}
    return told
