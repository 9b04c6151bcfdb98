"""What the report reads: the artifacts of one run, as arrays over concepts and as accuracies per benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import CLUSTERS, COVERAGE, OVERLAP, PERFORMANCE, SUITE
from gapscope.errors import InputError


@dataclass(frozen=True)
class ArtifactPaths:
    """Directories of the artifacts, as the stages before the report lay them out."""

    items: Path
    activations: Path
    coverage: Path
    performance: Path
    clusters: Path
    scores: Path


@dataclass(frozen=True)
class Coverage:
    """chi_bench of one observer's concepts. NaN is undefined.

    Attributes:
        concepts: indices of the SAE's latents, ascending, shape (C,).
        chi: by benchmark, and by SUITE for the mean over them, shape (C,).
        chi_unmasked: the same with special tokens left in.
        structural: concepts that fire as much on the empty template, shape (C,).
        dead: concepts that fire nowhere, in the reference corpus either, shape (C,).
    """

    concepts: np.ndarray
    chi: dict[str, np.ndarray]
    chi_unmasked: dict[str, np.ndarray]
    structural: np.ndarray
    dead: np.ndarray

    @property
    def benchmarks(self) -> list[str]:
        """Slugs of the benchmarks, sorted."""
        return sorted(set(self.chi) - {SUITE})


@dataclass(frozen=True)
class Performance:
    """The suite rows of one subject's performance table (R), by column.

    Attributes:
        columns: the numeric ones, NaN where undefined.
        status: gap, strength, typical, unsupported or undefined; "" where the table was not calibrated.
        finding: id of the finding a gap or strength belongs to, else "".
    """

    columns: dict[str, np.ndarray]
    status: np.ndarray
    finding: np.ndarray

    def __getitem__(self, name: str) -> np.ndarray:
        """One numeric column, shape (R,)."""
        return self.columns[name]


LEAST_LABEL_SCORE = 0.6
"""Below it a label's words hardly pick out contexts of its concept that they were not taken from (0.5 is chance)."""


@dataclass(frozen=True)
class Label:
    """What a concept seems to be about, and how that was found."""

    text: str
    source: str
    score: float | None

    @property
    def shown(self) -> str:
        """The text, with "(?)" where its score is low or could not be computed."""
        doubtful = self.score is None or self.score < LEAST_LABEL_SCORE
        return f"{self.text} (?)" if doubtful else self.text


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def read_coverage(file: Path) -> Coverage:
    """Read coverage.parquet.

    Raises:
        InputError: damaged, without suite rows, or a benchmark lists other concepts than the suite.
    """
    table = COVERAGE.read(file, ["concept", "benchmark", "chi_bench", "chi_bench_unmasked", "structural", "status"])
    names = pc.unique(table["benchmark"]).to_pylist()
    if SUITE not in names or len(names) < 2:
        raise InputError(f"needs rows of {SUITE} and of at least one benchmark", file=file, fix="run the coverage stage again")
    chi: dict[str, np.ndarray] = {}
    unmasked: dict[str, np.ndarray] = {}
    concepts, structural, dead = np.empty(0, np.int64), np.empty(0, bool), np.empty(0, bool)
    for name in sorted(names, key=lambda name: (name != SUITE, name)):
        part = table.filter(pc.equal(table["benchmark"], name)).sort_by("concept")
        if name == SUITE:
            concepts = part["concept"].to_numpy()
            structural = pc.fill_null(part["structural"], False).to_numpy(zero_copy_only=False).astype(bool)
            dead = pc.fill_null(pc.equal(part["status"], "dead"), False).to_numpy(zero_copy_only=False).astype(bool)
        elif not np.array_equal(concepts, part["concept"].to_numpy()):
            raise InputError(f"{name} lists other concepts than {SUITE}", file=file, fix="run the coverage stage again")
        chi[name] = _numbers(part["chi_bench"])
        unmasked[name] = _numbers(part["chi_bench_unmasked"])
    return Coverage(concepts, chi, unmasked, structural, dead)


def read_overlap(file: Path) -> list[dict[str, Any]]:
    """Rows of overlap.parquet: every ordered pair of benchmarks."""
    rows: list[dict[str, Any]] = OVERLAP.read(file).to_pylist()
    return rows


PERFORMANCE_COLUMNS = (
    "concept",
    "chi_model",
    "n",
    "n_eff",
    "ci_low",
    "ci_high",
    "adjusted",
    "adjusted_low",
    "adjusted_high",
    "shrunk",
    "p",
    "q",
)


def read_performance(file: Path) -> Performance:
    """Read the suite rows of ``performance/<observer>/<subject>.parquet``.

    Raises:
        InputError: damaged, or without suite rows.
    """
    table = PERFORMANCE.read(file, [*PERFORMANCE_COLUMNS, "benchmark", "status", "finding"])
    suite = table.filter(pc.equal(table["benchmark"], SUITE)).sort_by("concept")
    if not suite.num_rows:
        raise InputError(f"has no rows of {SUITE}", file=file, field="benchmark", fix="run the performance stage again")
    status, finding = (np.array(pc.fill_null(suite[name], "").to_pylist(), dtype=object) for name in ("status", "finding"))
    return Performance({name: _numbers(suite[name]) for name in PERFORMANCE_COLUMNS}, status, finding)


def read_labels(file: Path, subject: str) -> dict[int, Label]:
    """Labels by concept; where a concept is in several clusters, the row of this subject goes before the others."""
    table = CLUSTERS.read(file, ["concept", "subject", "label", "label_source", "label_score"])
    labels: dict[int, Label] = {}
    rows = table.to_pylist()
    for row in [row for row in rows if row["subject"] != subject] + [row for row in rows if row["subject"] == subject]:
        labels[row["concept"]] = Label(row["label"], row["label_source"], row["label_score"])
    return labels


def found_observers(paths: ArtifactPaths) -> list[str]:
    """Slugs of the observers that have a coverage table."""
    return sorted(file.parent.name for file in paths.coverage.glob("*/coverage.parquet"))


def found_subjects(paths: ArtifactPaths, observer: str) -> list[str]:
    """Slugs of the subjects that have a performance table for the observer."""
    return sorted(file.stem for file in (paths.performance / observer).glob("*.parquet"))
