"""contexts.parquet: windows of whole characters around the chosen peaks, made from the stored shards one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gapscope.artifacts import CONTEXTS
from gapscope.competency.contexts import Peaks, Selection, pieces, window_values
from gapscope.competency.saliency import Shard
from gapscope.table import FLOATS, STRINGS


@dataclass(frozen=True)
class Contexts:
    """How windows are cut.

    Attributes:
        item_ids: id of each item, or of whatever else was read.
        text: its text, by its index.
        spans: the character span of each of its tokens.
        window: tokens in a window, at most.
        first_token: 1 where a begin-of-text token stands in front, which no window shows; else 0.
    """

    item_ids: list[str]
    text: Callable[[int], str]
    spans: Callable[[int], list[tuple[int, int]]]
    window: int
    first_token: int


def context_table(contexts: Contexts, shards: Iterable[Shard], selection: Selection, strongest: str = "top") -> pa.Table:
    """The chosen contexts as a CONTEXTS table, made from the stored shards one at a time; ``strongest`` is the first group's name."""
    top, top_rank, quantile, quantile_rank = selection.finish()
    chosen = Peaks(*(np.concatenate([getattr(top, name), getattr(quantile, name)]) for name in ("concept", "item", "value", "token")))
    ranks = np.concatenate([top_rank, quantile_rank])
    groups = np.repeat(np.array([strongest, "quantile"]), [len(top), len(quantile)])
    tables = [CONTEXTS.schema.empty_table()]
    for shard in shards:
        here = np.flatnonzero(np.isin(chosen.item, shard.texts))
        tables.append(_shard_contexts(contexts, shard, chosen[here], ranks[here], groups[here]))
    return CONTEXTS.sorted(pa.concat_tables(tables))


def _shard_contexts(contexts: Contexts, shard: Shard, chosen: Peaks, ranks: np.ndarray, groups: np.ndarray) -> pa.Table:
    width = contexts.window
    starts = dict(zip(shard.texts.tolist(), (np.cumsum(shard.n_tokens) - shard.n_tokens).tolist(), strict=True))
    lengths = dict(zip(shard.texts.tolist(), shard.n_tokens.tolist(), strict=True))
    # Two thirds of a window lie before the peak: a concept is mostly about what led up to it.
    first = np.maximum(chosen.token - width * 2 // 3, contexts.first_token)
    last = np.minimum(first + width, np.array([lengths[item] for item in chosen.item.tolist()], dtype=np.int64))
    offset = np.array([starts[item] for item in chosen.item.tolist()], dtype=np.int64)
    place = first[:, None] + np.arange(width)
    rows = np.where(place < last[:, None], offset[:, None] + place, -1)
    values = window_values(shard.codes, chosen.concept.astype(np.int64), rows)
    values[(rows >= 0) & shard.masked[rows]] = 0
    cut: list[tuple[int, int, list[str], list[float]]] = [(0, 0, [], [])] * len(chosen)
    for item in np.unique(chosen.item).tolist():
        text, offsets = contexts.text(item), contexts.spans(item)
        for number in np.flatnonzero(chosen.item == item).tolist():
            spans = offsets[first[number] : last[number]]
            cut[number] = pieces(text, spans, values[number, : len(spans)])
    columns = {
        "concept": pa.array(chosen.concept.tolist(), pa.int64()),
        "item_id": pa.array([contexts.item_ids[item] for item in chosen.item.tolist()], pa.string()),
        "start": pa.array([start for start, _end, _tokens, _values in cut], pa.int64()),
        "end": pa.array([end for _start, end, _tokens, _values in cut], pa.int64()),
        "tokens": pa.array([tokens for _start, _end, tokens, _values in cut], STRINGS),
        "activations": pa.array([found for _start, _end, _tokens, found in cut], FLOATS),
        "rank": pa.array(ranks.tolist(), pa.int64()),
        "group": pa.array(groups.tolist(), pa.string()),
    }
    return pa.Table.from_arrays([columns[field.name] for field in CONTEXTS.schema], schema=CONTEXTS.schema)
