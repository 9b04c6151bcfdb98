"""A subject's accuracy on every benchmark and over the suite, with an interval and the chance level."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gapscope.artifacts import SUITE
from gapscope.competency.activations import Rows
from gapscope.competency.intervals import reference
from gapscope.competency.performance import read_scores
from gapscope.errors import InputError
from gapscope.items import Item, read_items
from gapscope.report.rows import Row, benchmark_name


@dataclass(frozen=True)
class Suite:
    """The items in the order of the activations' rows."""

    rows: Rows
    items: list[Item]


def read_suite(file: Path, rows: Rows) -> Suite:
    """Read the items behind the rows.

    Raises:
        InputError: damaged, or an item of the rows is not there.
    """
    by_id = {item.id: item for item in read_items(file)}
    absent = next((item_id for item_id in rows.item_ids if item_id not in by_id), None)
    if absent is not None:
        raise InputError(f"does not hold item {absent!r} of the activations", file=file, fix="run extract-activations again")
    return Suite(rows, [by_id[item_id] for item_id in rows.item_ids])


def accuracy_by_benchmark(subject: str, scores_file: Path, suite: Suite, confidence: float) -> list[Row]:
    """One row for the suite (the mean over benchmarks) and one a benchmark; accuracy is None where nothing is scored.

    Accuracy is chi_model of a concept that is equally active on every item, so it comes from the same function, and its
    interval from the same rule.

    Raises:
        InputError: the scores are damaged, or about none of the items.
    """
    rows = suite.rows
    scores = read_scores(scores_file, rows).scores
    families = np.unique([item.family for item in suite.items], return_inverse=True)[1].astype(np.int64)
    everywhere = sp.csr_matrix(np.ones((len(suite.items), 1)))
    found = reference(everywhere, scores, rows.codes, families, confidence=confidence)
    chances = np.array([item.chance for item in suite.items])
    result: list[Row] = []
    for place, benchmark in [(-1, SUITE), *enumerate(rows.benchmarks)]:
        mine = np.ones(len(scores), bool) if benchmark == SUITE else rows.codes == place
        by_benchmark = [chances[rows.codes == code].mean() for code in range(len(rows.benchmarks))]
        accuracy, low, high = (float(part[place, 0]) for part in (found.chi_model, found.low, found.high))
        result.append(
            {
                "subject": subject,
                "benchmark": benchmark_name(benchmark),
                "accuracy": _or_none(accuracy),
                "low": _or_none(low),
                "high": _or_none(high),
                "chance": float(np.mean(by_benchmark) if benchmark == SUITE else by_benchmark[place]),
                "n": int(found.n[place, 0]),
                "n_unscored": int(np.isnan(scores[mine]).sum()),
            }
        )
    return result


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def mean_over_benchmarks(rows: list[Row], subject: str) -> float | None:
    """The subject's mean accuracy over the benchmarks: what chi_model would be if saliency said nothing."""
    name = benchmark_name(SUITE)
    value = next(row["accuracy"] for row in rows if row["subject"] == subject and row["benchmark"] == name)
    return None if value is None else float(value)
