"""The evaluate stage: every subject that can be run on originals and variants, and what the set gives away by itself."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.artifacts import ANSWERS, COMPARISONS, ROBUSTNESS
from gapscope.errors import InputError
from gapscope.files import atomic_directory, read_json, stable_hash, write_json
from gapscope.items import Item, read_items, write_items
from gapscope.params import Model, Params, ScoreParams
from gapscope.params_robustness import EvaluateParams
from gapscope.scores import ItemScore
from gapscope.scoring import score_model
from gapscope.variants.accepted import read_variants
from gapscope.variants.cards import Provenance
from gapscope.variants.comparison import compare
from gapscope.variants.export import write_export
from gapscope.variants.presentation import presented
from gapscope.variants.quality import choices_only, quality_row
from gapscope.variants.ranking import agreement
from gapscope.variants.robustness import ALL, MEASURES, SUBSETS, Outcomes, in_subset, outcomes, summary
from gapscope.variants.tables import write_plot
from gapscope.variants.types import TYPES
from gapscope.work import WorkDirectory

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Made:
    """How a set came about: the filter stage's report, and the verifier's scores on held-out families."""

    report: Mapping[str, Any]
    heldout: Mapping[str, float]


@dataclass(frozen=True)
class Families:
    """Accepted variants and their originals, by family, as they are put to a subject."""

    originals: dict[str, Item]
    variants: list[Item]

    @property
    def items(self) -> list[Item]:
        """Originals, then variants, each in order of id."""
        return [*sorted(self.originals.values(), key=lambda item: item.id), *self.variants]


def read_families(variants_file: Path, items_file: Path, seed: int) -> Families:
    """Variants and their originals with their choices in seeded order; no family where the file of variants is empty.

    Raises:
        InputError: an item is at fault, an original is missing or has no choices, or two originals share a family.
    """
    variants = read_variants(variants_file)
    if not variants:
        return Families({}, [])
    known = {item.id: item for item in read_items(items_file)}
    originals: dict[str, Item] = {}
    for variant in variants:
        if variant.id in known:
            raise InputError(f"{variant.id!r} is an item's id too", file=variants_file, field="id", fix="give the variant an id of its own")
        original = known.get(variant.meta["original"])
        if original is None or original.answer is None or variant.answer is None:
            raise InputError(f"the original of {variant.id!r} is not among the items", file=variants_file, field="meta.original")
        if originals.setdefault(variant.family, original).id != original.id:
            raise InputError(f"family {variant.family!r} has two originals", file=variants_file, field="family")
    arranged = {family: presented(item, seed) for family, item in originals.items()}
    return Families(arranged, [presented(variant, seed) for variant in sorted(variants, key=lambda item: item.id)])


def read_made(variants: Path, verifier: Path | None) -> Made:
    """How a set came about, from what filter and sft wrote; raises InputError where filter's report is no object."""
    report = variants / "report.json"
    scores = verifier / "report.json" if verifier is not None else None
    told = read_json(scores) if scores is not None and scores.exists() else {}
    heldout = told.get("heldout") if isinstance(told, dict) else None
    numbers = {name: value for name, value in (heldout or {}).items() if isinstance(value, int | float)}
    made = read_json(report) if report.exists() else {}
    if not isinstance(made, dict):
        raise InputError("must be an object", file=report, fix="run filter again")
    return Made(made, numbers)


def write_evaluation(
    families: Families, raw: Path, output: Path, plot: Path, params: Params, made: Made, work_root: Path
) -> dict[str, Any]:
    """Write the tables, ``quality.json`` and ``export/`` of an evaluation; returns the headline metrics.

    ``presented.jsonl`` holds the items as they were asked, ``answers.parquet`` who answered what, ``robustness.parquet``
    the measures by subject and subset, ``comparisons.parquet`` the tests between subjects, ``quality.json`` the baselines
    and gold positions of the set, the subjects that could not be asked, how many questions each other one read only in part,
    and the agreement of rankings.

    Args:
        families: what is asked.
        raw: directory of the fetched sources.
        output: directory to write.
        plot: file for the accuracies as rows of a DVC plot.
        params: of the whole run: ``models`` (a subject of imported results cannot answer new questions), ``score``,
            ``evaluate``, ``threads`` and ``seed``; a benchmark's licence goes to the card.
        made: how the set came about, for the card.
        work_root: where finished batches are kept for a restart.
    """
    local = {slug: model for slug, model in sorted(params.models.items()) if model.results is None}
    asked, blind, works = _ask(families, raw, local, params, work_root)
    quality = _quality(families, blind) | {"not_asked": dict.fromkeys(sorted(params.models.keys() - local.keys()), NOT_ASKED)}
    found = {slug: outcomes(families.originals, families.variants, scores) for slug, scores in asked.items()}
    rows = _rows(families, asked, params.evaluate, params.seed)
    accuracy = {row["subject"]: row["ara"] for row in rows if row["subset"] == ALL and row["ara"] is not None}
    quality["ranking"] = agreement(accuracy, raw, params.evaluate.reference)
    quality["n_truncated"] = {slug: n_truncated(scores) for slug, scores in asked.items()}
    with atomic_directory(output) as place:
        write_items(place / "presented.jsonl", families.items)
        ROBUSTNESS.write(place / "robustness.parquet", {c.name: [row[c.name] for row in rows] for c in ROBUSTNESS.columns})
        ANSWERS.write(place / "answers.parquet", _answers(families, asked))
        COMPARISONS.write(place / "comparisons.parquet", compare(found))
        write_json(place / "quality.json", quality)
        sources = sorted({item.benchmark for item in families.originals.values()})
        licences = {slug: _licence(params, slug) for slug in sources if slug in params.benchmarks}
        card = Provenance(licences, made.report, made.heldout, _baselines(quality))
        write_export(place / "export", families.originals, families.variants, params.score, card)
    # Last, so that a run that fails leaves the plot of the one before.
    write_plot(plot, accuracy_rows(rows))
    for work in works:
        work.clear()
    return headline(families, rows, quality)


def _licence(params: Params, slug: str) -> str:
    benchmark = params.benchmarks[slug]
    return benchmark.licence or params.sources[benchmark.source].licence


NO_ACCURACY = {"subject": "none", "asked": "none", "accuracy": 0, "low": None, "high": None, "chance": None, "n": 0}
"""The one row of a plot that has nothing to draw."""
NOT_ASKED = "its results were imported, so it cannot answer new questions"


def _ask(
    families: Families, raw: Path, local: Mapping[str, Model], params: Params, work_root: Path
) -> tuple[dict[str, dict[str, ItemScore]], dict[str, dict[str, ItemScore]], list[WorkDirectory]]:
    """Scores by subject and item id: of everything, and of the variants' choices without their question."""
    without = params.score.model_copy(update={"prompt": "{text}"})
    wanted: list[tuple[list[Item], ScoreParams]] = [
        (families.items, params.score),
        ([choices_only(variant) for variant in families.variants], without),
    ]
    found: list[dict[str, dict[str, ItemScore]]] = [{}, {}]
    works = []
    for slug, model in local.items():
        for part, (items, how) in enumerate(wanted):
            found[part][slug] = {}
            if not items:
                continue
            logger.info("%s: %d %s", slug, len(items), "sets of choices without their question" if part else "originals and variants")
            scores, work = score_model(raw / model.source, items, how, work_root, dtype=model.dtype, device="auto", threads=params.threads)
            found[part][slug] = {score.item_id: score for score in scores}
            works.append(work)
    return found[0], found[1], works


def _quality(families: Families, blind: Mapping[str, Mapping[str, ItemScore]]) -> dict[str, Any]:
    parts = {ALL: families.variants} | {slug: [v for v in families.variants if v.meta["type"] == slug] for slug in TYPES}
    return {"subsets": {name: quality_row(part, families.originals, blind) for name, part in parts.items()}}


def _rows(families: Families, asked: Mapping[str, Mapping[str, ItemScore]], params: EvaluateParams, seed: int) -> list[dict[str, Any]]:
    """One row of :data:`gapscope.artifacts.ROBUSTNESS` a subject and subset."""
    rows = []
    for slug, scores in asked.items():
        for subset in SUBSETS:
            part = [variant for variant in families.variants if in_subset(variant, subset)]
            found: Outcomes = outcomes(families.originals, part, scores)
            counts = {"n_families": len(found.families), "n_variants": len(found.variant), "n_unscored": found.n_unscored}
            chance = dict(zip(("chance_original", "chance_variant"), found.chance, strict=True))
            # One seed for every subject: the same families are drawn, so that subjects differ by their answers alone.
            interval = summary(found, params.bootstrap_draws, params.confidence, stable_hash(seed, "robustness", subset))
            rows.append({"subject": slug, "subset": subset, **counts, **chance, **interval})
    return rows


def n_truncated(scores: Mapping[str, ItemScore]) -> int:
    """Originals and variants of which the subject did not read the beginning, since they are longer than ``score.max_tokens``."""
    return sum(score.n_truncated > 0 for score in scores.values())


def accuracy_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Accuracy of every subject on the originals, all variants, and each subset that has any, with interval and chance."""
    found = []
    for row in rows:
        shown = [("originals", "oa", "chance_original")] if row["subset"] == ALL else []
        shown.append(("all variants" if row["subset"] == ALL else row["subset"], "ara", "chance_variant"))
        for asked, name, chance in shown:
            ends = {
                "accuracy": row[name],
                "low": row[f"{name}_low"],
                "high": row[f"{name}_high"],
                "chance": row[chance],
                "n": row["n_variants"],
            }
            found += [{"subject": row["subject"], "asked": asked, **ends}] if row["n_variants"] else []
    return found or [dict(NO_ACCURACY)]


def _answers(families: Families, asked: Mapping[str, Mapping[str, ItemScore]]) -> dict[str, list[Any]]:
    rows = [(slug, item, scores[item.id]) for slug, scores in asked.items() for item in families.items]
    original_ids = {item.id for item in families.originals.values()}
    family = {item.id: name for name, item in families.originals.items()}
    return {
        "subject": [slug for slug, _item, _score in rows],
        "item_id": [item.id for _slug, item, _score in rows],
        "family": [family.get(item.id, item.family) for _slug, item, _score in rows],
        "type": ["original" if item.id in original_ids else item.meta["type"] for _slug, item, _score in rows],
        "answer": [item.answer for _slug, item, _score in rows],
        "prediction": [score.prediction for _slug, _item, score in rows],
        "score": [score.score for _slug, _item, score in rows],
    }


def headline(families: Families, rows: Sequence[Mapping[str, Any]], quality: Mapping[str, Any]) -> dict[str, Any]:
    """What a person compares between two runs; what is undefined is left out, with its n."""
    metrics: dict[str, Any] = {"n_families": len(families.originals), "n_variants": len(families.variants)}
    metrics["types"] = {slug: Counter(v.meta["type"] for v in families.variants)[slug] for slug in TYPES}
    metrics["subjects"] = {
        row["subject"]: {"n_unscored": row["n_unscored"], "n_truncated": quality["n_truncated"][row["subject"]]}
        | {name: row[name] for name in MEASURES if row[name] is not None}
        for row in rows
        if row["subset"] == ALL
    }
    metrics["baselines"] = _baselines(quality)
    return metrics


def _baselines(quality: Mapping[str, Any]) -> dict[str, float]:
    """Accuracies of the baselines on all variants, and as ``chance`` that of a blind guess."""
    whole = quality["subsets"][ALL]
    rows = dict(whole.get("shortcuts", {})) | {f"choices_only_{slug}": row for slug, row in whole.get("choices_only", {}).items()}
    found = {name: row["accuracy"] for name, row in rows.items() if row["n"]}
    levels = [row["chance"] for row in whole.get("shortcuts", {}).values() if row["n"]]
    return found | ({"chance": levels[0]} if levels else {})
