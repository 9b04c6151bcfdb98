"""Held-out prediction: do concepts found on one half of the families tell how the subject does on the other half?

Each split gives two experiments, one half finding and the other testing. On the finding half features are flagged (gap,
typical, strength) and ranked, by the calibrated columns and by raw chi_model; on the testing half each group of features
becomes one (:func:`gapscope.competency.study.merge`), whose adjusted effect and whose saliency-weighted success rate are then
measured with their intervals. What the two experiments of a split and the splits among themselves say is averaged, ends of
intervals too: they are about the same items, so that no confidence is gained.

``r`` is the correlation over features of their effects in the two halves. For the raw ranking most of it is there without
any concept effect, because both halves hold the same hard benchmarks; so ``r_shuffled`` gives what is left when scores are
permuted inside their strata (mean and central 95% of draws). ``item_r`` is the correlation, inside strata, of items' scores
with what the features predict for them: the saliency-weighted mean of the features' effects, shrunk by their errors.

Leave-one-group-out does the same between benchmarks: the effects on one of them against those on all the others.
"""

from __future__ import annotations

import numpy as np

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.inference import GAP, STRENGTH, TYPICAL, contrast, decide
from gapscope.competency.intervals import reference
from gapscope.competency.outcome import CALIBRATED, RAW, Outcome, averaged
from gapscope.competency.performance import SubjectScores
from gapscope.competency.study import Features, Study, View, ends, merge, raw_chi, shuffled, view
from gapscope.competency.units import Units, cell_means

FLAGS = {"gap": GAP, "typical": TYPICAL, "strength": STRENGTH}
SHUFFLES = 40
"""Draws of permuted scores behind ``r_shuffled``."""

FEWEST = 3
"""Fewer features than this have no correlation worth the name."""


def held_out(study: Study, features: Features, slug: str, splits: int, n_ends: int) -> list[Outcome]:
    """The check of one subject and one feature set, averaged over splits."""
    subject, found = study.subjects[slug], []
    for split in range(splits):
        first = study.half(split)
        views = [view(study, features, subject, half) for half in (first, ~first)]
        for finding, testing in (views, views[::-1]):
            found += _groups(study, features.name, slug, finding, testing, n_ends)
            found.append(item_r(features.name, slug, finding, testing))
        found += _agreement(study, features.name, slug, views, split)
    return averaged(found)


def _groups(study: Study, name: str, slug: str, finding: View, testing: View, n_ends: int) -> list[Outcome]:
    """Effect and success rate on the testing half of what the finding half flags and ranks."""
    _, _, _, status = decide(finding.one, finding.tested, study.performance.alpha, same=1.0)
    groups: dict[tuple[str, str], IntArray] = {(CALIBRATED, flag): np.flatnonzero(status == code) for flag, code in FLAGS.items()}
    for ranking, order in ((CALIBRATED, finding.sureness), (RAW, finding.raw(study.n_benchmarks))):
        groups |= {(ranking, end): chosen for end, chosen in zip(("lowest", "highest"), ends(order, n_ends), strict=True)}
    effect = contrast(merge(testing.suite, list(groups.values())), study.performance.confidence, with_p=False)
    rate = _success(testing.units, list(groups.values()), study.performance.confidence)
    outcomes = []
    for place, ((ranking, group), members) in enumerate(groups.items()):
        for quantity, numbers in (("adjusted", (effect.adjusted, effect.low, effect.high)), ("success", rate)):
            value, low, high = (float(part[place]) for part in numbers)
            outcomes.append(Outcome(name, slug, ranking, group, quantity, value, low, high, len(members)))
    return outcomes


def _success(units: Units, groups: list[IntArray], confidence: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Chance-corrected success rate of the units that carry each group, benchmarks as one, with the interval of chi_model."""
    merged, room = merge(units, groups), 1 - units.floors
    everything = np.zeros(len(units.scores), dtype=np.int64)
    scores = np.clip((units.scores - units.floors) / room, 0.0, 1.0)
    found = reference(merged.saliency, scores, everything, units.families, confidence=confidence)
    # reference takes scores of 0 to 1: the floor comes back with the same weights.
    mass = np.asarray(merged.saliency.sum(axis=0), dtype=np.float64).ravel()
    floor = np.divide(merged.saliency.T @ units.floors, mass, out=np.full(len(mass), np.nan), where=mass > 0)
    value, low, high = (part[0] * (1 - floor) + floor for part in (found.chi_model, found.low, found.high))
    return value, low, high


def item_r(name: str, slug: str, finding: View, testing: View) -> Outcome:
    """Correlation, inside strata, of the testing half's scores with what the finding half's effects predict of them."""
    effects = _weighed(finding)
    units = testing.suite
    mass = units.saliency @ finding.tested.astype(np.float64)
    predicted = np.divide(units.saliency @ effects, mass, out=np.zeros(len(mass)), where=mass > 0)
    inside = predicted - cell_means(predicted, units.cells)[units.cells]
    residuals = units.scores - cell_means(units.scores, units.cells)[units.cells]
    value = correlation(inside, residuals)
    half = 1.96 / max(len(residuals) - int(units.cells[-1]) - 1, 1) ** 0.5
    n = 0 if np.isnan(value) else len(residuals)
    return Outcome(name, slug, CALIBRATED, "items", "item_r", value, value - half, value + half, n)


def _weighed(finding: View) -> FloatArray:
    """Effects (F) shrunk by their errors, as if true ones spread as much as the median error; 0 where not tested.

    The estimated spread would not do: where it is 0, as of a subject near chance, nothing at all would be predicted.
    """
    effects, known = np.zeros(len(finding.tested)), finding.tested & (np.nan_to_num(finding.one.error) > 0)
    if known.any():
        squared = finding.one.error[known] ** 2
        effects[known] = finding.one.adjusted[known] * np.median(squared) / (np.median(squared) + squared)
    return effects


def _agreement(study: Study, name: str, slug: str, views: list[View], split: int) -> list[Outcome]:
    """Correlation over features of their effects in the two halves, and the same of permuted scores."""
    both = views[0].tested & views[1].tested
    seeds = (2 * split, 2 * split + 1)
    draws = [shuffled(one.units, SHUFFLES, study.seed + place) for place, one in zip(seeds, views, strict=True)]
    observed = {
        CALIBRATED: [one.one.adjusted[:, None] for one in views],
        RAW: [raw_chi(one.units, one.units.scores[:, None], study.n_benchmarks) for one in views],
    }
    permuted = {
        CALIBRATED: [_effects(one, draw) for one, draw in zip(views, draws, strict=True)],
        RAW: [raw_chi(one.units, draw, study.n_benchmarks) for one, draw in zip(views, draws, strict=True)],
    }
    outcomes = []
    for ranking in (CALIBRATED, RAW):
        value = correlation(*(side[both, 0] for side in observed[ranking]))
        n = 0 if np.isnan(value) else int(both.sum())
        outcomes.append(Outcome(name, slug, ranking, "features", "r", value, n=n))
        sides = permuted[ranking]
        null = np.array([correlation(sides[0][both, draw], sides[1][both, draw]) for draw in range(SHUFFLES)])
        if not n or np.isnan(null).any():
            outcomes.append(Outcome(name, slug, ranking, "features", "r_shuffled"))
            continue
        low, high = np.quantile(null, [0.025, 0.975])
        outcomes.append(Outcome(name, slug, ranking, "features", "r_shuffled", float(null.mean()), float(low), float(high), SHUFFLES))
    return outcomes


def _effects(one: View, scores: FloatArray) -> FloatArray:
    """Adjusted effects (F x D) of tables of scores of the view's units (U x D); NaN where there is no weight.

    The pooling factors are the view's own. Of families that lie in several benchmarks each unit counts by itself here.
    """
    units = one.suite if len(one.suite.scores) == len(one.units.scores) else one.units
    mass = np.asarray(units.saliency.sum(axis=0), dtype=np.float64).reshape(-1, 1)
    cells = one.units.cells
    means = np.stack([cell_means(column, cells)[cells] for column in scores.T], axis=1)
    effects: FloatArray = np.divide(
        units.saliency.T @ (scores - means), mass, out=np.full((len(mass), scores.shape[1]), np.nan), where=mass > 0
    )
    return effects


def correlation(first: FloatArray, second: FloatArray) -> float:
    """Pearson's r; NaN for fewer than three pairs or where one side does not vary."""
    if len(first) < FEWEST:
        return float("nan")
    a, b = first - first.mean(), second - second.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 1e-12 else float("nan")


def left_out(study: Study, features: Features, slug: str, n_ends: int) -> list[Outcome]:
    """Each group of the study in turn against all the others; nothing where the study has one group only."""
    if not len(study.group_codes):
        return [Outcome(features.name, slug, CALIBRATED, "left_out", quantity) for quantity in ("r", "lowest", "highest")]
    subject: SubjectScores = study.subjects[slug]
    found: list[Outcome] = []
    for code in range(len(study.groups)):
        inside = study.group_codes == code
        if np.isnan(subject.scores[inside]).all() or np.isnan(subject.scores[~inside]).all():
            continue
        finding, testing = (view(study, features, subject, chosen, with_p=False) for chosen in (~inside, inside))
        both = finding.tested & testing.tested
        pairs = [("r", correlation(finding.one.adjusted[both], testing.one.adjusted[both]), int(both.sum()))]
        lowest, highest = ends(np.where(both, finding.sureness, np.nan), n_ends)
        effect = contrast(merge(testing.suite, [lowest, highest]), study.performance.confidence, with_p=False)
        pairs += [
            (end, float(effect.adjusted[place]), len(side)) for place, (end, side) in enumerate((("lowest", lowest), ("highest", highest)))
        ]
        found += [Outcome(features.name, slug, CALIBRATED, study.groups[code], *pair[:1], pair[1], n=pair[2]) for pair in pairs]
    return found
