"""The gap concepts of a run: what the suite under-exercises, and where a subject does worse.

- *Coverage gaps* are those of :func:`gapscope.competency.selection.select_coverage`: rarer than in the reference corpus beyond
  doubt (DESIGN's calibrated status, not the published tail of 10%, which is there whatever the suite holds), structural and dead
  concepts left out. Those that fire on some item are *under*, those that fire on none *unexercised*: no item can be
  chosen for the latter, but a variant may reach them all the same. Without a reference corpus the published rule decides.
- *Model gaps* are concepts of status ``gap`` in the suite's rows of a subject's performance table. Gaps of one benchmark's rows
  alone are not taken: with twelve benchmarks looked at one by one, some are there by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import scipy.sparse as sp

from gapscope.artifacts import COVERAGE, PERFORMANCE, SUITE
from gapscope.competency.activations import FloatArray, IntArray, Rows, read_matrix, read_rows
from gapscope.competency.intervals import column_sums
from gapscope.competency.selection import select_coverage, select_subject
from gapscope.errors import InputError
from gapscope.table import Table

UNDER, UNEXERCISED, MODEL = "under", "unexercised", "model"
COVERAGE_KINDS = (UNDER, UNEXERCISED)
KINDS = (*COVERAGE_KINDS, MODEL)


@dataclass(frozen=True)
class Gap:
    """One gap concept: its kind, and the subject whose gap it is (None for a coverage gap)."""

    kind: str
    subject: str | None
    concept: int


@dataclass(frozen=True)
class Gaps:
    """The gap concepts of one observer's suite (I items, C concepts).

    Attributes:
        rows, saliency: the items and what was read of them (I x C).
        found: every gap, by kind, subject and concept; a concept may be there more than once.
        subjects: slugs of all subjects that were looked at.
    """

    rows: Rows
    saliency: sp.csr_matrix
    found: list[Gap]
    subjects: list[str]

    def concepts(self, *kinds: str, subject: str | None = None) -> IntArray:
        """The distinct concepts of these kinds (none given: of all), of one subject or of whichever, in rising order."""
        chosen = [gap.concept for gap in self.found if gap.kind in (kinds or KINDS) and (subject is None or gap.subject in (None, subject))]
        return np.unique(np.array(chosen, dtype=np.int64))

    def counts(self) -> dict[str, int]:
        """Number of distinct concepts of each kind."""
        return {kind: len(self.concepts(kind)) for kind in KINDS}


def read_gaps(activations: Path, coverage: Path, performance: Path) -> Gaps:
    """Read one observer's gaps from its directories of extract-activations, coverage and performance.

    Raises:
        InputError: a file is absent or damaged, no subject has a table, or a table is of other concepts than the activations.
    """
    rows = read_rows(activations)
    saliency = read_matrix(activations, "saliency", rows)
    width = saliency.shape[1]
    files = {file.stem: file for file in sorted(performance.glob("*.parquet"))}
    if not files:
        raise InputError("holds no subject's table", file=performance, fix="run the performance stage")
    _require_concepts(coverage / "coverage.parquet", COVERAGE, width)
    selection, structural = select_coverage(coverage / "coverage.parquet", width)
    fires = column_sums(saliency) > 0
    found = [Gap(UNDER if fires[concept] else UNEXERCISED, None, concept) for concept in selection.concepts]
    for subject, file in files.items():
        _require_concepts(file, PERFORMANCE, width)
        chosen = next(one for one in select_subject(file, subject, structural, 0, width) if one.kind == "gap")
        found += [Gap(MODEL, subject, concept) for concept in chosen.concepts]
    return Gaps(rows, saliency, sorted(found, key=lambda gap: (gap.kind, gap.subject or "", gap.concept)), sorted(files))


def _require_concepts(file: Path, form: Table, width: int) -> None:
    """Refuse a table whose rows of the suite are not of each of the activations' concepts once."""
    table = form.read(file, ["benchmark", "concept"])
    concepts = table.filter(pc.equal(table["benchmark"], SUITE))["concept"].to_numpy()
    if not np.array_equal(np.sort(concepts), np.arange(width)):
        message = f"is not of the {width} concepts that the activations have, each once"
        raise InputError(message, file=file, field="concept", fix="run its stage again on the same activations")


def carried(saliency: sp.csr_matrix, totals: FloatArray, concepts: IntArray) -> FloatArray:
    """How much of the concepts each item or variant carries (rows of ``saliency``): the sum of its shares.

    A share is the saliency over the concept's total on the suite (``totals``, C): so that a dense concept counts no more than a
    rare one. A concept that never fires on the suite has no share.
    """
    firing = concepts[totals[concepts] > 0]
    shares = saliency[:, firing].astype(np.float64) @ (1 / totals[firing])
    weights: FloatArray = np.asarray(shares, dtype=np.float64).ravel()
    return weights
