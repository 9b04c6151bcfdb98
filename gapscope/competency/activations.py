"""Checked reading of what extract-activations wrote, for the stages that rest on it.

Nothing here needs a model: the directory's rows, sparse matrices and token counts, each checked against the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gapscope.artifacts import FIRING, ROWS, SUITE, rows_digest
from gapscope.errors import InputError
from gapscope.files import read_csr, read_json

IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Rows:
    """The items behind the rows of every matrix, in their order.

    Attributes:
        item_ids: id of each item (I).
        benchmarks: sorted slugs (B).
        codes: index into ``benchmarks`` of each item (I).
        n_tokens: unmasked tokens of each item (I).
        n_masked: tokens of each item that were read but left out (I).
        n_truncated: tokens of each item that did not fit (I).
    """

    item_ids: list[str]
    benchmarks: list[str]
    codes: IntArray
    n_tokens: IntArray
    n_masked: IntArray
    n_truncated: IntArray

    @property
    def membership(self) -> sp.csr_matrix:
        """Ones where benchmark b holds item i (B x I): its product with an items x concepts matrix sums by benchmark."""
        n_items = len(self.item_ids)
        ones = np.ones(n_items)
        return sp.csr_matrix((ones, (self.codes, np.arange(n_items))), shape=(len(self.benchmarks), n_items))


@dataclass(frozen=True)
class FiringCounts:
    """How often each concept fires on texts that are not items.

    Attributes:
        n_texts, n_tokens: texts read, and their unmasked tokens.
        n_firing: tokens on which each concept fires (C).
        n_firing_squared: sum over texts of the squared number of such tokens (C).
    """

    n_texts: int
    n_tokens: int
    n_firing: IntArray
    n_firing_squared: IntArray


def read_rows(directory: Path) -> Rows:
    """Read rows.parquet.

    Raises:
        InputError: it is absent or damaged, holds no item, an id twice, a negative count, or a benchmark called __suite__; or
            its rows are not those, in that order, that meta.json says the matrices have.
    """
    path = directory / "rows.parquet"
    table = ROWS.read(path)
    item_ids: list[str] = table["item_id"].to_pylist()
    slugs: list[str] = table["benchmark"].to_pylist()
    if not item_ids:
        raise InputError("holds no item", file=path)
    if len(set(item_ids)) < len(item_ids):
        twice = Counter(item_ids).most_common(1)[0][0]
        raise InputError(f"item {twice!r} occurs twice", file=path, field="item_id", fix="run extract-activations again")
    if SUITE in slugs:
        raise InputError(f"{SUITE} is the name of the whole suite", file=path, field="benchmark", fix="rename the benchmark")
    _check_order(directory, item_ids, slugs)
    counts = {}
    for name in ("n_tokens", "n_masked", "n_truncated"):
        counts[name] = table[name].to_numpy().astype(np.int64)
        if (counts[name] < 0).any():
            raise InputError("is negative", file=path, line=int(np.argmax(counts[name] < 0)) + 1, field=name)
    benchmarks, codes = np.unique(np.array(slugs, dtype=object), return_inverse=True)
    return Rows(item_ids, list(benchmarks), codes.astype(np.int64), counts["n_tokens"], counts["n_masked"], counts["n_truncated"])


def _check_order(directory: Path, item_ids: list[str], slugs: list[str]) -> None:
    """The matrices hold no ids: only meta.json ties their rows to the table's. A directory made by hand may be without it."""
    path = directory / "meta.json"
    meta = read_json(path) if path.exists() else {}
    if not isinstance(meta, dict):
        raise InputError("must be an object", file=path, fix="run extract-activations again")
    if meta.get("rows_sha256", rows_digest(item_ids, slugs)) != rows_digest(item_ids, slugs):
        message = "its items or their order are not those of the matrices (meta.json, rows_sha256)"
        raise InputError(message, file=directory / "rows.parquet", field="item_id", fix="run extract-activations again")


def read_matrix(directory: Path, name: str, rows: Rows, width: int | None = None) -> sp.csr_matrix:
    """Read ``<name>.npz``, items x concepts, as float64 without stored zeros.

    Args:
        directory: written by extract-activations.
        name: saliency, saliency_unmasked, firing or control_<name>.
        rows: the items that the rows must be.
        width: number of concepts, where it is known from another matrix.

    Raises:
        InputError: absent or damaged, another number of rows or concepts, or a value that is negative or not finite.
    """
    path = directory / f"{name}.npz"
    matrix = read_csr(path).astype(np.float64)
    again = "run extract-activations again"
    if matrix.shape[0] != len(rows.item_ids):
        raise InputError(f"has {matrix.shape[0]} rows, rows.parquet has {len(rows.item_ids)} items", file=path, fix=again)
    if width is not None and matrix.shape[1] != width:
        raise InputError(f"has {matrix.shape[1]} concepts, saliency.npz has {width}", file=path, fix=again)
    bad = ~(np.isfinite(matrix.data) & (matrix.data >= 0))
    if bad.any():
        row = int(np.searchsorted(matrix.indptr, int(np.argmax(bad)), side="right"))
        message = f"item {rows.item_ids[row - 1]!r} holds a value that is negative or not finite"
        raise InputError(message, file=path, line=row, fix=again)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def read_counts(directory: Path, name: str, width: int) -> FiringCounts | None:
    """Read ``<name>.parquet`` (reference or template); None where the file does not exist.

    Raises:
        InputError: damaged, not one row for each of ``width`` concepts, or more firing tokens than tokens.
    """
    path = directory / f"{name}.parquet"
    if not path.exists():
        return None
    table = FIRING.read(path)
    concepts = table["concept"].to_numpy()
    if not np.array_equal(concepts, np.arange(width)):
        raise InputError(f"must hold one row for each of the {width} concepts, in order", file=path, field="concept")
    names = ("n_texts", "n_tokens", "n_firing", "n_firing_squared")
    n_texts, n_tokens, n_firing, squared = (table[name].to_numpy().astype(np.int64) for name in names)
    for name, column in (("n_texts", n_texts), ("n_tokens", n_tokens)):
        if (column != column[0]).any():
            raise InputError("must be the same for every concept", file=path, field=name)
    if ((n_firing < 0) | (n_firing > n_tokens)).any():
        raise InputError("must lie between 0 and n_tokens", file=path, field="n_firing")
    if ((squared < n_firing) | (squared > n_firing**2)).any():
        raise InputError("must lie between n_firing and its square", file=path, field="n_firing_squared")
    return FiringCounts(int(n_texts[0]), int(n_tokens[0]), n_firing, squared)
