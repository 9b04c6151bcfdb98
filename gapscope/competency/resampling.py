"""How much rankings move when the suite does: subsamples, bootstraps, and items left out.

**Subsampling.** The published check draws 80% of the items a hundred times. Such draws share most of their items, so their
spread understates the sampling error: without replacement by sqrt((1 - f) / f), one half at f = 0.8. So the bootstrap over
families stands beside it, and the error of the permutation null, from which intervals are made.

**Ablation.** Published: dropping the items tied to the best and worst 100 concepts moves the median performance. As the
concepts were chosen by the scores of these very items, some of that is certain. So each half of the families also chooses for
the other, and as many items are dropped at random for comparison. The items tied to concepts are the tenth that carries most
of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import rankdata

from gapscope.competency.activations import FloatArray
from gapscope.competency.heldout import correlation
from gapscope.competency.outcome import CALIBRATED, RAW, Outcome, averaged, centre
from gapscope.competency.study import Features, Study, View, ends, merge, view
from gapscope.competency.units import Units, weighted_count

TIED = 0.1
"""Share of the units that are dropped with a group of concepts."""


def subsampling(study: Study, features: Features, slug: str, n_draws: int, fraction: float, n_ends: int) -> list[Outcome]:
    """Spread of effects and of raw chi over draws, and what of the rankings' low ends stays in them."""
    one = view(study, features, study.subjects[slug], with_p=False)
    families = np.unique(one.units.families, return_inverse=True)[1]
    n_families = int(families.max()) + 1
    rng = np.random.default_rng([study.seed, 80])
    size = round(fraction * n_families)
    kept = np.stack([np.isin(np.arange(n_families), rng.choice(n_families, size, replace=False)) for _ in range(n_draws)], axis=1)
    drawn = np.stack([np.bincount(rng.integers(0, n_families, n_families), minlength=n_families) for _ in range(n_draws)], axis=1)
    times = {"subsample": kept[families].astype(np.float64), "bootstrap": drawn[families].astype(np.float64)}
    outcomes: list[Outcome] = []
    for ranking, effects, error in _rankings(study, one):
        whole = effects(np.ones((len(one.units.scores), 1)))[:, 0]
        spreads = {}
        for how, counts in times.items():
            table = effects(counts)[one.tested]
            spreads[how] = _deviations(table)
            outcomes += _stay(features.name, slug, ranking, how, whole[one.tested], table, error[one.tested], n_ends)
        outcomes += _spread(features.name, slug, ranking, spreads, error[one.tested], n_draws)
    return outcomes


Effects = Callable[[FloatArray], FloatArray]


def _rankings(study: Study, one: View) -> list[tuple[str, Effects, FloatArray]]:
    """Of each ranking: effects (F x D) for tables of how often each unit is drawn (U x D), and what they are divided by to rank."""
    units = one.suite if len(one.suite.scores) == len(one.units.scores) else one.units

    def calibrated(times: FloatArray) -> FloatArray:
        residuals = np.stack([_drawn_residuals(units, column) for column in times.T], axis=1)
        return _quotient(units.saliency.T @ residuals, units.saliency.T @ times)

    def raw(times: FloatArray) -> FloatArray:
        parts = []
        for code in range(study.n_benchmarks):
            rows = np.flatnonzero(one.units.benchmarks == code)
            part = one.units.saliency[rows]
            parts.append(_quotient(part.T @ (times[rows] * one.units.scores[rows, None]), part.T @ times[rows]))
        stacked = np.stack(parts)
        defined = ~np.isnan(stacked)
        return _quotient(np.nansum(stacked, axis=0), defined.sum(axis=0).astype(np.float64))

    return [(CALIBRATED, calibrated, one.one.error), (RAW, raw, np.ones(len(one.tested)))]


def _drawn_residuals(units: Units, times: FloatArray) -> FloatArray:
    """How often each unit is drawn times its score minus the drawn units' mean in its cell (U)."""
    n_cells = int(units.cells[-1]) + 1
    total, count = (weighted_count(units.cells, part, n_cells) for part in (times * units.scores, times))
    mean = np.divide(total, count, out=np.zeros(n_cells), where=count > 0)
    drawn: FloatArray = times * (units.scores - mean[units.cells])
    return drawn


def _quotient(part: FloatArray, whole: FloatArray) -> FloatArray:
    quotient: FloatArray = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 1e-12)
    return quotient


def _stay(
    name: str, slug: str, ranking: str, how: str, whole: FloatArray, table: FloatArray, error: FloatArray, n_ends: int
) -> list[Outcome]:
    """Rank correlation of each draw with the whole, and the share of the low end that is low in the draw too."""
    safe = np.where(error > 0, error, np.nan)
    lowest, stays, ranks = ends(whole / safe, n_ends)[0], [], []
    for column in table.T:
        known = ~np.isnan(column / safe) & ~np.isnan(whole)
        ranks.append(correlation(rankdata((whole / safe)[known]), rankdata((column / safe)[known])))
        if len(lowest):
            stays.append(float(np.isin(lowest, ends(column / safe, n_ends)[0]).mean()))
    outcomes = []
    for quantity, values in (("rank_correlation", np.array(ranks)), ("lowest_stay", np.array(stays))):
        known = values[~np.isnan(values)]
        outcomes.append(Outcome(name, slug, ranking, how, quantity, *centre(known, np.mean), len(known)))
    return outcomes


def _spread(name: str, slug: str, ranking: str, spreads: dict[str, FloatArray], error: FloatArray, n_draws: int) -> list[Outcome]:
    """Median over features of the standard deviation of each kind of draw, and of their ratio."""
    bootstrap = spreads["bootstrap"]
    medians = {(how, "deviation"): spread for how, spread in spreads.items()}
    medians["ratio", "subsample_to_bootstrap"] = _quotient(spreads["subsample"], bootstrap)
    if ranking == CALIBRATED:
        medians["ratio", "null_to_bootstrap"] = _quotient(error, bootstrap)
    outcomes = []
    for (group, quantity), values in medians.items():
        known = values[~np.isnan(values)]
        value, n = (float(np.median(known)), n_draws) if len(known) else (float("nan"), 0)
        outcomes.append(Outcome(name, slug, ranking, group, quantity, value, n=n))
    return outcomes


def _deviations(table: FloatArray) -> FloatArray:
    """Standard deviation of each row (F x D) over the draws in which it is defined; NaN where in fewer than two."""
    known = ~np.isnan(table)
    count = known.sum(axis=1)
    filled = np.where(known, table, 0.0)
    mean = filled.sum(axis=1) / np.maximum(count, 1)
    squares = (np.where(known, table - mean[:, None], 0.0) ** 2).sum(axis=1)
    deviations: FloatArray = np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)
    return deviations


def ablation(study: Study, features: Features, slug: str, n_draws: int, n_ends: int) -> list[Outcome]:
    """Change of the mean score when the tenth of the units that carries a ranking's end most is dropped.

    Groups ``lowest`` and ``highest`` name the end, ``random`` as many units at random. Quantity ``same_items`` where the
    concepts were chosen by the scores of the same items, ``other_items`` where another half of the families chose them.
    """
    subject = study.subjects[slug]
    half = study.half(0)
    everything, first, second = (view(study, features, subject, chosen, with_p=False) for chosen in (None, half, ~half))
    found: list[Outcome] = []
    for quantity, pairs in (("same_items", [(everything, everything)]), ("other_items", [(first, second), (second, first)])):
        for finding, testing in pairs:
            for ranking, order in ((CALIBRATED, finding.sureness), (RAW, finding.raw(study.n_benchmarks))):
                groups = dict(zip(("lowest", "highest"), ends(order, n_ends), strict=True))
                for group, members in groups.items():
                    change = _dropped(testing.units, members)
                    n = 0 if np.isnan(change) else len(members)
                    found.append(Outcome(features.name, slug, ranking, group, quantity, change, n=n))
            low, high = _random_drops(testing.units, n_draws, study.seed)
            found.append(Outcome(features.name, slug, "", "random", quantity, 0.0, low, high, n_draws))
    return averaged(found)


def _dropped(units: Units, members: np.ndarray) -> float:
    if not len(members):
        return float("nan")
    carried = merge(units, [members]).saliency.toarray().ravel()
    dropped = np.argsort(-carried, kind="stable")[: max(1, round(TIED * len(carried)))]
    rest = np.delete(units.scores, dropped)
    return float(rest.mean() - units.scores.mean())


def _random_drops(units: Units, n_draws: int, seed: int) -> tuple[float, float]:
    """Central 95% of the change of the mean when as many units are dropped at random."""
    rng, size = np.random.default_rng([seed, 10]), max(1, round(TIED * len(units.scores)))
    changes = [
        np.delete(units.scores, rng.choice(len(units.scores), size, replace=False)).mean() - units.scores.mean() for _ in range(n_draws)
    ]
    low, high = np.quantile(changes, [0.025, 0.975]).tolist()
    return low, high
