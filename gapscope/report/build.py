"""The report of a run: plot data for DVC and figures for people, from the artifacts of the stages before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.competency.activations import read_rows
from gapscope.errors import InputError
from gapscope.files import atomic_directory
from gapscope.params import ReportParams
from gapscope.progress import track
from gapscope.report import rows as data
from gapscope.report.accuracy import accuracy_by_benchmark, mean_over_benchmarks, read_suite
from gapscope.report.extremes import Ranking, rank_extremes
from gapscope.report.figures_accuracy import draw_accuracy
from gapscope.report.figures_concepts import draw_extremes
from gapscope.report.figures_subject import Context, draw_coverage_performance, draw_performance_distribution
from gapscope.report.figures_suite import draw_coverage_distribution, draw_missing, draw_overlap
from gapscope.report.inputs import (
    ArtifactPaths,
    Coverage,
    Performance,
    found_observers,
    found_subjects,
    read_coverage,
    read_labels,
    read_overlap,
    read_performance,
)
from gapscope.report.rows import Row
from gapscope.report.style import house_style
from gapscope.report.text import one_line, shorten

PLOTS = (
    "coverage_distribution",
    "performance_distribution",
    "coverage_performance",
    "worst_concepts",
    "best_concepts",
    "missing_by_benchmark",
    "concept_overlap",
    "accuracy_by_benchmark",
)
"""Names of the plot data files, without their ending."""


@dataclass(frozen=True)
class Setup:
    """What the report shows and how.

    ``observers`` and ``models`` map slugs to names; where they are empty, whatever lies in the directories is shown by its slug.
    """

    report: ReportParams
    min_n_eff: float
    alpha: float
    confidence: float
    observers: Mapping[str, str]
    models: Mapping[str, str]


@dataclass(frozen=True)
class Pair:
    """One subject seen by one observer."""

    observer: str
    subject: str
    about: Context
    coverage: Coverage
    performance: Performance
    ranking: Ranking


def write_report(paths: ArtifactPaths, plots: Path, figures: Path, setup: Setup) -> dict[str, Any]:
    """Write one JSON list a plot into ``plots`` and SVG and PNG figures into ``figures``; return how many of each.

    Raises:
        InputError: an artifact is absent, damaged or does not belong to the others.
    """
    observers = _chosen(setup.observers, found_observers(paths), paths.coverage, "coverage")
    suite = read_suite(paths.items / "items.jsonl", read_rows(paths.activations / next(iter(observers))))
    tables: dict[str, list[Row]] = {name: [] for name in PLOTS}
    names: dict[str, str] = {}
    with house_style(), atomic_directory(figures) as drawn, atomic_directory(plots) as written:
        for observer, observer_name in observers.items():
            coverage = read_coverage(paths.coverage / observer / "coverage.parquet")
            _observer(paths, observer, observer_name, coverage, setup, tables, drawn)
            subjects = _chosen(setup.models, found_subjects(paths, observer), paths.performance / observer, "performance")
            for subject, subject_name in track(subjects.items(), f"figures of {observer}", len(subjects), "subject"):
                if subject not in names:
                    names[subject] = subject_name
                    file = paths.scores / subject / "scores.parquet"
                    tables["accuracy_by_benchmark"] += accuracy_by_benchmark(subject, file, suite, setup.confidence)
                mean = mean_over_benchmarks(tables["accuracy_by_benchmark"], subject)
                about = Context(subject_name, observer_name, setup.min_n_eff, setup.alpha, mean)
                _subject(_pair(paths, observer, subject, about, coverage, setup), setup, tables, drawn)
        draw_accuracy(tables["accuracy_by_benchmark"], names, setup.confidence, drawn / "accuracy_by_benchmark")
        for name in PLOTS:
            data.write_rows(written / f"{name}.json", tables[name])
        counts = {"n_plots": len(PLOTS), "n_figures": len(list(drawn.glob("*.svg")))}
        size = {"kib_plots": _kib(written), "kib_figures": _kib(drawn)}
    return counts | size


def _chosen(wanted: Mapping[str, str], found: list[str], directory: Path, stage: str) -> dict[str, str]:
    """Slugs and names to show: those of the parameters, or all that there are."""
    names = dict(sorted(wanted.items())) or {slug: slug for slug in found}
    absent = sorted(set(names) - set(found))
    if absent or not names:
        raise InputError(f"has no table of {', '.join(absent) or 'anything'}", file=directory, fix=f"run the {stage} stage")
    return {slug: shorten(one_line(name), 60) for slug, name in names.items()}


def _kib(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir()) // 1024


def _pair(paths: ArtifactPaths, observer: str, subject: str, about: Context, coverage: Coverage, setup: Setup) -> Pair:
    performance = read_performance(paths.performance / observer / f"{subject}.parquet")
    labels = read_labels(paths.clusters / f"{observer}.parquet", subject)
    structural = set(coverage.concepts[coverage.structural].tolist())
    count = setup.report.extremes
    ranking = rank_extremes(performance, labels, structural, len(coverage.concepts), setup.min_n_eff, count)
    return Pair(observer, subject, about, coverage, performance, ranking)


def _observer(
    paths: ArtifactPaths, observer: str, name: str, coverage: Coverage, setup: Setup, tables: dict[str, list[Row]], drawn: Path
) -> None:
    """Plots and figures that no subject enters."""
    spread = data.coverage_distribution(observer, coverage, setup.report.coverage_bins_per_decade)
    missing = data.missing_by_benchmark(observer, coverage, read_rows(paths.activations / observer))
    overlap = data.concept_overlap(observer, read_overlap(paths.coverage / observer / "overlap.parquet"), coverage.benchmarks)
    draw_coverage_distribution(spread, len(coverage.concepts), name, drawn / f"{observer}-coverage_distribution")
    draw_missing(missing, name, drawn / f"{observer}-missing_by_benchmark")
    if len(coverage.benchmarks) > 1:
        draw_overlap(overlap, name, drawn / f"{observer}-concept_overlap")
    tables["coverage_distribution"] += spread
    tables["missing_by_benchmark"] += missing
    tables["concept_overlap"] += overlap


def _subject(pair: Pair, setup: Setup, tables: dict[str, list[Row]], drawn: Path) -> None:
    """Plots and figures of one subject seen by one observer."""
    key, report, min_n_eff = (pair.observer, pair.subject), setup.report, setup.min_n_eff
    spread = data.performance_distribution(*key, pair.performance, len(pair.coverage.concepts), min_n_eff, report.bins)
    cells = data.coverage_performance(
        *key, pair.coverage, pair.performance, min_n_eff, report.coverage_bins_per_decade, max(report.bins // 2, 1)
    )
    worst, best = (data.extreme_concepts(*key, pair.ranking, side) for side in ("worst", "best"))
    stem = "-".join(key)
    draw_performance_distribution(spread, pair.about, drawn / f"{stem}-performance_distribution")
    draw_coverage_performance(cells, pair.about, drawn / f"{stem}-coverage_performance")
    draw_extremes(worst, best, pair.ranking, pair.about, drawn / f"{stem}-concepts")
    for name, table in (
        ("performance_distribution", spread),
        ("coverage_performance", cells),
        ("worst_concepts", worst),
        ("best_concepts", best),
    ):
        tables[name] += table
