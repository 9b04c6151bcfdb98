"""Coverage: how much a benchmark exercises each concept (chi_bench), and what it leaves out.

What the metrics file says, in plain words (the README quotes these):

- ``suite.missing_share``: share of the SAE's concepts that fire on no item of any benchmark.
- ``missing_share.masked.<benchmark>``: the same for one benchmark; ``unmasked``: with begin-of-text and other special
  tokens left in, as in the published results.
- ``suite.under`` and ``suite.over``: concepts in the bottom and top tail of chi_bench among those that fire at all.
- ``suite.missing_share_alive``: missing share among the concepts that fire on the reference corpus; a concept that fires
  nowhere is the SAE's fault, not the suite's.
- ``reference_status``: concepts by their firing rate here against the reference corpus at equal tokens, structural ones
  left out: dead (fire on neither), unexercised (fire there and, although there is text enough, never here), under and over
  (rarer and commoner here than there by the stated factor, beyond doubt), typical, undecided (never fire here, but there
  is too little text to expect it).
- ``structural``: concepts that fire as often on the empty template as on an item: they say nothing about content.
- ``overlap``: Jaccard of the sets of concepts that fire in two benchmarks, over all pairs.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gapscope.artifacts import COVERAGE, OVERLAP, SUITE
from gapscope.competency.activations import FiringCounts, FloatArray, IntArray, Rows, read_counts, read_matrix, read_rows
from gapscope.competency.representation import STATUSES, coverage_status, design_effect, is_structural, log_ratio, reference_effect
from gapscope.files import atomic_directory
from gapscope.params import CoverageParams

logger = logging.getLogger(__name__)

PUBLISHED = ("missing", "under", "typical", "over")
"""The values of the coverage table's ``published_status``."""


@dataclass(frozen=True)
class CoverageInputs:
    """What coverage is computed from: I items, C concepts."""

    rows: Rows
    saliency: sp.csr_matrix
    firing: sp.csr_matrix
    saliency_unmasked: sp.csr_matrix | None
    reference: FiringCounts | None
    template: FiringCounts | None


def chi_bench(saliency: sp.csr_matrix, rows: Rows) -> FloatArray:
    """Coverage of each concept by each benchmark and by the suite (B+1 x C; the last row is the suite).

    chi_bench(b,c) = mean_{i in b} a(i,c) / mean_{i in b, all c'} a(i,c'), and the suite's is the mean over benchmarks
    (arXiv 2512.20638). 1 is an average concept, 0 one that never fires. NaN where no concept fires in the benchmark at
    all; such a benchmark is left out of the suite's mean.
    """
    totals = (rows.membership @ saliency).toarray()
    # Both means run over the same items, so their number cancels and only that of the concepts stays.
    denominator = totals.sum(axis=1, keepdims=True) / totals.shape[1]
    by_benchmark = np.divide(totals, denominator, out=np.full_like(totals, np.nan), where=denominator > 0)
    return np.vstack([by_benchmark, mean_where_defined(by_benchmark)])


def mean_where_defined(by_benchmark: FloatArray) -> FloatArray:
    """Mean over the rows (B x C -> C) of the entries that are not NaN; NaN where there is none."""
    defined = ~np.isnan(by_benchmark)
    count = defined.sum(axis=0)
    total = np.where(defined, by_benchmark, 0.0).sum(axis=0)
    mean: FloatArray = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean


def published_status(chi: FloatArray, under_quantile: float, over_quantile: float) -> list[str | None]:
    """Missing, under, typical or over by the published rule, for one benchmark's chi_bench (C).

    The paper calls a concept missing where its coverage is 0, and under-represented where it is in the bottom 10% or near
    0. Ours, because the paper does not say: the tails are quantiles of the concepts that fire at all in this benchmark,
    values equal to the quantile are typical, and over is the top tail by the same rule. Null where chi_bench is undefined.
    """
    fires = chi > 0
    if not fires.any():
        return [None if np.isnan(value) else "missing" for value in chi]
    low, high = np.quantile(chi[fires], [under_quantile, over_quantile])
    return [str(name) for name in np.select([~fires, chi < low, chi > high], ["missing", "under", "over"], default="typical")]


def coverage_table(inputs: CoverageInputs, params: CoverageParams) -> dict[str, Any]:
    """The columns of coverage.parquet: one row for each concept in each benchmark, and in the suite.

    The suite's chi_bench is the mean over benchmarks; its counts and its firing rate are those of all items together.
    """
    rows, n_concepts = inputs.rows, inputs.saliency.shape[1]
    names = [*rows.benchmarks, SUITE]
    chi = chi_bench(inputs.saliency, rows)
    unmasked = None if inputs.saliency_unmasked is None else chi_bench(inputs.saliency_unmasked, rows)
    n_items, n_tokens = (_with_suite((rows.membership @ matrix).toarray()) for matrix in (inputs.firing.sign(), inputs.firing))
    exposure = _with_suite(rows.membership @ rows.n_tokens)[:, None]
    rate = np.divide(n_tokens, exposure, out=np.full(n_tokens.shape, np.nan), where=exposure > 0)
    data: dict[str, Any] = {
        "concept": np.tile(np.arange(n_concepts), len(names)),
        "benchmark": np.repeat(np.array(names, dtype=object), n_concepts),
        "chi_bench": chi.ravel(),
        "n_items": n_items.ravel().astype(np.int64),
        "n_tokens": n_tokens.ravel().astype(np.int64),
        "firing_rate": rate.ravel(),
        "published_status": [name for row in chi for name in published_status(row, params.under_quantile, params.over_quantile)],
    }
    if unmasked is not None:
        data["chi_bench_unmasked"] = unmasked.ravel()
    if inputs.reference is not None:
        data |= _against_reference(inputs, inputs.reference, n_tokens.astype(np.int64), exposure.ravel().astype(np.int64), params)
    if inputs.template is not None and inputs.template.n_tokens > 0:
        structural = is_structural(inputs.template, n_tokens[-1].astype(np.int64), len(rows.item_ids))
        data["structural"] = np.tile(structural, len(names))
    return data


def _with_suite(by_benchmark: FloatArray) -> FloatArray:
    return np.concatenate([by_benchmark, by_benchmark.sum(axis=0, keepdims=True)])


def _against_reference(
    inputs: CoverageInputs, reference: FiringCounts, fired: IntArray, exposure: IntArray, params: CoverageParams
) -> dict[str, Any]:
    effects = design_effect(inputs.firing, inputs.rows), reference_effect(reference)
    ratios = [log_ratio(counts, int(tokens), reference, *effects) for counts, tokens in zip(fired, exposure, strict=True)]
    statuses = [coverage_status(counts, reference, ratio, params.min_log_ratio) for counts, ratio in zip(fired, ratios, strict=True)]
    columns: dict[str, Any] = {
        "log_ratio": np.concatenate([ratio.estimate for ratio in ratios]),
        "log_ratio_low": np.concatenate([ratio.low for ratio in ratios]),
        "log_ratio_high": np.concatenate([ratio.high for ratio in ratios]),
        "status": [status for row in statuses for status in row],
    }
    if reference.n_tokens > 0:
        columns["reference_rate"] = np.tile(reference.n_firing / reference.n_tokens, len(ratios))
    return columns


def overlap_table(firing: sp.csr_matrix, rows: Rows) -> dict[str, Any]:
    """The columns of overlap.parquet: every ordered pair of benchmarks, and what their firing concepts share."""
    fires = ((rows.membership @ firing).toarray() > 0).astype(np.int64)
    shared, size = fires @ fires.T, fires.sum(axis=1)
    pairs = list(permutations(range(len(rows.benchmarks)), 2))
    first, second = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    common, union = shared[first, second], size[first] + size[second] - shared[first, second]
    return {
        "benchmark": [rows.benchmarks[k] for k in first],
        "other": [rows.benchmarks[k] for k in second],
        "n_concepts": size[first],
        "n_other": size[second],
        "n_shared": common,
        "jaccard": _ratio(common, union),
        "contained": _ratio(common, size[first]),
    }


def _ratio(part: IntArray, whole: IntArray) -> FloatArray:
    share: FloatArray = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return share


def read_inputs(activations: Path) -> CoverageInputs:
    """Read and check what coverage needs of an extract-activations directory.

    The unmasked saliency, the reference corpus and the template may be absent: their columns are null then, and a warning
    says so.

    Raises:
        InputError: a file is missing or damaged, or two of them do not belong together.
    """
    rows = read_rows(activations)
    saliency = read_matrix(activations, "saliency", rows)
    width = saliency.shape[1]
    firing = read_matrix(activations, "firing", rows, width)
    has_unmasked = (activations / "saliency_unmasked.npz").exists()
    unmasked = read_matrix(activations, "saliency_unmasked", rows, width) if has_unmasked else None
    reference, template = (read_counts(activations, name, width) for name in ("reference", "template"))
    if not has_unmasked:
        logger.warning("no saliency_unmasked.npz: coverage with special tokens left in is null")
    for name, found in (("reference", reference), ("template", template)):
        if found is None:
            logger.warning("no %s.parquet: the columns that rest on it are null", name)
    return CoverageInputs(rows, saliency, firing, unmasked, reference, template)


def write_coverage(activations: Path, output: Path, params: CoverageParams) -> dict[str, Any]:
    """Write coverage.parquet and overlap.parquet into the directory ``output`` and return the headline metrics.

    Raises:
        InputError: see :func:`read_inputs`.
    """
    inputs = read_inputs(activations)
    data, overlap = coverage_table(inputs, params), overlap_table(inputs.firing, inputs.rows)
    with atomic_directory(output) as directory:
        COVERAGE.write(directory / "coverage.parquet", data)
        OVERLAP.write(directory / "overlap.parquet", overlap)
    return headlines(inputs, data, overlap)


def headlines(inputs: CoverageInputs, data: dict[str, Any], overlap: dict[str, Any]) -> dict[str, Any]:
    """The metrics of coverage, as the module's docstring explains them."""
    rows, n_concepts = inputs.rows, inputs.saliency.shape[1]
    shape = (len(rows.benchmarks) + 1, n_concepts)
    metrics: dict[str, Any] = {
        "n_items": len(rows.item_ids),
        "n_tokens": int(rows.n_tokens.sum()),
        "n_masked": int(rows.n_masked.sum()),
        "n_truncated": int(rows.n_truncated.sum()),
        "n_concepts": n_concepts,
        "missing_share": {"masked": _missing(data["chi_bench"].reshape(shape), rows.benchmarks)},
        "suite": _suite_counts(inputs, data, n_concepts),
        "overlap": _spread(overlap["jaccard"]),
    }
    if "chi_bench_unmasked" in data:
        metrics["missing_share"]["unmasked"] = _missing(data["chi_bench_unmasked"].reshape(shape), rows.benchmarks)
    structural = data["structural"][-n_concepts:] if "structural" in data else np.zeros(n_concepts, dtype=bool)
    if "structural" in data:
        metrics["structural"] = int(structural.sum())
    if "status" in data:
        suite = data["status"][-n_concepts:]
        found = Counter(status or "undecided" for status, left_out in zip(suite, structural, strict=True) if not left_out)
        metrics["reference_status"] = {name: found[name] for name in (*STATUSES, "undecided")}
    return metrics


def _missing(chi: FloatArray, benchmarks: list[str]) -> dict[str, float]:
    return {name: float((row == 0).mean()) for name, row in zip(benchmarks, chi[:-1], strict=True) if not np.isnan(row).any()}


def _suite_counts(inputs: CoverageInputs, data: dict[str, Any], n_concepts: int) -> dict[str, Any]:
    chi = data["chi_bench"][-n_concepts:]
    found = Counter(data["published_status"][-n_concepts:])
    counts: dict[str, Any] = {name: found[name] for name in PUBLISHED}
    if not np.isnan(chi).any():
        counts["missing_share"] = float((chi == 0).mean())
    if "chi_bench_unmasked" in data:
        counts["missing_share_unmasked"] = float((data["chi_bench_unmasked"][-n_concepts:] == 0).mean())
    if inputs.reference is not None and (alive := inputs.reference.n_firing > 0).any():
        counts["missing_share_alive"] = float((chi[alive] == 0).mean())
    return counts


def _spread(jaccard: FloatArray) -> dict[str, Any]:
    defined = jaccard[~np.isnan(jaccard)]
    numbers: dict[str, Any] = {"n_pairs": len(defined) // 2}
    if len(defined):
        numbers |= {"min": float(defined.min()), "median": float(np.median(defined)), "max": float(defined.max())}
    return numbers
