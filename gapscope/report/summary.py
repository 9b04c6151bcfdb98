"""What came out of a run, gathered from whatever artifacts and metrics there are; what is absent is named, not guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gapscope.artifacts import SUITE
from gapscope.competency.activations import read_rows
from gapscope.errors import InputError
from gapscope.files import read_json
from gapscope.items import Item, read_items
from gapscope.report.accuracy import accuracy_by_benchmark, read_suite
from gapscope.report.extremes import Extreme, rank_extremes
from gapscope.report.inputs import (
    ArtifactPaths,
    Coverage,
    found_observers,
    found_subjects,
    read_coverage,
    read_labels,
    read_performance,
)
from gapscope.report.rows import SUITE_NAME
from gapscope.report.summary_rest import read_rest
from gapscope.report.text import one_line

T = TypeVar("T")


@dataclass(frozen=True)
class Where:
    """Directories of a run, and the names that the parameters give to observers and subjects (empty: whatever is there)."""

    data: Path
    metrics: Path
    plots: Path
    observers: Mapping[str, str]
    models: Mapping[str, str]
    min_n_eff: float
    confidence: float
    second_half: bool = True

    @property
    def artifacts(self) -> ArtifactPaths:
        """Where each stage's artifacts lie."""
        return ArtifactPaths(*(self.data / name for name in ("items", "activations", "coverage", "performance", "clusters", "scores")))


@dataclass
class Gathered:
    """What was found, as nested dicts of JSON values, and one line for each thing that was not."""

    found: dict[str, Any] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    def attempt(self, read: Callable[[], T]) -> T | None:
        """What ``read`` returns, or None and a line in ``absent`` where an artifact is not there or not usable."""
        try:
            return read()
        except InputError as error:
            if str(error) not in self.absent:
                self.absent.append(str(error))
            return None


def gather(where: Where, extremes: int) -> Gathered:
    """The summary of a run: suite, observers, subjects, the concepts at both ends, and where the files are."""
    gathered = Gathered()
    paths = where.artifacts
    items = gathered.attempt(lambda: read_items(paths.items / "items.jsonl"))
    gathered.found["suite"] = None if items is None else _suite(items)
    observers = dict(sorted(where.observers.items())) or {slug: slug for slug in found_observers(paths)}
    gathered.found["observers"] = {slug: _observer(gathered, where, slug, name) for slug, name in observers.items()}
    models = dict(sorted(where.models.items())) or {slug: slug for slug in _found_models(paths, observers)}
    gathered.found["subjects"] = {slug: _subject(gathered, paths, slug, name, observers, where.confidence) for slug, name in models.items()}
    concepts: dict[str, Any] = {}
    for observer in observers:
        coverage = gathered.attempt(lambda: read_coverage(paths.coverage / observer / "coverage.parquet"))  # noqa: B023 - called at once
        if coverage is not None:
            concepts[observer] = {
                subject: _concepts(gathered, paths, observer, subject, coverage, where.min_n_eff, extremes) for subject in models
            }
    gathered.found["concepts"] = concepts
    gathered.found["rest"] = gathered.attempt(lambda: read_rest(where.metrics, where.data / "robustness", second_half=where.second_half))
    gathered.found["confidence"] = where.confidence
    gathered.found["files"] = _files(where)
    if not observers:
        gathered.absent.append(f"{paths.coverage}: no observer's coverage (run the coverage stage, or dvc repro)")
    gathered.found["absent"] = gathered.absent
    return gathered


def _found_models(paths: ArtifactPaths, observers: Mapping[str, str]) -> list[str]:
    return sorted({subject for observer in observers for subject in found_subjects(paths, observer)})


def _suite(items: list[Item]) -> dict[str, Any]:
    benchmarks = sorted({item.benchmark for item in items})
    return {
        "n_benchmarks": len(benchmarks),
        "n_items": len(items),
        "kinds": sorted({item.kind for item in items}),
        "items": {name: sum(item.benchmark == name for item in items) for name in benchmarks},
    }


def _observer(gathered: Gathered, where: Where, slug: str, name: str) -> dict[str, Any]:
    """Concepts and missing shares of an observer, and whatever its SAE's metrics say."""
    coverage = gathered.attempt(lambda: read_coverage(where.artifacts.coverage / slug / "coverage.parquet"))
    sae = gathered.attempt(lambda: read_json(where.metrics / "train_sae" / f"{slug}.json"))
    found: dict[str, Any] = {"name": one_line(name), "sae": sae}
    if coverage is not None:
        found |= {
            "n_concepts": len(coverage.concepts),
            "missing_share": _missing_share(coverage.chi[SUITE]),
            "missing_share_unmasked": _missing_share(coverage.chi_unmasked[SUITE]),
            "n_missing": int((coverage.chi[SUITE] == 0).sum()),
            "n_dead": int(coverage.dead.sum()),
            "n_structural": int(coverage.structural.sum()),
        }
    return found


def _missing_share(chi: np.ndarray) -> float | None:
    known = np.isfinite(chi)
    return float((chi[known] == 0).mean()) if known.any() else None


def _subject(
    gathered: Gathered, paths: ArtifactPaths, slug: str, name: str, observers: Mapping[str, str], confidence: float
) -> dict[str, Any]:
    """Mean accuracy over benchmarks, with interval and chance level."""

    def accuracy() -> dict[str, Any]:
        rows = read_rows(paths.activations / next(iter(observers), ""))
        suite = read_suite(paths.items / "items.jsonl", rows)
        table = accuracy_by_benchmark(slug, paths.scores / slug / "scores.parquet", suite, confidence)
        suite_row = next(row for row in table if row["benchmark"] == SUITE_NAME)
        return {key: suite_row[key] for key in ("accuracy", "low", "high", "chance", "n", "n_unscored")}

    return {"name": one_line(name), **(gathered.attempt(accuracy) or {})}


def _concepts(
    gathered: Gathered, paths: ArtifactPaths, observer: str, subject: str, coverage: Coverage, min_n_eff: float, count: int
) -> dict[str, Any] | None:
    """The worst and best concepts of a subject as an observer sees it."""
    performance = gathered.attempt(lambda: read_performance(paths.performance / observer / f"{subject}.parquet"))
    labels = gathered.attempt(lambda: read_labels(paths.clusters / f"{observer}.parquet", subject))
    if performance is None:
        return None
    structural = set(coverage.concepts[coverage.structural].tolist())
    ranking = rank_extremes(performance, labels or {}, structural, len(coverage.concepts), min_n_eff, count)
    counts = {name: getattr(ranking, name) for name in ("n_ranked", "n_gap", "n_strength", "n_unsupported", "n_undefined")}
    ends = {side: [_concept(extreme) for extreme in getattr(ranking, side)] for side in ("worst", "best")}
    return {"calibrated": ranking.calibrated, **counts, **ends}


def _concept(extreme: Extreme) -> dict[str, Any]:
    values = {key: getattr(extreme, key) for key in ("concept", "value", "low", "high", "q", "n", "n_eff", "status", "n_alike")}
    label = extreme.label
    return {**values, "label": one_line(label.text) if label else None, "label_score": label.score if label else None}


def _files(where: Where) -> dict[str, str]:
    """What a person may want to open, where it is there."""
    wanted = {
        "plots": where.plots / "data",
        "figures": where.plots / "figures",
        "metrics": where.metrics,
        "coverage": where.data / "coverage",
        "performance": where.data / "performance",
        "clusters": where.data / "clusters",
        "validity": where.data / "validity",
        "variants": where.data / "variants",
        "robustness": where.data / "robustness",
        "explorer": where.plots / "explorer.html",
        "report": where.plots / "report.md",
    }
    return {name: path.as_posix() for name, path in wanted.items() if path.is_file() or (path.is_dir() and any(path.iterdir()))}
