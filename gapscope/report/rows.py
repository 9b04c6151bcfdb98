"""Plot data: for every plot one list of uniform rows, already binned, small enough to live in git.

Every row of a file has the same keys; a number is finite, or None where it is undefined (then its n is 0). No list is
ever empty: DVC's plots break on an empty one. No column is called rev, filename, field or step, which DVC adds itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gapscope.artifacts import SUITE
from gapscope.competency.activations import Rows
from gapscope.files import dump_json, rounded, write_bytes
from gapscope.report.extremes import Extreme, Ranking, supported
from gapscope.report.inputs import Coverage, Performance
from gapscope.report.text import plot_label

Row = dict[str, str | int | float | None]

SUITE_NAME = "(suite)"
MASKED, UNMASKED = "special tokens masked", "special tokens read"
SUPPORTED, UNSUPPORTED = "supported", "unsupported"
DIGITS = 4


def write_rows(file: Path, rows: list[Row]) -> None:
    """Write rows as one JSON list, a row a line, numbers to four significant digits.

    Raises:
        ValueError: no rows, rows with different keys, or a NaN.
    """
    if not rows or any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError(f"{file.name}: a plot needs at least one row, and the same keys in each")
    lines = [dump_json(rounded(row, DIGITS)) for row in rows]
    write_bytes(file, ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def column(rows: list[Row], name: str) -> np.ndarray:
    """One numeric column as floats, None as NaN."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def benchmark_name(benchmark: str) -> str:
    """The benchmark as plots name it."""
    return SUITE_NAME if benchmark == SUITE else benchmark


def log_bins(values: np.ndarray, per_decade: int) -> np.ndarray:
    """Index of the bin of each positive value: bin k spans 10^(k/per_decade) to 10^((k+1)/per_decade).

    The edges do not depend on the data, so that two versions of a plot are binned alike.
    """
    # The small shift keeps a value that was rounded just below an edge in the bin that its decimal form names.
    return np.asarray(np.floor(np.log10(values) * per_decade + 1e-9), dtype=np.int64)


def unit_bins(values: np.ndarray, bins: int) -> np.ndarray:
    """Index of the bin of each value in [0, 1]; 1 falls into the last bin."""
    return np.clip(np.floor(values * bins + 1e-9), 0, bins - 1).astype(np.int64)


def _fires(chi: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(chi) & (chi > 0))


def coverage_distribution(observer: str, coverage: Coverage, per_decade: int) -> list[Row]:
    """How many concepts have which chi_bench over the suite, with special tokens masked and read.

    Concepts with chi_bench 0 have no place on a logarithmic axis: ``n_missing`` and ``n_undefined`` say how many.
    """
    series = {MASKED: coverage.chi[SUITE], UNMASKED: coverage.chi_unmasked[SUITE]}
    series = {group: chi for group, chi in series.items() if group == MASKED or np.isfinite(chi).any()}
    binned = {group: log_bins(chi[_fires(chi)], per_decade) for group, chi in series.items()}
    every = np.concatenate([*binned.values(), *([np.zeros(1, int)] if not any(map(len, binned.values())) else [])])
    rows: list[Row] = []
    for group, chi in series.items():
        counts = np.bincount(binned[group] - every.min(), minlength=int(np.ptp(every)) + 1)
        rows += [
            {
                "observer": observer,
                "group": group,
                "log10_coverage": (int(every.min()) + offset + 0.5) / per_decade,
                "n_concepts": int(count),
                "n_missing": int((chi == 0).sum()),
                "n_undefined": int((~np.isfinite(chi)).sum()),
            }
            for offset, count in enumerate(counts)
        ]
    return rows


def performance_distribution(
    observer: str, subject: str, performance: Performance, n_concepts: int, min_n_eff: float, bins: int
) -> list[Row]:
    """How many concepts have which chi_model over the suite, those with enough support apart from the rest."""
    chi = performance["chi_model"]
    defined, enough = np.isfinite(chi), supported(performance, min_n_eff)
    rows: list[Row] = []
    for group, mask in ((SUPPORTED, enough), (UNSUPPORTED, defined & ~enough)):
        counts = np.bincount(unit_bins(chi[mask], bins), minlength=bins)
        rows += [
            {
                "observer": observer,
                "subject": subject,
                "group": group,
                "performance": (index + 0.5) / bins,
                "n_concepts": int(count),
                "n_undefined": n_concepts - int(defined.sum()),
            }
            for index, count in enumerate(counts)
        ]
    return rows


def coverage_performance(
    observer: str, subject: str, coverage: Coverage, performance: Performance, min_n_eff: float, per_decade: int, bins: int
) -> list[Row]:
    """Counts of supported concepts in cells of chi_bench (logarithmic) by chi_model; empty cells are left out."""
    chi_bench = dict(zip(coverage.concepts.tolist(), coverage.chi[SUITE].tolist(), strict=True))
    across = np.array([chi_bench.get(int(concept), np.nan) for concept in performance["concept"]])
    keep = supported(performance, min_n_eff) & _fires(across)
    x, y = log_bins(across[keep], per_decade), unit_bins(performance["chi_model"][keep], bins)
    cells, counts = np.unique(np.stack([x, y], axis=1), axis=0, return_counts=True)
    if not len(cells):
        cells, counts = np.zeros((1, 2), int), np.zeros(1, int)
    return [
        {
            "observer": observer,
            "subject": subject,
            "log10_coverage": column / per_decade,
            "log10_coverage_end": (column + 1) / per_decade,
            "performance": row / bins,
            "performance_end": (row + 1) / bins,
            "n_concepts": int(count),
            "n_left_out": len(coverage.concepts) - int(keep.sum()),
        }
        for (column, row), count in zip(cells.tolist(), counts.tolist(), strict=True)
    ]


def extreme_concepts(observer: str, subject: str, ranking: Ranking, side: str) -> list[Row]:
    """The worst or the best concepts, most extreme first; one row that says so where there are none."""
    extremes: list[Extreme] = ranking.worst if side == "worst" else ranking.best
    shared: Row = {"observer": observer, "subject": subject, "shown": "adjusted" if ranking.calibrated else "chi_model"}
    rows: list[Row] = []
    for rank, extreme in enumerate(extremes, start=1):
        label = plot_label(extreme.label.shown if extreme.label else None)
        source = plot_label(extreme.label.source) if extreme.label else "none"
        about: Row = {"concept": extreme.concept, "label": label, "label_source": source, "name": f"{label} #{extreme.concept}"}
        values: Row = {"value": extreme.value, "low": extreme.low, "high": extreme.high, "q": extreme.q}
        support: Row = {"n": extreme.n, "n_eff": extreme.n_eff, "n_alike": extreme.n_alike, "status": extreme.status, "rank": rank}
        rows.append({**shared, **about, **values, **support})
    if rows:
        return rows
    nothing: Row = {"concept": None, "label": "none", "label_source": "none", "name": "none", "status": "none", "rank": 0}
    return [{**shared, **nothing, "value": None, "low": None, "high": None, "q": None, "n": 0, "n_eff": 0, "n_alike": 0}]


def missing_by_benchmark(observer: str, coverage: Coverage, items: Rows) -> list[Row]:
    """Share of concepts with chi_bench 0 in each benchmark and in the whole suite, with special tokens masked and read."""
    rows: list[Row] = []
    for benchmark in [SUITE, *coverage.benchmarks]:
        mine = np.array([benchmark in (SUITE, items.benchmarks[code]) for code in items.codes])
        for group, chi in ((MASKED, coverage.chi[benchmark]), (UNMASKED, coverage.chi_unmasked[benchmark])):
            known = int(np.isfinite(chi).sum())
            n_missing = int((chi == 0).sum())
            rows.append(
                {
                    "observer": observer,
                    "benchmark": benchmark_name(benchmark),
                    "group": group,
                    "missing_share": n_missing / known if known else None,
                    "n_missing": n_missing,
                    "n_concepts": known,
                    "n_items": int(mine.sum()),
                    "n_tokens": int(items.n_tokens[mine].sum()),
                }
            )
    return rows


def concept_overlap(observer: str, overlap: list[dict[str, Any]], benchmarks: list[str]) -> list[Row]:
    """Jaccard index of the sets of concepts that fire in two benchmarks, each pair once.

    A suite of one benchmark has no pair: its one row has no value.
    """
    pairs = [row for row in overlap if row["benchmark"] < row["other"]]
    if not pairs:
        pairs = [{"benchmark": benchmarks[0], "other": benchmarks[0], "jaccard": None, "n_shared": 0}]
    return [
        {
            "observer": observer,
            "benchmark_a": row["benchmark"],
            "benchmark_b": row["other"],
            "jaccard": row["jaccard"],
            "n_shared": row["n_shared"],
        }
        for row in pairs
    ]
