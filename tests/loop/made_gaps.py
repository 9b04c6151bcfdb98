"""Coverage and performance tables with gaps written out by hand, beside small activations."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gapscope.artifacts import COVERAGE, PERFORMANCE, SUITE
from gapscope.items import Item

sys.path.append(str(Path(__file__).parents[1] / "competency"))
from made_activations import write_activations

IDS = ["i0", "i1", "i2", "i3"]
SALIENCY = np.array([[2, 0, 1, 0, 0], [6, 0, 0, 0, 0], [0, 0.5, 3, 0, 0], [0, 0, 0, 5, 0]], dtype=np.float32)
"""Concepts 0 and 1 are under, 2 is a gap of the subject, 3 is nothing, 4 never fires."""
STATUS = ["under", "under", "typical", "typical", "unexercised"]
WEIGHTS = {"i2": 1.75, "i1": 0.75, "i0": 0.5}
"""Shares of the totals 8, 0.5 and 4: i0 2/8 + 1/4, i1 6/8, i2 0.5/0.5 + 3/4; i3 carries nothing."""


def write_tables(directory: Path, status: list[str], gaps: dict[str, list[int]]) -> None:
    """coverage/ with these statuses, and performance/ with these gaps of each subject."""
    n = len(status)
    shared = {"concept": np.arange(n), "benchmark": [SUITE] * n}
    counts = {"n_items": [1] * n, "n_tokens": [1] * n}
    COVERAGE.write(directory / "coverage/coverage.parquet", shared | counts | {"status": status, "log_ratio_high": [-1.0] * n})
    for subject, concepts in gaps.items():
        states = ["gap" if concept in concepts else "typical" for concept in range(n)]
        data = shared | {"n": [30] * n, "n_eff": [30.0] * n, "p": [0.01] * n, "adjusted": [-0.2] * n, "status": states}
        PERFORMANCE.write(directory / f"performance/{subject}.parquet", data)


def write_gaps(directory: Path, order: list[int] | None = None, status: list[str] | None = None, gaps: list[int] | None = None) -> Path:
    """Activations (rows in the order given), coverage and performance of one observer."""
    rows = order or [0, 1, 2, 3]
    benchmarks = ["scenes", "scenes", "scenes", "facts"]
    write_activations(directory / "activations", SALIENCY[rows], [benchmarks[row] for row in rows], ids=[IDS[row] for row in rows])
    write_tables(directory, status or STATUS, {"m": [2] if gaps is None else gaps})
    return directory


def items() -> list[Item]:
    return [Item(name, "facts" if name == "i3" else "scenes", name, f"Is it {name}?", ("yes", "no"), 0) for name in IDS]
