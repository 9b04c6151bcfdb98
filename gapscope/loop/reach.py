"""The reach stage: what a robustness benchmark reaches of the gaps of the suite that it was made from.

What the metrics file says, in plain words (the README quotes these):

- ``reached.<kind>``: of ``n`` gap concepts, on how many the ``variants`` fire, and the ``originals`` that they were made from;
  ``new``: on how many variants fire and no original. Of the kinds that items of the suite can reach, also on how many random items
  do: ``random_items`` as many as there are variants, ``random_tokens`` about as many tokens, ``random_rewritten`` about as many tokens of
  the benchmarks that are rewritten: mean over draws, the central part of them, and ``at_least``, the share of draws that reach as many
  as the variants or more. Only against these does "reached" mean anything; and since the gaps were found on those very items,
  ``at_least`` errs a little to the small side. Kinds: under and unexercised (coverage gaps), coverage (both), model (gaps of any
  subject); see :mod:`gapscope.loop.gaps`.
- ``rate``: firings of coverage gaps per 1,000 tokens of the ``suite``, the ``originals``, the ``variants`` and the ``reference`` corpus;
  ``change``: log2 of the variants' over the originals' and the suite's, with intervals over families.
- ``status``: coverage gaps by their status in the variants, against the reference corpus; undecided for want of text.
- ``model.<subject>``: whether the subject's gaps hold on the variants, and beside that on their originals (on which, among others,
  they were found: no news); see :mod:`gapscope.loop.held`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import ANSWERS, COVERAGE, REACH
from gapscope.competency.activations import FiringCounts, FloatArray, IntArray, read_counts, read_matrix, read_rows
from gapscope.competency.coverage import CoverageInputs, coverage_table
from gapscope.competency.extraction import write_activations
from gapscope.competency.intervals import column_sums
from gapscope.competency.units import weighted_count
from gapscope.errors import InputError
from gapscope.files import atomic_directory, stable_hash, write_json
from gapscope.items import Item, read_items, write_items
from gapscope.loop.gaps import COVERAGE_KINDS, MODEL, UNDER, UNEXERCISED, Gaps, carried, read_gaps
from gapscope.loop.held import NOT_ASKED, Answered, hold
from gapscope.loop.reached import Texts, against, n_reached, random_groups, rate_change
from gapscope.params import Params
from gapscope.variants.types import TYPES

ORIGINALS, VARIANTS = "originals", "variants"
DRAWN = (UNDER, MODEL)
"""Kinds that random items are held against; on an unexercised concept none of them fires, by definition."""
GROUPS: dict[str, tuple[str, ...]] = {UNDER: (UNDER,), UNEXERCISED: (UNEXERCISED,), "coverage": COVERAGE_KINDS, MODEL: (MODEL,)}


@dataclass(frozen=True)
class ReachPaths:
    """Directories of one observer (activations, coverage, performance, model, SAE), and what evaluate wrote."""

    activations: Path
    coverage: Path
    performance: Path
    model: Path
    sae: Path
    robustness: Path


@dataclass(frozen=True)
class Sides:
    """Everything that is compared: the gaps, the suite, and the set's two sides with the items behind them by id."""

    gaps: Gaps
    suite: Texts
    originals: Texts
    variants: Texts
    reference: FiringCounts | None
    items: dict[str, Item]

    def family(self, item_id: str) -> str:
        """The original's id, of an original or a variant."""
        item = self.items[item_id]
        return str(item.meta["original"]) if is_variant(item) else item_id

    def families(self, texts: Texts, per_text: FloatArray | IntArray) -> FloatArray:
        """Sums by family, in the order of the originals' ids."""
        place = {item_id: number for number, item_id in enumerate(self.originals.ids)}
        codes = np.array([place[self.family(item_id)] for item_id in texts.ids], dtype=np.int64)
        return weighted_count(codes, per_text.astype(np.float64), len(place))


def write_reach(paths: ReachPaths, output: Path, params: Params, work_root: Path, device: str) -> dict[str, Any]:
    """Read a set with the observer and write what it reaches; returns the metrics (the module's docstring explains them).

    ``items.jsonl`` is the set with originals and variants in the place of benchmarks, ``activations/`` and ``coverage.parquet`` what
    extract-activations and coverage make of it; ``concepts.parquet`` holds every gap concept, ``report.json`` the figures. Of a set
    without variants there is a report, and nothing is read.

    Raises:
        InputError: an artifact is absent, damaged or does not belong to the others.
    """
    gaps = read_gaps(paths.activations, paths.coverage, paths.performance)
    suite = Texts.read(paths.activations)
    reference = read_counts(paths.activations, "reference", suite.firing.shape[1])
    presented = read_presented(paths.robustness / "presented.jsonl")
    nothing = Texts.none(suite.firing.shape[1])
    sides = Sides(gaps, suite, nothing, nothing, reference, {item.id: item for item in presented})
    columns: dict[str, Any] = {}
    with atomic_directory(output) as place:
        if presented:
            _read_set(paths, presented, place, params, work_root, device)
            sides = _sides(sides, place / "activations")
            columns = _coverage(place, reference, params)
        table = REACH.build(concept_columns(sides, columns))
        REACH.write(place / "concepts.parquet", table)
        report = describe(sides, paths.robustness / "answers.parquet", params) | {"observer": params.loop_observer}
        report["status"] = statuses(table) if columns and reference is not None else {}
        write_json(place / "report.json", report)
    return finite(report)


def is_variant(item: Item) -> bool:
    """Whether a presented item is a variant: it names its original and its type. An item of the suite may have such keys of its own."""
    return "original" in item.meta and item.meta.get("type") in TYPES


def statuses(table: pa.Table) -> dict[str, int]:
    """Coverage gaps by their status in the variants: unexercised, under, typical or over there, or undecided for want of text."""
    kinds, names = table["kind"].to_pylist(), table["status"].to_pylist()
    found = Counter(name or "undecided" for kind, name in zip(kinds, names, strict=True) if kind in COVERAGE_KINDS)
    return dict(sorted(found.items()))


def read_presented(file: Path) -> list[Item]:
    """Originals and variants as they were asked, in order of id; none where the set is empty.

    Raises:
        InputError: an item is at fault, or the original of a variant is not there.
    """
    if file.exists() and file.stat().st_size == 0:
        return []
    items = read_items(file)
    ids = {item.id for item in items if not is_variant(item)}
    for item in items:
        if is_variant(item) and item.meta["original"] not in ids:
            raise InputError(
                f"the original of {item.id!r} is not among the items", file=file, field="meta.original", fix="run evaluate again"
            )
    return sorted(items, key=lambda item: item.id)


def _read_set(paths: ReachPaths, presented: Sequence[Item], place: Path, params: Params, work_root: Path, device: str) -> None:
    """Write the set as items of two benchmarks, and what the observer reads of them, as it read the suite."""
    observer = params.observers[params.loop_observer]
    renamed = [replace(item, benchmark=VARIANTS if is_variant(item) else ORIGINALS) for item in presented]
    write_items(place / "items.jsonl", renamed)
    write_activations(
        paths.model,
        paths.sae,
        place / "items.jsonl",
        None,
        params.extract_activations.model_copy(update={"random_control": False}),
        place / "activations",
        work_root,
        name=observer.name,
        layer=observer.layer,
        seed=params.seed,
        dtype=observer.dtype,
        device=device,
        threads=params.threads,
    )


def _sides(sides: Sides, activations: Path) -> Sides:
    texts, width = Texts.read(activations), sides.suite.firing.shape[1]
    if texts.firing.shape[1] != width:
        message = f"the SAE has {texts.firing.shape[1]} concepts, the suite's activations have {width}"
        raise InputError(message, file=activations, fix="run extract-activations again")
    return replace(sides, originals=texts.of(ORIGINALS), variants=texts.of(VARIANTS))


def _coverage(place: Path, reference: FiringCounts | None, params: Params) -> dict[str, Any]:
    """Write coverage.parquet of the set, held against the suite's reference corpus; returns the variants' columns."""
    rows = read_rows(place / "activations")
    saliency, firing = (read_matrix(place / "activations", name, rows) for name in ("saliency", "firing"))
    COVERAGE.write(
        place / "coverage.parquet", coverage_table(CoverageInputs(rows, saliency, firing, None, reference, None), params.coverage)
    )
    table = COVERAGE.read(place / "coverage.parquet")
    mine: pa.Table = table.filter(pc.equal(table["benchmark"], VARIANTS)).sort_by("concept")
    return {name: mine[name].to_pylist() for name in ("log_ratio", "log_ratio_low", "log_ratio_high", "status")}


def concept_columns(sides: Sides, coverage: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The columns of concepts.parquet; ``coverage`` holds the variants' columns by concept, or nothing."""
    found = sides.gaps.found
    data: dict[str, Any] = {name: [getattr(gap, name) for gap in found] for name in ("concept", "kind", "subject")}
    chosen = np.array(data["concept"], dtype=np.int64)
    for name, texts in (("suite", sides.suite), ("original", sides.originals), ("variant", sides.variants)):
        data |= {f"{name}_items": texts.n_firing()[chosen], f"{name}_rate": texts.rates()[chosen]}
    if sides.reference is not None and sides.reference.n_tokens:
        data["reference_rate"] = (sides.reference.n_firing / sides.reference.n_tokens)[chosen]
    return data | {name: [values[concept] for concept in chosen] for name, values in coverage.items()}


def describe(sides: Sides, answers: Path, params: Params) -> dict[str, Any]:
    """All figures of a set, None where undefined."""
    sizes = {ORIGINALS: sides.originals, VARIANTS: sides.variants}
    return {
        "n": {name: len(texts.ids) for name, texts in sizes.items()},
        "n_tokens": {name: int(texts.n_tokens.sum()) for name, texts in sizes.items()},
        "reached": reached(sides, params),
        **rates(sides, params),
        "model": models(sides, answers, params),
    }


def reached(sides: Sides, params: Params) -> dict[str, Any]:
    """How many gap concepts of each kind the variants fire on, against originals and random items."""
    draws = _draws(sides, params)
    rows: dict[str, Any] = {}
    for name, kinds in GROUPS.items():
        concepts = sides.gaps.concepts(*kinds)
        fires = {part: texts.n_firing()[concepts] > 0 for part, texts in ((ORIGINALS, sides.originals), (VARIANTS, sides.variants))}
        row: dict[str, Any] = {"n": len(concepts), **{part: int(mask.sum()) for part, mask in fires.items()}}
        row["new"] = int((fires[VARIANTS] & ~fires[ORIGINALS]).sum())
        for part, groups in draws.items() if name in DRAWN else ():
            counts = n_reached(sides.suite.firing[:, concepts], groups) if len(concepts) else np.empty(0, dtype=np.int64)
            row[part] = against(counts, row[VARIANTS], params.reach.confidence)
        rows[name] = row
    return rows


def _draws(sides: Sides, params: Params) -> dict[str, list[IntArray]]:
    """Places of random items of the suite, by what they are held against the variants for."""
    suite, draws = sides.suite, params.reach.draws
    size, tokens = len(sides.variants.ids), int(sides.variants.n_tokens.sum())
    anywhere = np.arange(len(suite.ids))
    chosen = [params.rewritten is None or name in params.rewritten for name in suite.benchmarks]
    rewritten = np.flatnonzero(np.array(chosen, dtype=bool))
    items, equal = random_groups(suite.n_tokens, anywhere, size, tokens, draws, params.seed)
    same = random_groups(suite.n_tokens, rewritten, size, tokens, draws, params.seed)[1]
    return {"random_items": items, "random_tokens": equal, "random_rewritten": same}


def rates(sides: Sides, params: Params) -> dict[str, Any]:
    """Firings of coverage gaps per 1,000 tokens, and how they change from originals, and from the suite, to variants."""
    concepts = sides.gaps.concepts(*COVERAGE_KINDS)
    parts = {"suite": sides.suite, ORIGINALS: sides.originals, VARIANTS: sides.variants}
    found: dict[str, float | None] = {
        name: 1000 * float(texts.rates()[concepts].sum()) if len(concepts) and texts.n_tokens.sum() else None
        for name, texts in parts.items()
    }
    known = sides.reference is not None and sides.reference.n_tokens > 0 and len(concepts) > 0
    found["reference"] = (
        1000 * float(sides.reference.n_firing[concepts].sum()) / sides.reference.n_tokens if known and sides.reference else None
    )
    variants, originals = (
        (sides.families(texts, np.asarray(texts.firing[:, concepts].sum(axis=1)).ravel()), sides.families(texts, texts.n_tokens))
        for texts in (sides.variants, sides.originals)
    )
    suite = None if found["suite"] is None else found["suite"] / 1000
    seed = stable_hash(params.seed, "reach", "rate")
    return {"rate": found, "change": rate_change(variants, originals, suite, params.reach.draws, params.reach.confidence, seed)}


def models(sides: Sides, answers: Path, params: Params) -> dict[str, Any]:
    """By subject: its gap concepts, and its score on what carries them against the rest, on variants and on originals."""
    table = ANSWERS.read(answers).to_pylist()
    asked = {
        subject: {row["item_id"]: row["score"] for row in table if row["subject"] == subject}
        for subject in {row["subject"] for row in table}
    }
    totals = column_sums(sides.gaps.saliency)
    found: dict[str, Any] = {}
    for subject in sides.gaps.subjects:
        concepts = sides.gaps.concepts(MODEL, subject=subject)
        row: dict[str, Any] = {"n_concepts": len(concepts)}
        for name, texts in ((VARIANTS, sides.variants), (ORIGINALS, sides.originals)):
            if subject not in asked:
                row[name] = {"status": NOT_ASKED}
                continue
            items = [sides.items[item_id] for item_id in texts.ids]
            scores = np.array([np.nan if (score := asked[subject].get(item.id)) is None else score for item in items], dtype=np.float64)
            cells = [str(item.meta["type"]) if name == VARIANTS else item.benchmark for item in items]
            families = [sides.family(item.id) for item in items]
            chance = np.array([item.chance for item in items], dtype=np.float64)
            one = Answered.of(carried(texts.saliency, totals, concepts), scores, chance, cells, families)
            seed = stable_hash(params.seed, "reach", name)
            row[name] = hold(one, params.performance.min_n_eff, params.reach.draws, params.reach.confidence, seed)
        found[subject] = row
    return found


def finite(report: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a nested dict: what is undefined or no number is left out."""
    parts = {name: finite(value) if isinstance(value, Mapping) else value for name, value in report.items()}
    return {name: value for name, value in parts.items() if isinstance(value, dict | int | float) and value != {}}
