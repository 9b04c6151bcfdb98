"""Do benchmarks that exercise the same concepts say the same of subjects?

How alike two benchmarks are is taken from the observer alone: the cosine of their chi_bench over concepts, and the share of
one's coverage that the other has too (asymmetric: sum over concepts of the lesser chi_bench over the sum of the one's). How
alike they really are is taken from results: over at least five subjects, the correlation of their accuracies on the two, each
subject's mean over benchmarks and each benchmark's mean over subjects taken off, since strong subjects are good at everything.
Whether the first tells the second is a rank correlation over pairs of benchmarks. Its p is by permuting benchmarks (Mantel's
test), because pairs that share a benchmark are not independent.

Of a suite with one benchmark, the values of strata.meta stand for benchmarks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from gapscope.competency.activations import FloatArray
from gapscope.competency.heldout import correlation
from gapscope.competency.outcome import Outcome
from gapscope.competency.study import CONCEPTS, Features, Study

FEWEST_SUBJECTS, FEWEST_GROUPS = 5, 4
PERMUTATIONS = 2000


@dataclass(frozen=True)
class Alike:
    """Benchmarks against benchmarks (G x G): cosine of coverage, share of the row's coverage that the column has."""

    cosine: FloatArray
    contained: FloatArray


def alike(study: Study, features: Features) -> Alike:
    """How alike the groups of the study are in what they exercise."""
    n_groups = len(study.groups)
    sums = np.zeros((n_groups, features.matrix.shape[1]))
    for code in range(n_groups):
        sums[code] = np.asarray(features.matrix[np.flatnonzero(study.group_codes == code)].sum(axis=0)).ravel()
    total = sums.sum(axis=1, keepdims=True)
    chi = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
    # Shares of a concept that all have in common say nothing, so the mean benchmark is taken off before the angle.
    centred = chi - chi.mean(axis=0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    contained = np.stack([np.minimum(row, chi).sum(axis=1) for row in chi])
    return Alike(unit @ unit.T, contained)


def results_alike(study: Study) -> FloatArray | None:
    """Correlation over subjects of what is left of their accuracies on each pair of groups (G x G); None for too few."""
    n_groups = len(study.groups)
    if len(study.subjects) < FEWEST_SUBJECTS or n_groups < FEWEST_GROUPS:
        return None
    table = np.array(
        [[np.nanmean(subject.scores[study.group_codes == code]) for code in range(n_groups)] for subject in study.subjects.values()]
    )
    left = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0, keepdims=True) + table.mean()
    return np.array([[correlation(left[:, one], left[:, other]) for other in range(n_groups)] for one in range(n_groups)])


def redundancy(study: Study, features: Features) -> list[Outcome]:
    """Pairs of groups, and whether likeness of concepts tells likeness of results (``agreement``, p under ``agreement_p``)."""
    if not len(study.group_codes):
        return [Outcome(CONCEPTS, "", "", "pairs", "agreement")]
    found, results = alike(study, features), results_alike(study)
    outcomes = []
    for one, name in enumerate(study.groups):
        for other, second in enumerate(study.groups):
            if one == other:
                continue
            pair = f"{name} in {second}"
            outcomes.append(Outcome(features.name, "", "", pair, "contained", float(found.contained[one, other]), n=1))
            if one < other:
                outcomes.append(Outcome(features.name, "", "", pair, "cosine", float(found.cosine[one, other]), n=1))
                if results is not None:
                    outcomes.append(Outcome(features.name, "", "", pair, "results", float(results[one, other]), n=len(study.subjects)))
    return [*outcomes, *_agreement(study, features, found, results)]


def _agreement(study: Study, features: Features, found: Alike, results: FloatArray | None) -> list[Outcome]:
    names = [Outcome(features.name, "", "", "pairs", quantity) for quantity in ("agreement", "agreement_p")]
    if results is None or np.isnan(results).any():
        return names
    upper = np.triu_indices(len(study.groups), 1)
    real = rankdata(results[upper])
    observed = correlation(rankdata(found.cosine[upper]), real)
    rng = np.random.default_rng([study.seed, 3])
    beyond = 0
    for _ in range(PERMUTATIONS):
        order = rng.permutation(len(study.groups))
        beyond += correlation(rankdata(found.cosine[np.ix_(order, order)][upper]), real) >= observed
    n = len(real)
    p = (beyond + 1) / (PERMUTATIONS + 1)
    return [
        Outcome(features.name, "", "", "pairs", "agreement", observed, n=n),
        Outcome(features.name, "", "", "pairs", "agreement_p", p, n=PERMUTATIONS),
    ]
