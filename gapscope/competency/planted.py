"""Planted gaps and permuted scores: what is found where the truth is known, because it was made.

**Planted.** Scores are first permuted inside their strata, so that no concept has an effect while benchmarks and lengths stay
as hard as they are. Then a few tested features are chosen at random; on the units that carry one of them (those of greatest
weight that hold half of all its weight) each score falls to that of a wrong answer with the chance ``drop``. Other features
that fire on these items have a true effect too, so two kinds of precision are reported:

- ``precision``: share of what is named that truly does worse: its effect, had every unit its expected score, is at least a
  quarter of the smallest planted one. ``precision_planted``: share that was itself planted.
- ``recall``: share of the planted that are named.

The calibrated analysis names the gaps; the raw ranking, which names nothing, is given as many as the calibrated analysis
named, or as many as were planted where that is more.

**Null.** Scores permuted and nothing planted, so that every discovery is false and the false-discovery rate is the share of
analyses with ``any_discovery``. Whoever reads the raw ranking with its intervals takes for a gap or a strength what does not
hold the subject's mean: ``outside_mean``, the share of tested features of which that is so under permuted scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.inference import GAP, decide, null_discoveries
from gapscope.competency.intervals import reference
from gapscope.competency.outcome import CALIBRATED, RAW, Outcome, mean_of_draws, share
from gapscope.competency.study import Features, Study, View, raw_chi, shuffled, view, view_units
from gapscope.competency.units import Units, cell_means
from gapscope.files import stable_hash

CARRIED = 0.5
"""Share of a feature's weight that the units said to carry it hold."""

DEEP = 0.25
"""Share of the smallest planted effect from which on another feature's effect counts as true."""

RAW_DRAWS = 5
"""Permuted scores of which the raw intervals are looked at."""

MEASURES = ("recall", "precision", "precision_planted")


@dataclass(frozen=True)
class Plant:
    """Scores with gaps planted.

    Attributes:
        scores: of each unit (U).
        chosen: the planted features.
        effects: true adjusted effect of every feature (F).
    """

    scores: FloatArray
    chosen: IntArray
    effects: FloatArray


def plant(one: View, scores: FloatArray, count: int, drop: float, rng: np.random.Generator) -> Plant:
    """Plant ``count`` gaps among the view's tested features in scores (U) of its units."""
    tested = np.flatnonzero(one.tested)
    chosen = np.sort(rng.choice(tested, min(count, len(tested)), replace=False))
    carried = np.stack([carriers(one.units, int(feature)) for feature in chosen])
    hit = (rng.random(carried.shape) < drop) & carried
    fallen = np.where(hit.any(axis=0), one.units.floors, scores)
    expected = one.units.floors + (scores - one.units.floors) * (1 - drop) ** carried.sum(axis=0)
    change = expected - scores
    cells = one.units.cells
    units = one.suite if len(one.suite.scores) == len(scores) else one.units
    mass = np.asarray(units.saliency.sum(axis=0), dtype=np.float64).ravel()
    moved = units.saliency.T @ (change - cell_means(change, cells)[cells])
    return Plant(fallen, chosen, np.divide(moved, mass, out=np.zeros(len(mass)), where=mass > 0))


def carriers(units: Units, feature: int) -> np.ndarray:
    """The units (U, bool) of greatest weight that together hold half of the feature's weight."""
    weight = units.saliency[:, [feature]].toarray().ravel().astype(np.float64)
    order = np.argsort(-weight, kind="stable")
    held = np.cumsum(weight[order])
    mask = np.zeros(len(weight), dtype=bool)
    mask[order[: int(np.searchsorted(held, CARRIED * held[-1])) + 1]] = True
    return np.asarray(mask & (weight > 0))


def planted_gaps(study: Study, features: Features, n_draws: int, count: int, drop: float) -> list[Outcome]:
    """Recall and precision over draws, each on another subject's permuted scores in turn."""
    slugs = sorted(study.subjects)
    views = {slug: view(study, features, study.subjects[slug], with_p=False) for slug in slugs[:n_draws]}
    found: dict[str, list[FloatArray]] = {CALIBRATED: [], RAW: []}
    for draw in range(n_draws):
        one = views[slugs[draw % len(slugs)]]
        if not one.tested.any():
            continue
        rng = np.random.default_rng(stable_hash("planted", study.seed, draw))
        made = plant(one, shuffled(one.units, 1, study.seed + draw)[:, 0], count, drop, rng)
        again = view_units(study, features, replace(one.units, scores=made.scores))
        named = np.flatnonzero(decide(again.one, again.tested, study.performance.alpha, same=1.0)[3] == GAP)
        chi = np.where(again.tested, raw_chi(again.units, made.scores[:, None], study.n_benchmarks)[:, 0], np.inf)
        worst = np.argsort(chi, kind="stable")[: max(len(named), len(made.chosen))]
        found[CALIBRATED].append(_measures(named, made))
        found[RAW].append(_measures(worst, made))
    return [outcome for ranking, rows in found.items() for outcome in _summary(features.name, ranking, rows)]


def _measures(named: IntArray, made: Plant) -> FloatArray:
    """Recall and the two kinds of precision; no precision where nothing is named."""
    true = made.effects <= DEEP * made.effects[made.chosen].max()
    precision = float(true[named].mean()) if len(named) else np.nan
    planted = float(np.isin(named, made.chosen).mean()) if len(named) else np.nan
    return np.array([np.isin(made.chosen, named).mean(), precision, planted, len(named)])


def _summary(name: str, ranking: str, rows: list[FloatArray]) -> list[Outcome]:
    table = np.array(rows).reshape(-1, len(MEASURES) + 1)
    outcomes = []
    for place, quantity in enumerate((*MEASURES, "named")):
        high = np.inf if quantity == "named" else 1.0
        n = int((~np.isnan(table[:, place])).sum())
        outcomes.append(Outcome(name, "", ranking, "", quantity, *mean_of_draws(table[:, place], 0.0, high), n))
    return outcomes


def permuted_null(study: Study, features: Features, slug: str, n_draws: int) -> list[Outcome]:
    """Any discovery under permuted scores, against alpha; and what the raw intervals would claim of the same scores."""
    one = view(study, features, study.subjects[slug], with_p=False)
    if not one.tested.any():
        return [Outcome(features.name, slug, CALIBRATED, "", "any_discovery"), Outcome(features.name, slug, RAW, "", "outside_mean")]
    counts = null_discoveries(one.one, one.tested, study.performance.alpha, n_draws, study.seed)
    any_found = share(int((counts > 0).sum()), n_draws)
    outside = [_outside(study, one, scores) for scores in shuffled(one.units, RAW_DRAWS, study.seed).T]
    return [
        Outcome(features.name, slug, CALIBRATED, "", "any_discovery", *any_found, n=n_draws),
        Outcome(features.name, slug, CALIBRATED, "", "discoveries", float(counts.mean()), n=n_draws),
        Outcome(features.name, slug, RAW, "", "outside_mean", *mean_of_draws(np.array(outside), 0.0, 1.0), n=RAW_DRAWS),
    ]


def _outside(study: Study, one: View, scores: FloatArray) -> float:
    """Share of the tested features whose raw interval does not hold the mean over benchmarks of the units' scores."""
    units, room = one.units, 1 - one.units.floors
    scaled = np.clip((scores - units.floors) / room, 0.0, 1.0)
    found = reference(units.saliency, scaled, units.benchmarks, units.families, confidence=study.performance.confidence)
    codes = np.unique(units.benchmarks)
    mean = float(np.mean([scaled[units.benchmarks == code].mean() for code in codes]))
    low, high = found.low[-1][one.tested], found.high[-1][one.tested]
    return float(((low > mean) | (high < mean)).mean())
