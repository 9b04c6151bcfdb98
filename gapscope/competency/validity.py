"""How far a run's gaps can be trusted: eight checks, each of the calibrated ranking and of the raw one.

What the metrics file says under each check, then by observer (averages over subjects; the Parquet tables have them all):

- ``held_out``: what half of the families flags or ranks, measured on the other half (:mod:`gapscope.competency.heldout`).
- ``planted``: recall and precision of gaps that were made (:mod:`gapscope.competency.planted`).
- ``null``: how often anything is discovered where scores are permuted, which should be no more than alpha.
- ``subsampling``, ``ablation``: how rankings move with the items (:mod:`gapscope.competency.resampling`).
- ``other_sae``: whether another dictionary says the same (:mod:`gapscope.competency.other_sae`).
- ``stability``: labels and clusters from other contexts (:mod:`gapscope.competency.stability`).
- ``controls``: the first three with the concepts replaced (:mod:`gapscope.competency.features`), beside the concepts.
- ``redundancy``: whether benchmarks alike in concepts are alike in results (:mod:`gapscope.competency.redundancy`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gapscope.competency.features import item_words
from gapscope.competency.findings import SAME
from gapscope.competency.heldout import held_out, left_out
from gapscope.competency.inference import GAP, STRENGTH, decide
from gapscope.competency.item_labels import ItemWords, detection_scores
from gapscope.competency.other_sae import other_sae
from gapscope.competency.outcome import CALIBRATED, Outcome, averaged, centre, headline
from gapscope.competency.planted import permuted_null, planted_gaps
from gapscope.competency.redundancy import redundancy
from gapscope.competency.resampling import ablation, subsampling
from gapscope.competency.study import Features, Study, view
from gapscope.files import stable_hash
from gapscope.params_validity import ValidityParams
from gapscope.processes import side_by_side

LABELLED = 400
"""Features of each set that are labelled from items, chosen by hash."""

HEADLINES: dict[str, set[tuple[str, str]]] = {
    "held_out": {
        *((group, "success") for group in ("gap", "typical", "strength")),
        *((group, "adjusted") for group in ("gap", "strength", "lowest", "highest")),
        ("features", "r"),
        ("features", "r_shuffled"),
        ("items", "item_r"),
        ("left_out", "r"),
        ("left_out", "lowest"),
        ("left_out", "highest"),
    },
    "planted": {("", "recall"), ("", "precision"), ("", "precision_planted")},
    "null": {("", "any_discovery"), ("", "outside_mean")},
    "subsampling": {
        ("ratio", "subsample_to_bootstrap"),
        ("ratio", "null_to_bootstrap"),
        ("bootstrap", "lowest_stay"),
        ("subsample", "lowest_stay"),
    },
    "ablation": {(group, quantity) for group in ("lowest", "highest", "random") for quantity in ("same_items", "other_items")},
    "other_sae": {(group, quantity) for group in ("another", "random") for quantity in ("rank_correlation", "likeness", "confirmed")},
    "stability": {("", quantity) for quantity in ("keywords_same", "keywords_others", "clusters")},
    "redundancy": {("pairs", "agreement"), ("pairs", "agreement_p")},
}
"""(group, quantity) that the metrics file holds of each check; the tables hold everything."""


@dataclass(frozen=True)
class Others:
    """What the concepts are compared with: control feature sets, and sets that concepts are matched to, by name."""

    controls: Sequence[Features]
    matched: dict[str, Features]


def run_checks(
    study: Study, others: Others, stability: Callable[[], list[Outcome]], params: ValidityParams, threads: int = 1
) -> dict[str, list[Outcome]]:
    """All checks of one observer; ``stability`` is given, since it rests on other artifacts. The table of each check.

    Each subject with each feature set is by itself, so they go through ``threads`` processes; the outcomes do not depend on it.
    """
    concepts, slugs = study.concepts(), sorted(study.subjects)
    words = ItemWords.of(item_words(study.items), study.suite.rows.item_ids)
    # The longest are begun first.
    jobs: list[tuple[str, Callable[[], list[Outcome]]]] = [
        ("stability", stability),
        ("other_sae", partial(other_sae, study, others.matched)),
        ("redundancy", partial(redundancy, study, concepts)),
    ]
    for features in (concepts, *others.controls):
        mine = features is concepts
        for slug in slugs:
            jobs.append(("held_out" if mine else "controls", partial(_held_out, study, features, slug, params)))
            jobs.append(("null" if mine else "controls", partial(permuted_null, study, features, slug, params.null_draws)))
        jobs.append(("planted" if mine else "controls", partial(_planted, study, features, params)))
        jobs.append(("controls", partial(_described, study, features, words)))
    for slug in slugs:
        jobs.append(("subsampling", partial(subsampling, study, concepts, slug, params.resamples, params.subsample, params.ends)))
        jobs.append(("ablation", partial(ablation, study, concepts, slug, params.resamples, params.ends)))
    found = side_by_side([job for _, job in jobs], threads, "checks", "check")
    tables: dict[str, list[Outcome]] = {name: [] for name in (*HEADLINES, "controls")}
    for (name, _), outcomes in zip(jobs, found, strict=True):
        tables[name] += outcomes
    repeated = [outcome for name in ("held_out", "planted", "null") for outcome in tables[name]]
    tables["controls"] = repeated + tables["controls"]
    return tables


def _held_out(study: Study, features: Features, slug: str, params: ValidityParams) -> list[Outcome]:
    halves = held_out(study, features, slug, params.splits, params.ends)
    groups = left_out(study, features, slug, params.ends)
    return halves + groups + (averaged(groups, group="left_out") if len(study.group_codes) else [])


def _planted(study: Study, features: Features, params: ValidityParams) -> list[Outcome]:
    return planted_gaps(study, features, params.planted_draws, params.planted_concepts, params.planted_drop)


def _described(study: Study, features: Features, words: ItemWords) -> list[Outcome]:
    """What each set finds in the whole suite, and how well its tested features can be put into words."""
    outcomes: list[Outcome] = []
    tested = np.zeros(features.matrix.shape[1], dtype=bool)
    for slug in sorted(study.subjects):
        one = view(study, features, study.subjects[slug])
        tested |= one.tested
        _, _, finding, status = decide(one.one, one.tested, study.performance.alpha, SAME)
        n = len(one.tested)
        outcomes.append(Outcome(features.name, slug, CALIBRATED, "suite", "tested", float(one.tested.sum()), n=n))
        for name, code in (("gaps", GAP), ("strengths", STRENGTH)):
            flagged = status == code
            found = {name: int(flagged.sum()), f"{name}_findings": len(np.unique(finding[flagged]))}
            outcomes += [
                Outcome(features.name, slug, CALIBRATED, "suite", quantity, float(value), n=n) for quantity, value in found.items()
            ]
    chosen = sorted(np.flatnonzero(tested).tolist(), key=lambda place: stable_hash("labelled", features.name, place))[:LABELLED]
    scores = detection_scores(features.matrix, np.sort(np.array(chosen, dtype=np.int64)), words)
    known = scores[~np.isnan(scores)]
    return [*outcomes, Outcome(features.name, "", "", "suite", "label_score", *centre(known, np.median), len(known))]


def metrics_of(tables: Mapping[str, list[Outcome]]) -> dict[str, Any]:
    """The headline metrics of one observer by check."""
    metrics = {name: headline(_chosen(tables[name], wanted)) for name, wanted in HEADLINES.items()}
    sets = dict.fromkeys(outcome.features for outcome in tables["controls"])
    return metrics | {"controls": {name: _control(tables["controls"], name) for name in sets}}


def _chosen(outcomes: Iterable[Outcome], wanted: set[tuple[str, str]]) -> list[Outcome]:
    return [outcome for outcome in outcomes if (outcome.group, outcome.quantity) in wanted]


CONTROL_COLUMNS = {
    ("suite", "tested"): "n_tested",
    ("suite", "gaps"): "gaps",
    ("suite", "gaps_findings"): "gap_findings",
    ("lowest", "adjusted"): "lowest",
    ("highest", "adjusted"): "highest",
    ("features", "r"): "r",
    ("items", "item_r"): "item_r",
    ("", "recall"): "planted_recall",
    ("", "precision_planted"): "planted_precision",
    ("", "any_discovery"): "null_any_discovery",
    ("suite", "label_score"): "label_score",
}
"""Name in the table of controls of each (group, quantity), calibrated; ``r_chance`` is what r exceeds in 2.5% of permutations."""

NOTHING_FOUND = Outcome("", "", "", "", "")


def _control(outcomes: list[Outcome], name: str) -> dict[str, Any]:
    mine = [replace(one, ranking="") for one in outcomes if one.features == name and one.ranking in (CALIBRATED, "")]
    found = {(one.group, one.quantity): one for one in averaged(mine, subject="")}
    numbers = {column: found[key].value for key, column in CONTROL_COLUMNS.items() if key in found and not np.isnan(found[key].value)}
    if not np.isnan(chance := found.get(("features", "r_shuffled"), NOTHING_FOUND).high):
        numbers["r_chance"] = chance
    return numbers if numbers.get("n_tested") else {"n_tested": 0}
