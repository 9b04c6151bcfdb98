"""One run as one page: what is read from the artifacts, and under which name it stands in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gapscope.competency.activations import read_rows
from gapscope.errors import InputError
from gapscope.files import read_json, rounded, write_bytes
from gapscope.items import Item
from gapscope.progress import track
from gapscope.report.accuracy import Suite, accuracy_by_benchmark, read_suite
from gapscope.report.explorer.answers import answers_block, items_block
from gapscope.report.explorer.blocks import Block
from gapscope.report.explorer.changes import read_changes
from gapscope.report.explorer.concepts import clusters, coverage_blocks, performance_blocks
from gapscope.report.explorer.contexts import read_found
from gapscope.report.explorer.neighbours import neighbours_block
from gapscope.report.explorer.page import render_run
from gapscope.report.explorer.robustness import robustness
from gapscope.report.explorer.sources import About, ExplorerPaths
from gapscope.report.inputs import found_observers, found_subjects, read_overlap
from gapscope.report.text import one_line, shorten

FORM = 1
"""Form of the page's data; the script refuses another."""


def write_explorer(file: Path, paths: ExplorerPaths, about: About) -> dict[str, Any]:
    """Write the page of a run; return its size.

    Raises:
        InputError: an artifact is absent, damaged or does not belong to the others.
    """
    meta, blocks = gather(paths, about)
    write_bytes(file, render_run(meta, blocks).encode())
    return {"kib_explorer": file.stat().st_size // 1024}


def gather(paths: ExplorerPaths, about: About) -> tuple[dict[str, Any], dict[str, Block]]:
    """What the page says of the run, and its columns of numbers."""
    artifacts = paths.artifacts
    slugs = sorted(about.observers) or found_observers(artifacts)
    if not slugs:
        raise InputError("holds no coverage table", file=artifacts.coverage, fix="run the coverage stage")
    suite = read_suite(artifacts.items / "items.jsonl", read_rows(artifacts.activations / slugs[0]))
    blocks: dict[str, Block] = {}
    observers: dict[str, Any] = {}
    shown: set[str] = set()
    for slug in track(slugs, "explorer", len(slugs), "observer"):
        observers[slug], item_ids = _observer(paths, about, slug, suite, blocks)
        shown |= set(item_ids)
    items = [item for item in suite.items if item.id in shown]
    items.sort(key=lambda item: item.id)
    place = {item.id: code for code, item in enumerate(items)}
    for slug in slugs:
        observers[slug]["items"] = [place[name] for name in observers[slug]["items"]]
    blocks["items"] = items_block(items)
    subjects = _subjects(paths, about, slugs, suite, items, blocks)
    meta: dict[str, Any] = {
        "form": FORM,
        "digest": paths.digest(),
        "about": about.shown(),
        "benchmarks": _benchmarks(suite, artifacts.items / "report.json"),
        "observers": observers,
        "subjects": subjects,
        "n_items": len(suite.items),
        "robustness": robustness(paths.variants, paths.robustness, blocks),
        "validity": _validity(paths.validity),
    }
    return rounded(meta), blocks


NO_CHECKS = "This run has no validity checks: the validity stage has not been run."


def _validity(file: Path | None) -> dict[str, Any]:
    """The metrics of the validity stage, or why there are none."""
    if file is None or not file.exists():
        return {"absent": NO_CHECKS}
    found: dict[str, Any] = read_json(file)
    return found


def _benchmarks(suite: Suite, report: Path) -> list[dict[str, Any]]:
    """The benchmarks in the order of every benchmark x concept grid."""
    known = read_json(report).get("benchmarks", {}) if report.exists() else {}
    sizes = np.bincount(suite.rows.codes, minlength=len(suite.rows.benchmarks))
    tokens = np.bincount(suite.rows.codes, weights=suite.rows.n_tokens, minlength=len(sizes))
    return [
        {
            "slug": slug,
            "n_items": int(sizes[code]),
            "n_tokens": int(tokens[code]),
            "kind": known.get(slug, {}).get("kind"),
            "licence": known.get(slug, {}).get("licence"),
        }
        for code, slug in enumerate(suite.rows.benchmarks)
    ]


def _observer(paths: ExplorerPaths, about: About, slug: str, suite: Suite, blocks: dict[str, Block]) -> tuple[dict[str, Any], list[str]]:
    """What is shown of an observer: its concepts, their labels, contexts and neighbours, and the subjects seen by it."""
    artifacts, benchmarks = paths.artifacts, suite.rows.benchmarks
    concepts, block, cells = coverage_blocks(artifacts.coverage / slug / "coverage.parquet", benchmarks)
    labels, groups = clusters(artifacts.clusters / f"{slug}.parquet", concepts)
    found = read_found(artifacts.activations / slug / "contexts.parquet", {item.id: len(item.text) for item in suite.items})
    _add_labels(block, concepts, labels, found.peaks)
    blocks[f"concepts-{slug}"], blocks[f"cells-{slug}"] = block, cells
    found.block.value("texts", found.texts)
    blocks[f"contexts-{slug}"] = found.block
    if paths.sae is not None:
        clustered = sorted({concept for group in groups for concept in group["concepts"]})
        blocks[f"neighbours-{slug}"] = neighbours_block(paths.sae / slug, concepts, clustered)
    subjects = {}
    for subject in sorted(about.models) or found_subjects(artifacts, slug):
        table = artifacts.performance / slug / f"{subject}.parquet"
        whole, by_benchmark, subjects[subject] = performance_blocks(table, concepts, benchmarks)
        blocks[f"performance-{slug}-{subject}"], blocks[f"parts-{slug}-{subject}"] = whole, by_benchmark
    pairs = read_changes(paths.changes and paths.changes / f"{slug}.parquet", concepts)
    for number, (_pair, changes) in enumerate(pairs):
        blocks[f"changes-{slug}-{number}"] = changes
    meta = read_json(artifacts.activations / slug / "meta.json")
    return {
        "name": _name(about.observers.get(slug, slug)),
        "n_concepts": len(concepts),
        "sae": {key: meta["sae"].get(key) for key in ("id", "architecture", "layer", "d_sae")},
        "totals": {key: meta["totals"].get(key) for key in ("fvu", "l0", "n_tokens", "n_masked", "n_truncated", "n_items")},
        "subjects": subjects,
        "clusters": groups,
        "changes": [pair for pair, _changes in pairs],
        "overlap": read_overlap(artifacts.coverage / slug / "overlap.parquet"),
        "items": found.item_ids,
        "n_contexts_left_out": found.n_left_out,
        "neuronpedia": about.neuronpedia.get(slug),
    }, found.item_ids


def _add_labels(block: Block, concepts: np.ndarray, labels: dict[int, dict[str, Any]], peaks: dict[int, str]) -> None:
    """A label for every concept: that of the cluster stage, else the pieces on which the concept fires most."""
    rows = [labels.get(concept) for concept in concepts.tolist()]
    texts = [
        row["text"] if row else shorten(one_line(peaks.get(concept, "")), 80) for concept, row in zip(concepts.tolist(), rows, strict=True)
    ]
    block.value("label", texts)
    block.codes("label_source", [row["source"] if row else "tokens" if text else None for row, text in zip(rows, texts, strict=True)])
    block.linear("label_score", np.array([np.nan if row is None or row["score"] is None else row["score"] for row in rows]))
    block.codes("cluster", [row["cluster"] if row else None for row in rows])


def _subjects(
    paths: ExplorerPaths, about: About, observers: list[str], suite: Suite, items: list[Item], blocks: dict[str, Block]
) -> dict[str, Any]:
    """Names and accuracies of the subjects; their answers to the shown items become blocks."""
    artifacts = paths.artifacts
    slugs = sorted({slug for observer in observers for slug in sorted(about.models) or found_subjects(artifacts, observer)})
    found: dict[str, Any] = {}
    for slug in slugs:
        file = artifacts.scores / slug / "scores.parquet"
        blocks[f"answers-{slug}"] = answers_block(file, items)
        accuracy = accuracy_by_benchmark(slug, file, suite, about.confidence)
        rows = [{key: value for key, value in row.items() if key != "subject"} for row in accuracy]
        found[slug] = {"name": _name(about.models.get(slug, slug)), "accuracy": rows}
    return found


def _name(text: str) -> str:
    return shorten(one_line(text), 80)
