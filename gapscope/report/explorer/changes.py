"""Pairs of subjects compared on every concept, as the compare-pairs stage wrote them, or as two runs give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import CHANGES, SUITE
from gapscope.errors import InputError
from gapscope.report.explorer.blocks import Block
from gapscope.report.explorer.concepts import numbers, spread

NUMBERS = ("first", "second", "difference", "low", "high", "relative", "relative_low", "relative_high")


def read_changes(file: Path | None, concepts: np.ndarray) -> list[tuple[dict[str, Any], Block]]:
    """The suite rows of every pair of the table, each as a block over the concepts; none where there is no table.

    Raises:
        InputError: damaged, or about other concepts than the coverage table.
    """
    if file is None or not file.exists():
        return []
    return change_blocks(CHANGES.read(file), concepts, file)


def change_blocks(table: pa.Table, concepts: np.ndarray, file: Path) -> list[tuple[dict[str, Any], Block]]:
    """One block a pair of subjects, with what tells the pairs apart."""
    suite = table.filter(pc.equal(table["benchmark"], SUITE))
    pairs = sorted(set(zip(suite["subject"].to_pylist(), suite["other"].to_pylist(), strict=True)))
    found = []
    for first, second in pairs:
        part = suite.filter(pc.and_(pc.equal(suite["subject"], first), pc.equal(suite["other"], second))).sort_by("concept")
        number = part["concept"].to_numpy()
        at = np.minimum(np.searchsorted(concepts, number), len(concepts) - 1)
        if (concepts[at] != number).any():
            raise InputError("is about concepts that the coverage table does not hold", file=file, fix="run both stages again")
        block, size = Block(), len(concepts)
        for name in NUMBERS:
            block.linear(name, spread(numbers(part, name), at, size))
        for name in ("n_eff", "p", "q", "relative_p", "relative_q"):
            block.log(name, spread(numbers(part, name), at, size))
        for name in ("n", "n_gained", "n_lost"):
            block.counts(name, spread(numbers(part, name), at, size, 0))
        status = np.full(size, None, dtype=object)
        status[at] = np.array(part["status"].to_pylist(), dtype=object)
        block.codes("status", status.tolist())
        found.append(({"first": first, "second": second}, block))
    return found
