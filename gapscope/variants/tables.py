"""The tables of the stages that train: schemas beside :mod:`gapscope.artifacts`, and the rows that plots are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.files import dump_json, rounded, write_bytes
from gapscope.table import FLOAT, INT, STRING, Column, Table
from gapscope.variants.measures import ALL

VERIFIERS = Table(
    "verifiers",
    1,
    ("split", "verifier", "type", "column"),
    (
        Column("verifier", STRING, "era, ira, evidence, stack, or a baseline: majority, bag_of_words"),
        Column("split", STRING, "development, on which choices were made, or heldout, scored once after them"),
        Column("type", STRING, "slug of a variant type, or all"),
        Column("column", STRING, "what is judged: tc, lc, au, or valid (all three)"),
        Column("n", INT, "variants judged"),
        Column("n_true", INT, "those of which it holds"),
        Column("accuracy", FLOAT, "share decided rightly at the threshold"),
        Column(
            "balanced_accuracy", FLOAT, "mean of the shares of true and of false ones decided rightly; null without both", nullable=True
        ),
        Column("f1", FLOAT, "of the true ones; null where none is true or accepted", nullable=True),
        Column("auroc", FLOAT, "share of pairs of a true and a false one in the right order; null without both", nullable=True),
        Column("ece_before", FLOAT, "expected calibration error before temperature scaling, ten bins"),
        Column("ece_after", FLOAT, "after it"),
    ),
)

BINS, DIGITS = 10, 4
CURVES = {
    "reward": ("reward", "reward_spread"),
    "earning": ("earning", "unparsable", "copy", "rule", "repeat"),
    "zero_variance": ("zero_variance",),
    "tokens": ("tokens",),
    "ended": ("ended",),
    "kl": ("kl", "loss"),
}
"""The plots of grpo, and what each shows by step."""


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def write_plot(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows of a plot as one JSON list, a row a line; ValueError where there is none or their keys differ."""
    if not rows or any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError(f"{file.name}: a plot needs at least one row, and the same keys in each")
    lines = [dump_json(rounded(row, DIGITS)) for row in rows]
    write_bytes(file, ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def verifier_bars(scores: Sequence[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    """Balanced accuracy of every verifier on every column, all types together."""
    chosen = [row for row in scores if row["split"] == split and row["type"] == ALL]
    return [{"group": row["column"], "verifier": row["verifier"], "balanced_accuracy": row["balanced_accuracy"]} for row in chosen]


def calibration_points(p: np.ndarray, truth: np.ndarray) -> list[dict[str, Any]]:
    """Stated probability and observed share in bins of equal width; empty bins are left out."""
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    filled = [(place == index) for index in range(BINS) if (place == index).any()]
    return [{"stated": float(p[here].mean()), "observed": float(truth[here].mean()), "n": int(here.sum())} for here in filled]
