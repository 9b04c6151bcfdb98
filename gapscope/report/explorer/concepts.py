"""Columns over concepts: coverage and labels of an observer, the performance of its subjects, and both by benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import CLUSTERS, COVERAGE, PERFORMANCE, SUITE
from gapscope.errors import InputError
from gapscope.report.explorer.blocks import Block
from gapscope.report.text import one_line, shorten

LABEL_COLUMNS = 160
"""A label is cut to so many columns; an LLM's may be a paragraph."""

SUITE_NUMBERS = ("chi_model", "ci_low", "ci_high", "adjusted", "adjusted_low", "adjusted_high")
CELL_NUMBERS = ("chi_model", "ci_low", "ci_high", "adjusted", "adjusted_low", "adjusted_high")


def numbers(table: pa.Table, name: str) -> np.ndarray:
    """A column as floats, null as NaN."""
    return np.asarray(pc.cast(table[name], pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def suite_rows(table: pa.Table, file: Path) -> pa.Table:
    """The rows of the whole suite, by concept.

    Raises:
        InputError: there is none.
    """
    suite = table.filter(pc.equal(table["benchmark"], SUITE)).sort_by("concept")
    if not suite.num_rows:
        raise InputError(f"has no rows of {SUITE}", file=file, field="benchmark", fix="run the stage that writes it again")
    return suite


def places(table: pa.Table, concepts: np.ndarray, benchmarks: list[str], file: Path) -> tuple[pa.Table, np.ndarray]:
    """The rows of single benchmarks and where each belongs in a benchmark x concept grid (flat index).

    Raises:
        InputError: a row is about a concept or a benchmark that the run does not hold.
    """
    table = table.filter(pc.not_equal(table["benchmark"], SUITE))
    row = pc.index_in(table["benchmark"], pa.array(benchmarks)).to_numpy(zero_copy_only=False)
    found = table["concept"].to_numpy()
    column = np.minimum(np.searchsorted(concepts, found), len(concepts) - 1)
    if table["benchmark"].null_count or np.isnan(row.astype(float)).any() or (concepts[column] != found).any():
        raise InputError("is about a concept or a benchmark that the coverage table does not hold", file=file, fix="run both stages again")
    return table, row.astype(np.int64) * len(concepts) + column


def spread(values: np.ndarray, at: np.ndarray, size: int, empty: float = np.nan) -> np.ndarray:
    """Values put at their places in a flat grid."""
    grid = np.full(size, empty)
    grid[at] = values
    return grid


def coverage_blocks(file: Path, benchmarks: list[str]) -> tuple[np.ndarray, Block, Block]:
    """The concepts of an observer, their coverage over the suite, and by benchmark (benchmark x concept).

    Raises:
        InputError: damaged, or without suite rows.
    """
    table = COVERAGE.read(file)
    suite = suite_rows(table, file)
    concepts = suite["concept"].to_numpy().astype(np.int64)
    block, cells = Block(), Block()
    block.counts("concept", concepts)
    block.log("coverage", numbers(suite, "chi_bench"))
    block.log("coverage_unmasked", numbers(suite, "chi_bench_unmasked"))
    block.log("reference_rate", numbers(suite, "reference_rate"), least=1e-9)
    for name in ("log_ratio", "log_ratio_low", "log_ratio_high"):
        block.linear(name, numbers(suite, name))
    block.counts("n_items", numbers(suite, "n_items"))
    block.codes("coverage_status", suite["status"].to_pylist())
    block.codes("published_status", suite["published_status"].to_pylist())
    block.counts("structural", pc.fill_null(suite["structural"], False).to_numpy(zero_copy_only=False).astype(np.int64))
    block.value("structural_known", suite["structural"].null_count < suite.num_rows)
    parts, at = places(table, concepts, benchmarks, file)
    size = len(benchmarks) * len(concepts)
    cells.log("coverage", spread(numbers(parts, "chi_bench"), at, size))
    cells.counts("n_items", spread(numbers(parts, "n_items"), at, size, 0))
    cells.codes("coverage_status", _names(parts, "status", at, size))
    return concepts, block, cells


def _names(table: pa.Table, name: str, at: np.ndarray, size: int) -> list[str | None]:
    grid = np.full(size, None, dtype=object)
    grid[at] = np.array(table[name].to_pylist(), dtype=object)
    found: list[str | None] = grid.tolist()
    return found


def performance_blocks(file: Path, concepts: np.ndarray, benchmarks: list[str]) -> tuple[Block, Block, dict[str, Any]]:
    """One subject's performance over the suite, by benchmark (benchmark x concept), and counts of what was found.

    Raises:
        InputError: damaged, or about other concepts than the coverage table.
    """
    table = PERFORMANCE.read(file)
    suite = suite_rows(table, file)
    found = suite["concept"].to_numpy()
    at = np.minimum(np.searchsorted(concepts, found), len(concepts) - 1)
    if (concepts[at] != found).any():
        raise InputError("is about concepts that the coverage table does not hold", file=file, fix="run both stages again")
    block, cells = Block(), Block()
    size = len(concepts)
    for name in SUITE_NUMBERS:
        block.linear(name, spread(numbers(suite, name), at, size))
    block.linear("shrunk", spread(numbers(suite, "shrunk"), at, size))
    for name in ("n_eff", "p", "q"):
        block.log(name, spread(numbers(suite, name), at, size))
    block.counts("n", spread(numbers(suite, "n"), at, size, 0))
    status = _names(suite, "status", at, size)
    block.codes("status", status)
    block.codes("finding", _names(suite, "finding", at, size))
    parts, at = places(table, concepts, benchmarks, file)
    size *= len(benchmarks)
    for name in CELL_NUMBERS:
        cells.linear(name, spread(numbers(parts, name), at, size))
    for name in ("n_eff", "q"):
        cells.log(name, spread(numbers(parts, name), at, size))
    cells.counts("n", spread(numbers(parts, "n"), at, size, 0))
    cells.codes("status", _names(parts, "status", at, size))
    counts = {name: status.count(name) for name in ("gap", "strength", "typical", "unsupported", "undefined")}
    calibrated = any(status)
    return block, cells, {"calibrated": calibrated, "counts": counts}


def clusters(file: Path, concepts: np.ndarray) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """Labels by concept, and the clusters with their members.

    Where a concept is in several clusters the label with the better detection score stands; they differ only if sources do.
    """
    labels: dict[int, dict[str, Any]] = {}
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    known = set(concepts.tolist())
    for row in CLUSTERS.read(file).to_pylist():
        concept, score = row["concept"], row["label_score"]
        if concept not in known:
            raise InputError(f"concept {concept} is not in the coverage table", file=file, field="concept", fix="run cluster again")
        text = shorten(one_line(row["label"]), LABEL_COLUMNS)
        label = {"text": text, "source": row["label_source"], "score": score, "cluster": row["cluster"]}
        if concept not in labels or (score or 0) > (labels[concept]["score"] or 0):
            labels[concept] = label
        key = (row["subject"] or "", row["cluster"])
        group = groups.setdefault(key, {"subject": key[0], "id": key[1], "text": row["interpretation"] or "", "concepts": []})
        group["concepts"].append(concept)
    return labels, [groups[key] for key in sorted(groups)]


def concept_numbers(file: Path) -> np.ndarray:
    """The concepts of a coverage table, ascending: the order of every column in the page."""
    return np.asarray(suite_rows(COVERAGE.read(file, ["concept", "benchmark"]), file)["concept"].to_numpy(), dtype=np.int64)
