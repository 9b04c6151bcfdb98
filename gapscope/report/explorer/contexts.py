"""Where concepts fire: windows of the items' text with the stretches on which a concept is active, within a stated budget."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import CONTEXTS
from gapscope.report.explorer.blocks import Block

MAX_CONTEXTS = 300_000
"""Contexts held in the page; where there are more, the strongest of every concept go first."""

MAX_CHARACTERS = 12_000_000
"""Characters of item text held in the page; contexts of the items beyond it are left out."""

PEAKS = 3
"""A concept without a label is called by so many of the pieces of text on which it fires most."""

GROUPS = ("top", "quantile", "reference")

REFERENCE, ENOUGH = 2, 4
"""Windows of the reference corpus that a concept keeps where it has more than ``ENOUGH`` of the items; all of them else."""


@dataclass(frozen=True)
class Found:
    """Contexts of an observer.

    Attributes:
        block: the windows, ordered by concept.
        item_ids: ids of the items that they are from, in the order of the block's ``item``.
        texts: text of windows that are from no item (reference documents); ``item`` goes on counting through them.
        n_left_out: contexts that did not fit.
        peaks: by concept, the pieces of text on which it fires most.
    """

    block: Block
    item_ids: list[str]
    texts: list[str]
    n_left_out: int
    peaks: dict[int, str]


def read_found(file: Path, lengths: dict[str, int]) -> Found:
    """Read contexts.parquet.

    Args:
        file: written by extract-activations.
        lengths: characters of each item, by id.
    """
    table = CONTEXTS.read(file)
    table = table.filter(pc.is_in(table["group"], pa.array(GROUPS)))
    group = pc.index_in(table["group"], pa.array(GROUPS)).to_numpy(zero_copy_only=False).astype(np.int64)
    concept, rank = table["concept"].to_numpy(), table["rank"].to_numpy()
    peaks = _peaks(table, concept, group, rank)
    first = np.lexsort((concept, rank, group))
    of_items = np.bincount(concept[group < GROUPS.index("reference")], minlength=int(concept.max(initial=0)) + 1)
    spare = (group == GROUPS.index("reference")) & (rank >= REFERENCE) & (of_items[concept] > ENOUGH)
    first = first[~spare[first]]
    kept = np.sort(_within_budget(table, first[:MAX_CONTEXTS], lengths))
    kept = kept[np.lexsort((rank[kept], group[kept], concept[kept]))]
    block, item_ids, texts = _block(table.take(pa.array(kept)), group[kept], lengths)
    return Found(block, item_ids, texts, len(first) - len(kept), peaks)


def _within_budget(table: pa.Table, order: np.ndarray, lengths: dict[str, int]) -> np.ndarray:
    """The contexts, in the order of their rank, whose items fit into the budget of characters."""
    names, codes = np.unique(np.array(table["item_id"].to_pylist(), dtype=object)[order], return_inverse=True)
    size = np.array([lengths.get(name, 200) for name in names])
    first = np.full(len(names), len(order))
    np.minimum.at(first, codes, np.arange(len(order)))
    by_use = np.argsort(first, kind="stable")
    fits = np.zeros(len(names), dtype=bool)
    fits[by_use] = np.cumsum(size[by_use]) <= MAX_CHARACTERS
    return np.asarray(order[fits[codes]])


def _peaks(table: pa.Table, concept: np.ndarray, group: np.ndarray, rank: np.ndarray) -> dict[int, str]:
    """Of each concept the pieces at the peak of its strongest contexts, each once."""
    values = _flat(table, "activations")
    starts = np.concatenate([[0], np.cumsum(_sizes(table, "activations"))])
    texts = pc.list_flatten(table["tokens"].combine_chunks())
    found: dict[int, list[str]] = {}
    for row in np.lexsort((rank, group, concept)).tolist():
        pieces = found.setdefault(int(concept[row]), [])
        if len(pieces) < PEAKS and starts[row] < starts[row + 1]:
            peak = int(starts[row] + np.argmax(values[starts[row] : starts[row + 1]]))
            piece = " ".join(texts[peak].as_py().split())
            if piece and piece.casefold() not in {known.casefold() for known in pieces}:
                pieces.append(piece)
    return {number: " · ".join(pieces) for number, pieces in found.items()}


def _sizes(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(pc.list_value_length(table[name]).to_numpy(zero_copy_only=False), dtype=np.int64)


def _flat(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(pc.list_flatten(table[name].combine_chunks()).to_numpy(zero_copy_only=False))


def _block(table: pa.Table, group: np.ndarray, lengths: dict[str, int]) -> tuple[Block, list[str], list[str]]:
    """Windows and their active stretches. Positions count characters (code points) of the item's text."""
    sizes, values = _sizes(table, "activations"), _flat(table, "activations").astype(np.float64)
    widths = pc.utf8_length(pc.list_flatten(table["tokens"].combine_chunks())).to_numpy(zero_copy_only=False).astype(np.int64)
    row = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(widths) - widths
    opening = np.repeat(before[np.minimum(np.cumsum(sizes) - sizes, max(len(before) - 1, 0))], sizes) if len(before) else before
    offset = before - opening
    active = values > 0
    ids = table["item_id"].to_pylist()
    inside = np.array([name in lengths for name in ids], dtype=bool)
    item_ids = sorted({name for name, known in zip(ids, inside, strict=True) if known})
    place = {name: code for code, name in enumerate(item_ids)}
    texts = ["".join(table["tokens"][int(k)].as_py()) for k in np.flatnonzero(~inside)]
    item = np.array([place.get(name, -1) for name in ids], dtype=np.int64)
    item[~inside] = len(item_ids) + np.arange(len(texts))
    start, end = table["start"].to_numpy(), table["end"].to_numpy()
    block = Block()
    block.counts("concept", table["concept"].to_numpy())
    block.counts("item", item)
    block.counts("start", np.where(inside, start, 0))
    block.counts("length", end - start)
    block.counts("group", group)
    block.counts("rank", table["rank"].to_numpy())
    block.counts("n_active", np.bincount(row[active], minlength=len(sizes)))
    block.counts("offset", offset[active])
    block.counts("width", widths[active])
    block.log("activation", values[active])
    block.value("groups", list(GROUPS))
    return block, item_ids, texts
