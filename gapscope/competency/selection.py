"""Which concepts are worth a look: gaps and strengths of each subject, the ends of its rankings, coverage gaps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import COVERAGE, PERFORMANCE, SUITE
from gapscope.competency.activations import FloatArray, IntArray
from gapscope.errors import InputError
from gapscope.table import Table

SUPPORTED = ("gap", "strength", "typical")


@dataclass(frozen=True)
class Selection:
    """One kind of concept that stands out.

    Attributes:
        kind: gap, strength (flagged), lowest, highest (ends of the rankings, not flagged) or coverage.
        subject: slug, or None for coverage.
        concepts: ascending indices.
        n_left_out: concepts of the kind beyond the limit.
    """

    kind: str
    subject: str | None
    concepts: list[int]
    n_left_out: int = 0


@dataclass(frozen=True)
class _SuiteRows:
    """The suite's rows of a table, by concept."""

    table: pa.Table

    @staticmethod
    def read(schema: Table, path: Path, columns: list[str]) -> _SuiteRows:
        table = schema.read(path, ["concept", "benchmark", *columns])
        suite = table.filter(pc.equal(table["benchmark"], SUITE)).sort_by("concept")
        if not suite.num_rows:
            raise InputError(f"has no row of {SUITE}", file=path, field="benchmark", fix="run the stage that writes it again")
        return _SuiteRows(suite)

    @property
    def concepts(self) -> IntArray:
        concepts: IntArray = self.table["concept"].to_numpy()
        return concepts

    def numbers(self, name: str) -> FloatArray:
        numbers: FloatArray = pc.cast(self.table[name], pa.float64()).to_numpy(zero_copy_only=False)
        return numbers

    def equals(self, name: str, *values: str) -> np.ndarray:
        mask: np.ndarray = pc.is_in(self.table[name], pa.array(values, pa.string())).to_numpy(zero_copy_only=False).astype(bool)
        return mask


def select_subject(path: Path, subject: str, structural: set[int], extremes: int, limit: int) -> list[Selection]:
    """Gaps, strengths, and the lowest and highest supported concepts, by chi_model or by how sure they are, that are neither.

    Gaps and strengths are those of the suite, the surest first (by p) where there are more than ``limit``. The ends of the
    raw ranking are the published way to look for gaps; they are told apart from gaps because chance puts concepts there too.
    The surest of the rest, by p where it is there, are what the report shows beside the gaps.

    Raises:
        InputError: the performance table is absent, damaged or has no suite rows.
    """
    rows = _SuiteRows.read(PERFORMANCE, path, ["chi_model", "adjusted", "p", "status"])
    content = ~np.isin(rows.concepts, list(structural))
    surest = rows.numbers("p")
    flags = {kind: rows.equals("status", kind) & content for kind in ("gap", "strength")}
    chosen = [_first(kind, subject, rows.concepts, surest, flag, limit) for kind, flag in flags.items()]
    supported = rows.equals("status", *SUPPORTED) & content
    ends = min(extremes, int(supported.sum()) // 2)
    taken = {concept for selection in chosen for concept in selection.concepts}
    rankings = [rows.numbers("chi_model")]
    if np.isfinite(surest[supported]).all():
        rankings.append(np.sign(rows.numbers("adjusted")) * (1 - surest))
    for kind, sign in (("lowest", 1), ("highest", -1)):
        found = {concept for order in rankings for concept in _first(kind, subject, rows.concepts, sign * order, supported, ends).concepts}
        chosen.append(Selection(kind, subject, sorted(found - taken)))
        taken |= found
    return chosen


def select_coverage(path: Path, limit: int) -> tuple[Selection, set[int]]:
    """Coverage gaps of the suite, and its structural concepts, which are never among them.

    A gap is unexercised or under-represented against the reference corpus, the surest first where there are more than
    ``limit``. Without a reference corpus it is missing or under by the published rule, the least covered first.

    Raises:
        InputError: the coverage table is absent, damaged or has no suite rows.
    """
    columns = ["chi_bench", "log_ratio_high", "published_status", "status", "structural"]
    rows = _SuiteRows.read(COVERAGE, path, columns)
    structural = np.nan_to_num(rows.numbers("structural")) > 0
    if rows.table["status"].null_count < rows.table.num_rows:
        mask, order = rows.equals("status", "unexercised", "under"), rows.numbers("log_ratio_high")
    else:
        mask, order = rows.equals("published_status", "missing", "under"), rows.numbers("chi_bench")
    gaps = _first("coverage", None, rows.concepts, order, mask & ~structural, limit)
    return gaps, set(rows.concepts[structural].tolist())


def _first(kind: str, subject: str | None, concepts: IntArray, order: FloatArray, mask: np.ndarray, limit: int) -> Selection:
    """The ``limit`` masked concepts that come first in rising order, the lower index first of equals."""
    found = concepts[mask]
    ranked = found[np.lexsort((found, order[mask]))]
    return Selection(kind, subject, sorted(ranked[:limit].tolist()), max(0, len(ranked) - limit))
