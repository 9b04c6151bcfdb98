"""Two subjects on the same items: on which concepts one does better or worse than the other, and where it is more than elsewhere.

Two questions are asked of each concept, over the items that both subjects have a score of:

- ``difference``: chi_model of the second minus chi_model of the first. Did the score change here at all? Its p flips the two
  subjects' places family by family (:mod:`gapscope.competency.sign_flips`). Where one subject is better throughout, this
  is so of almost every concept, and says little of any.
- ``relative``: the difference minus its mean on comparable items (of the same benchmark, stratum and size of family), weighted
  by saliency. Did it change more, or less, than elsewhere? Its p permutes differences inside strata, exactly as the
  performance stage does with scores (:mod:`gapscope.competency.inference`); the interval, q and findings are made the same way.

What the metrics file says of each pair, in plain words (the README quotes these):

- ``n_items``: items that both have a score of; ``n_only_one``: that one of them has.
- ``mean_first``, ``mean_second``, ``difference``, ``low``, ``high``, ``p``: mean score over benchmarks on them, and its change.
- ``n_tested``: concepts with enough effective items. ``n_better`` and ``n_worse``: of these, where the score rose or fell.
  ``n_ahead`` and ``n_behind``: where the change was better or worse than on comparable items; ``n_ahead_findings`` and
  ``n_behind_findings``: how many independent findings these are. All at the stated false-discovery rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gapscope.artifacts import CHANGES, SUITE
from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.inference import GAP, STRENGTH, TYPICAL, UNDEFINED, Calibrated, benjamini_hochberg, calibrate
from gapscope.competency.intervals import reference
from gapscope.competency.performance import SubjectScores, Suite, read_scores
from gapscope.competency.sign_flips import flip_p
from gapscope.competency.units import sum_rows
from gapscope.errors import InputError
from gapscope.params import PerformanceParams

RELATIVE_STATUSES = ("behind", "ahead", "typical", "unsupported", "undefined")
"""What calibrate() calls gap, strength, typical, unsupported and undefined, of a difference."""


@dataclass(frozen=True)
class Comparison:
    """Two subjects compared; every array B+1 x C, the last row the suite, NaN where undefined.

    Attributes:
        first, second: chi_model of each over the items that both have a score of.
        difference, low, high: second minus first, with its interval.
        p, q: of the difference; q over the tested concepts.
        n, n_eff: items on which the concept fires, and how many equally weighted ones they are worth.
        n_gained, n_lost: of these, how many the second scores higher and lower.
        relative: the same difference against comparable items, halved, with everything that calibrate() gives.
        total: mean over benchmarks of the first, of the second, their difference, its low, high and p.
        n_only_one: items that only one of the two has a score of.
    """

    first: FloatArray
    second: FloatArray
    difference: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    q: FloatArray
    n: IntArray
    n_eff: FloatArray
    n_gained: IntArray
    n_lost: IntArray
    relative: Calibrated
    total: tuple[float, ...]
    n_items: int
    n_only_one: int

    @property
    def tested(self) -> np.ndarray:
        """Where the support suffices and the concept is not excluded (B+1 x C, bool)."""
        return self.relative.status <= TYPICAL


def compare(suite: Suite, first: SubjectScores, second: SubjectScores, params: PerformanceParams) -> Comparison:
    """Compare two subjects on the items that both have a score of.

    Raises:
        InputError: there is no such item.
    """
    both = ~(np.isnan(first.scores) | np.isnan(second.scores))
    if not both.any():
        raise InputError("the two subjects have no scored item in common", fix="score both on the same suite")
    change = np.where(both, second.scores - first.scores, np.nan)
    # Halved and moved, a difference is a number from 0 to 1, as intervals and the permutation null want it.
    halved = (change + 1) / 2
    codes, families = suite.rows.codes, suite.families
    parts = [np.where(both, subject.scores, np.nan) for subject in (first, second)]
    chi = [reference(suite.saliency, scores, codes, families, confidence=params.confidence).chi_model for scores in parts]
    plain = reference(suite.saliency, halved, codes, families, confidence=params.confidence)
    relative = calibrate(
        suite.saliency,
        halved,
        np.zeros(len(halved)),
        codes,
        suite.strata,
        families,
        min_n_eff=params.min_n_eff,
        alpha=params.alpha,
        excluded=suite.excluded,
        confidence=params.confidence,
    )
    p = _flipped(suite.saliency, change, codes, families)
    gained, lost = (_count(suite.saliency, side, codes, len(suite.rows.benchmarks)) for side in (change > 0, change < 0))
    difference, low, high = (2 * values - 1 for values in (plain.chi_model, plain.low, plain.high))
    p, q = np.where(np.isnan(difference), np.nan, p), np.full(p.shape, np.nan)
    for row, tested in enumerate(relative.status <= TYPICAL):
        q[row, tested] = benjamini_hochberg(p[row, tested])
    total = _total(suite, parts, halved, change, params.confidence)
    n_only_one = int((np.isnan(first.scores) ^ np.isnan(second.scores)).sum())
    counts = (plain.n, plain.n_eff, gained, lost)
    return Comparison(chi[0], chi[1], difference, low, high, p, q, *counts, relative, total, int(both.sum()), n_only_one)


def _flipped(saliency: sp.csr_matrix, change: FloatArray, codes: IntArray, families: IntArray) -> FloatArray:
    """Sign-flip p of each benchmark's and the suite's difference (B+1 x C)."""
    scored = np.flatnonzero(~np.isnan(change))
    part, code = saliency[scored].astype(np.float64), codes[scored]
    n_benchmarks = int(codes.max()) + 1
    totals = sum_rows(part, code, n_benchmarks)
    # Each benchmark's weights sum to 1, since the suite's difference is the mean of the benchmarks'.
    inverse = totals.copy()
    inverse.data = 1 / inverse.data
    weighted = sp.csr_matrix(part.multiply(inverse[code]).multiply(change[scored][:, None]))
    _, family_of = np.unique(families[scored], return_inverse=True)
    rows = []
    for chosen in [*(code == one for one in range(n_benchmarks)), np.ones(len(scored), dtype=bool)]:
        inside = np.flatnonzero(chosen)
        rows.append(flip_p(sum_rows(weighted[inside], family_of[inside], int(family_of.max()) + 1)))
    return np.stack(rows)


def _count(saliency: sp.csr_matrix, items: np.ndarray, codes: IntArray, n_benchmarks: int) -> IntArray:
    """On how many of these items (I, bool) each concept fires, by benchmark and in all (B+1 x C)."""
    rows = np.flatnonzero(items)
    fires = sp.csr_matrix(saliency[rows] > 0, dtype=np.int64)
    counts = sum_rows(fires, codes[rows], n_benchmarks).toarray().astype(np.int64)
    return np.vstack([counts, counts.sum(axis=0)])


def _total(suite: Suite, parts: list[FloatArray], halved: FloatArray, change: FloatArray, confidence: float) -> tuple[float, ...]:
    """The subjects' mean scores over benchmarks, and the difference with its interval and p: a concept that all items carry."""
    everywhere = sp.csr_matrix(np.ones((len(halved), 1)))
    codes, families = suite.rows.codes, suite.families
    means = [float(reference(everywhere, scores, codes, families).chi_model[-1, 0]) for scores in parts]
    plain = reference(everywhere, halved, codes, families, confidence=confidence)
    p = _flipped(everywhere, change, codes, families)
    ends = [2 * float(values[-1, 0]) - 1 for values in (plain.chi_model, plain.low, plain.high)]
    return (*means, *ends, float(p[-1, 0]))


def comparison_columns(suite: Suite, pair: tuple[str, str], found: Comparison) -> dict[str, Any]:
    """The columns of the changes table of one pair."""
    names, n_concepts = [*suite.rows.benchmarks, SUITE], found.first.shape[1]
    relative, length = found.relative, len(names) * n_concepts
    return {
        "subject": [pair[0]] * length,
        "other": [pair[1]] * length,
        "benchmark": np.repeat(np.array(names, dtype=object), n_concepts),
        "concept": np.tile(np.arange(n_concepts), len(names)),
        **{name: getattr(found, name).ravel() for name in ("first", "second", "difference", "low", "high", "p", "q")},
        **{name: getattr(found, name).ravel() for name in ("n", "n_eff", "n_gained", "n_lost")},
        **{f"relative{name}": 2 * getattr(relative, of).ravel() for name, of in (("", "adjusted"), ("_low", "low"), ("_high", "high"))},
        "relative_p": relative.p.ravel(),
        "relative_q": relative.q.ravel(),
        "finding": [None if lead < 0 else str(lead) for lead in relative.finding.ravel().tolist()],
        "status": [RELATIVE_STATUSES[state] for state in relative.status.ravel().tolist()],
    }


def headlines(found: Comparison, alpha: float) -> dict[str, Any]:
    """The metrics of one pair, as the module's docstring explains them."""
    suite, q = found.difference[-1], found.q[-1]
    status = found.relative.status[-1]
    names = ("mean_first", "mean_second", "difference", "low", "high", "p")
    return {
        "n_items": found.n_items,
        "n_only_one": found.n_only_one,
        **dict(zip(names, found.total, strict=True)),
        "n_tested": int(found.tested[-1].sum()),
        "n_undefined": int((status == UNDEFINED).sum()),
        "n_better": int(((q < alpha) & (suite > 0)).sum()),
        "n_worse": int(((q < alpha) & (suite < 0)).sum()),
        "n_ahead": int((status == STRENGTH).sum()),
        "n_behind": int((status == GAP).sum()),
        "n_ahead_findings": int(found.relative.findings(STRENGTH)[-1]),
        "n_behind_findings": int(found.relative.findings(GAP)[-1]),
    }


def write_comparisons(suite: Suite, scores: Path, pairs: list[tuple[str, str]], output: Path, params: PerformanceParams) -> dict[str, Any]:
    """Compare each pair of subjects, write one table of all to ``output`` and return metrics by first and second subject.

    Raises:
        InputError: a subject's scores are absent or damaged, or the two share no scored item.
    """
    columns: dict[str, list[Any]] = {column.name: [] for column in CHANGES.columns}
    metrics: dict[str, Any] = {"n_pairs": len(pairs)}
    for first, second in sorted(pairs):
        subjects = [read_scores(scores / slug / "scores.parquet", suite.rows) for slug in (first, second)]
        found = compare(suite, subjects[0], subjects[1], params)
        for name, values in comparison_columns(suite, (first, second), found).items():
            columns[name] += list(values)
        metrics.setdefault(first, {})[second] = headlines(found, params.alpha)
    CHANGES.write(output, columns)
    return metrics
