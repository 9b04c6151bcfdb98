"""Performance: how a subject does on the items in which each concept fires (chi_model), and which of it is no accident.

What the metrics file says of each subject, in plain words (the README quotes these):

- ``mean_score``: mean score over the scored items; ``n_unscored``: items of the suite without a usable score.
- ``median_chi_model``: median over concepts of the suite's chi_model; the published headline. It mostly says how hard the
  benchmarks are, because a concept's chi_model mostly says where the concept fires.
- ``n_supported``: concepts with enough effective items to be tested. ``n_unsupported``: with too few, or not tested because
  they are dead or structural. ``n_undefined``: concepts with no scored item to compare.
- ``n_gap`` and ``n_strength``: tested concepts on which the subject does worse (better) than on other items of the same
  benchmark and length, at the stated false-discovery rate. ``n_gap_findings`` and ``n_strength_findings``: how many
  independent findings these are, because concepts that fire on the same items are one finding.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from gapscope.artifacts import COVERAGE, PERFORMANCE, SCORES, SUITE
from gapscope.competency.activations import FloatArray, IntArray, Rows, read_matrix, read_rows
from gapscope.competency.inference import GAP, STATUSES, STRENGTH, TYPICAL, Calibrated, calibrate
from gapscope.competency.intervals import Reference, reference
from gapscope.competency.units import length_strata
from gapscope.errors import InputError
from gapscope.files import atomic_directory
from gapscope.items import Item, read_items
from gapscope.params import PerformanceParams, StrataParams

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Suite:
    """All that performance needs of the observer and the items, whoever the subject is (I items, C concepts).

    Attributes:
        rows: the items, their benchmarks and lengths.
        saliency: I x C.
        families: code of each item's family (I).
        strata: code of each item's stratum (I).
        excluded: concepts that are not tested, dead or structural ones (C, bool).
    """

    rows: Rows
    saliency: sp.csr_matrix
    families: IntArray
    strata: IntArray
    excluded: np.ndarray


@dataclass(frozen=True)
class SubjectScores:
    """A subject's scores in the order of the suite's items: NaN where unscored; and ids that the suite does not hold."""

    scores: FloatArray
    chance: FloatArray
    n_unknown: int


def read_suite(activations: Path, items: Path | None, coverage: Path | None, strata: StrataParams) -> Suite:
    """Read the observer's side of performance.

    Without items every item is a family of its own; without coverage no concept is left out of the tests.

    Raises:
        InputError: a file is missing, damaged or of another run, or ``strata.meta`` is set and cannot be had.
    """
    rows = read_rows(activations)
    saliency = read_matrix(activations, "saliency", rows)
    families: IntArray = np.arange(len(rows.item_ids), dtype=np.int64)
    keys = None
    if items is not None:
        ordered = _in_order(read_items(items), rows, items)
        families = _codes([item.family for item in ordered])
        if strata.meta is not None:
            keys = _meta_codes(ordered, strata.meta, items)
    elif strata.meta is not None:
        raise InputError("needs the items", field="performance.strata.meta", fix="give --items, or set it to null")
    codes = length_strata(rows.n_tokens, rows.codes, strata.length_bins, keys)
    width = saliency.shape[1]
    excluded = np.zeros(width, dtype=bool) if coverage is None else read_excluded(coverage / "coverage.parquet", width)
    return Suite(rows, saliency, families, codes, excluded)


def _in_order(items: list[Item], rows: Rows, path: Path) -> list[Item]:
    by_id = {item.id: item for item in items}
    for item_id in rows.item_ids:
        if item_id not in by_id:
            raise InputError(f"does not hold item {item_id!r} of the activations", file=path, fix="run extract-activations again")
    return [by_id[item_id] for item_id in rows.item_ids]


def _codes(names: list[str]) -> IntArray:
    codes: IntArray = np.unique(np.array(names, dtype=object), return_inverse=True)[1].astype(np.int64)
    return codes


def _meta_codes(items: list[Item], key: str, path: Path) -> IntArray:
    values = [item.meta.get(key) for item in items]
    if all(value is None for value in values):
        raise InputError(f"no item has meta.{key}", file=path, field="performance.strata.meta", fix="name another key, or null")
    return _codes(["" if value is None else f"={value}" for value in values])


def read_excluded(path: Path, n_concepts: int) -> np.ndarray:
    """Concepts that coverage says are dead or structural (C, bool).

    Raises:
        InputError: absent, damaged, or not of ``n_concepts`` concepts.
    """
    table = COVERAGE.read(path, ["concept", "benchmark", "status", "structural"])
    suite = table.filter(pc.equal(table["benchmark"], SUITE)).sort_by("concept")
    if not np.array_equal(suite["concept"].to_numpy(), np.arange(n_concepts)):
        message = f"must hold one {SUITE} row for each of the {n_concepts} concepts"
        raise InputError(message, file=path, field="concept", fix="run the coverage stage again on the same activations")
    dead = pc.fill_null(pc.equal(suite["status"], "dead"), False)
    structural = pc.fill_null(suite["structural"], False)
    excluded: np.ndarray = pc.or_(dead, structural).to_numpy(zero_copy_only=False).astype(bool)
    return excluded


def read_scores(path: Path, rows: Rows) -> SubjectScores:
    """Read scores.parquet and join it to the suite's items on their ids.

    An item without a row, or whose row says that it is not scored, is unscored. Rows of other items are counted.

    Raises:
        InputError: damaged, an id twice, a score outside 0 to 1, a chance of 1, or no score of any item of the suite.
    """
    table = SCORES.read(path, ["item_id", "score", "chance", "scored"])
    ids: list[str] = table["item_id"].to_pylist()
    line_of = {item_id: line for line, item_id in enumerate(ids)}
    if len(line_of) < len(ids):
        line = next(line for line, item_id in enumerate(ids) if line_of[item_id] != line)
        raise InputError(f"item {ids[line]!r} occurs twice", file=path, line=line + 1, field="item_id")
    values, chances, scored = (_numbers(table[name]) for name in ("score", "chance", "scored"))
    # A blind guess that is always right leaves no room to be better than it.
    allowed = {"score": (values <= 1, "must be 0 to 1"), "chance": (chances < 1, "must be at least 0 and below 1")}
    for name, column in (("score", values), ("chance", chances)):
        bad = (scored == 1) & ~((column >= 0) & allowed[name][0])
        if bad.any():
            line = int(np.argmax(bad))
            raise InputError(f"item {ids[line]!r} has {column[line]:g}, {allowed[name][1]}", file=path, line=line + 1, field=name)
    found = np.array([line_of.get(item_id, -1) for item_id in rows.item_ids])
    if (found < 0).all():
        message = f"none of its {len(ids)} ids is an item of the activations (here {ids[:1]}, there {rows.item_ids[:1]})"
        raise InputError(message, file=path, field="item_id", fix="score the items that were read")
    usable = (found >= 0) & (scored[found] == 1)
    if not usable.any():
        raise InputError("no item of the activations is scored", file=path, field="scored", fix="look at the score stage's report")
    scores = np.where(usable, values[found], np.nan)
    return SubjectScores(scores, np.where(usable, chances[found], 0.0), len(ids) - int((found >= 0).sum()))


def _numbers(column: pa.ChunkedArray) -> FloatArray:
    numbers: FloatArray = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


def performance_table(suite: Suite, subject: SubjectScores, params: PerformanceParams) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a subject's performance table, and its headline metrics (the module's docstring explains them)."""
    rows = suite.rows
    plain = reference(suite.saliency, subject.scores, rows.codes, suite.families, confidence=params.confidence)
    calibrated = calibrate(
        suite.saliency,
        subject.scores,
        subject.chance,
        rows.codes,
        suite.strata,
        suite.families,
        min_n_eff=params.min_n_eff,
        alpha=params.alpha,
        excluded=suite.excluded,
        confidence=params.confidence,
    )
    return _columns(rows, plain, calibrated), headlines(subject, plain, calibrated)


def _columns(rows: Rows, plain: Reference, calibrated: Calibrated) -> dict[str, Any]:
    names, n_concepts = [*rows.benchmarks, SUITE], plain.chi_model.shape[1]
    return {
        "concept": np.tile(np.arange(n_concepts), len(names)),
        "benchmark": np.repeat(np.array(names, dtype=object), n_concepts),
        "chi_model": plain.chi_model.ravel(),
        "n": plain.n.ravel(),
        "n_eff": plain.n_eff.ravel(),
        "ci_low": plain.low.ravel(),
        "ci_high": plain.high.ravel(),
        "adjusted": calibrated.adjusted.ravel(),
        "adjusted_low": calibrated.low.ravel(),
        "adjusted_high": calibrated.high.ravel(),
        "shrunk": calibrated.shrunk.ravel(),
        "p": calibrated.p.ravel(),
        "q": calibrated.q.ravel(),
        "finding": [None if lead < 0 else str(lead) for lead in calibrated.finding.ravel().tolist()],
        "status": [STATUSES[state] for state in calibrated.status.ravel().tolist()],
    }


def headlines(subject: SubjectScores, plain: Reference, calibrated: Calibrated) -> dict[str, Any]:
    """A subject's metrics."""
    scored = ~np.isnan(subject.scores)
    status = calibrated.status[-1]
    counts = {name: int((status == STATUSES.index(name)).sum()) for name in ("gap", "strength", "unsupported", "undefined")}
    metrics: dict[str, Any] = {
        "n_items": len(scored),
        "n_scored": int(scored.sum()),
        "n_unscored": int((~scored).sum()),
        "n_unknown": subject.n_unknown,
        "n_alone": calibrated.n_alone,
        "mean_score": float(subject.scores[scored].mean()),
        "n_supported": int((status <= TYPICAL).sum()),
        **{f"n_{name}": count for name, count in counts.items()},
        "n_gap_findings": int(calibrated.findings(GAP)[-1]),
        "n_strength_findings": int(calibrated.findings(STRENGTH)[-1]),
    }
    chi = plain.chi_model[-1]
    if not np.isnan(chi).all():
        metrics["median_chi_model"] = float(np.nanmedian(chi))
    return metrics


def subject_files(scores: Path, subjects: list[str] | None) -> dict[str, Path]:
    """The scores.parquet of each subject in a directory of subjects: those named, or all that are there.

    Raises:
        InputError: there is none.
    """
    if subjects is None:
        subjects = sorted(file.parent.name for file in scores.glob("*/scores.parquet"))
        if not subjects:
            raise InputError("holds no scores.parquet and no directory with one", file=scores, fix="give the output of gapscope score")
    return {subject: scores / subject / "scores.parquet" for subject in subjects}


def write_performance(suite: Suite, scores: Path, output: Path, params: PerformanceParams) -> dict[str, Any]:
    """Write one subject's table to the file ``output`` from its scores.parquet, and return its metrics."""
    data, metrics = performance_table(suite, _read_subject(scores, suite), params)
    PERFORMANCE.write(output, data)
    return metrics


def write_performances(suite: Suite, files: dict[str, Path], output: Path, params: PerformanceParams) -> dict[str, Any]:
    """Write ``<subject>.parquet`` of every subject into the directory ``output``, and return metrics by subject."""
    metrics: dict[str, Any] = {}
    with atomic_directory(output) as directory:
        for subject, file in files.items():
            metrics[subject] = write_performance(suite, file, directory / f"{subject}.parquet", params)
    return metrics


def _read_subject(path: Path, suite: Suite) -> SubjectScores:
    subject = read_scores(path, suite.rows)
    n_unscored = int(np.isnan(subject.scores).sum())
    if n_unscored or subject.n_unknown:
        logger.warning("%s: %d items unscored, %d scores of items that were not read", path.parent.name, n_unscored, subject.n_unknown)
    return subject
