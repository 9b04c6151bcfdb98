"""Example contexts of every concept: where it fires most, and a spread over its activation range, in bounded memory.

Per concept and item only the strongest token counts. The top contexts are the strongest items; the quantile contexts come from
a sample of the others that depends on item ids alone, so that neither the order nor the number of batches matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gapscope.files import stable_hash

SAMPLE = 64
"""Items kept per concept to draw the quantile contexts from."""

MERGE_AT = 4_000_000
"""Candidates gathered before the weakest are dropped."""


def coarse(value: np.ndarray) -> np.ndarray:
    """Whole numbers in the order of positive float32 values, equal where the values are to about one part in 8,000.

    Two items with the same words differ in the last bits, by the batch they were in; what comes first must not hang on that.
    """
    found: np.ndarray = (np.ascontiguousarray(value, dtype=np.float32).view(np.int32) + 512) >> 10
    return found


@dataclass(frozen=True)
class Peaks:
    """Strongest token of each (concept, item) pair. All arrays have one entry a pair; ``token`` counts from the item's first."""

    concept: np.ndarray
    item: np.ndarray
    value: np.ndarray
    token: np.ndarray

    def __getitem__(self, which: np.ndarray) -> Peaks:
        return Peaks(self.concept[which], self.item[which], self.value[which], self.token[which])

    def __len__(self) -> int:
        return len(self.concept)


def join(parts: list[Peaks]) -> Peaks:
    """All pairs of several."""
    if not parts:
        return Peaks(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32))
    columns = ([getattr(part, name) for part in parts] for name in ("concept", "item", "value", "token"))
    return Peaks(*(np.concatenate(column) for column in columns))


def peaks_of(codes: sp.csr_matrix, items: np.ndarray, n_tokens: np.ndarray, counted: np.ndarray) -> Peaks:
    """The peaks among the counted tokens of some items (``codes`` has their tokens one after the other); the earliest of equals."""
    row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))
    kept = counted[row]
    row, concept, value = row[kept], codes.indices[kept], codes.data[kept]
    place = np.repeat(np.arange(len(n_tokens)), n_tokens)[row]
    pair = place.astype(np.int64) * codes.shape[1] + concept
    order = np.argsort(pair, kind="stable")
    _values, starts, sizes = np.unique(pair[order], return_index=True, return_counts=True)
    if len(order) == 0:
        return join([])
    strength = coarse(value[order])
    greatest = np.flatnonzero(strength == np.repeat(np.maximum.reduceat(strength, starts), sizes))
    group = np.repeat(np.arange(len(starts)), sizes)[greatest]
    best = order[greatest[np.unique(group, return_index=True)[1]]]
    token = row[best] - (np.cumsum(n_tokens) - n_tokens)[place[best]]
    return Peaks(concept[best].astype(np.int32), items[place[best]].astype(np.int32), value[best], token.astype(np.int32))


class Selection:
    """The pairs from which contexts are made, as shards arrive in any order.

    Args:
        item_ids: ids of all items.
        top: top contexts a concept.
        quantiles: quantile contexts a concept.
    """

    def __init__(self, item_ids: list[str], top: int, quantiles: int) -> None:
        self._chance = np.array([stable_hash("contexts", item) for item in item_ids], dtype=np.uint64)
        self._top, self._quantiles = top, quantiles
        self._strongest: list[Peaks] = []
        self._sampled: list[Peaks] = []
        self._held = 0

    def add(self, peaks: Peaks) -> None:
        """Take in the pairs of some more items."""
        self._strongest.append(peaks)
        self._sampled.append(peaks)
        self._held += len(peaks)
        if self._held > MERGE_AT:
            self._merge()

    def _merge(self) -> None:
        strongest, sampled = join(self._strongest), join(self._sampled)
        self._strongest = [_first_of_concept(strongest, self._order(strongest, -coarse(strongest.value)), self._top)]
        # More than SAMPLE, since those among the top contexts are left out at the end.
        self._sampled = [_first_of_concept(sampled, self._order(sampled, np.zeros(len(sampled))), SAMPLE + self._top)]
        self._held = 0

    def _order(self, peaks: Peaks, key: np.ndarray) -> np.ndarray:
        """By concept, then by key, then by a hash of the item's id."""
        return np.lexsort((peaks.item, self._chance[peaks.item], key, peaks.concept))

    def finish(self) -> tuple[Peaks, np.ndarray, Peaks, np.ndarray]:
        """Top contexts with their ranks (strongest first), quantile contexts with theirs (weakest first); by concept."""
        self._merge()
        top, sampled = self._strongest[0], self._sampled[0]
        chosen = _first_of_concept(sampled[~_in(sampled, top)], None, SAMPLE)
        chosen = chosen[self._order(chosen, coarse(chosen.value))]
        place, quantile = _spread(chosen.concept, self._quantiles)
        return top, _group_places(top.concept)[1], chosen[place], quantile


def _spread(concept: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Of entries sorted by concept, ``count`` evenly spaced ones of each group, or all of a smaller one; and their numbers."""
    _values, starts, sizes = np.unique(concept, return_index=True, return_counts=True)
    taken = np.minimum(sizes, count)
    number = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    size, of = np.repeat(sizes, taken), np.repeat(taken, taken)
    return np.repeat(starts, taken) + (2 * number + 1) * size // (2 * of), number


def _first_of_concept(peaks: Peaks, order: np.ndarray | None, limit: int) -> Peaks:
    ordered = peaks if order is None else peaks[order]
    return ordered[_group_places(ordered.concept)[1] < limit]


def _group_places(concept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For entries sorted by concept: the size of each one's group, and its place in it."""
    if len(concept) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    _values, starts, sizes = np.unique(concept, return_index=True, return_counts=True)
    return np.repeat(sizes, sizes), np.arange(len(concept)) - np.repeat(starts, sizes)


def _in(peaks: Peaks, others: Peaks) -> np.ndarray:
    width = max([int(p.item.max(initial=0)) for p in (peaks, others)]) + 1
    found: np.ndarray = np.isin(peaks.concept.astype(np.int64) * width + peaks.item, others.concept.astype(np.int64) * width + others.item)
    return found


def window_values(codes: sp.csr_matrix, concept: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Activation of ``concept[k]`` on each token of ``rows[k]`` (contexts, width); 0 where it does not fire or the row is -1."""
    width = codes.shape[1]
    keys = np.repeat(np.arange(codes.shape[0], dtype=np.int64), np.diff(codes.indptr)) * width + codes.indices
    wanted = rows.astype(np.int64) * width + concept[:, None]
    place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    found = (keys[place] == wanted) & (rows >= 0) if len(keys) else np.zeros(rows.shape, dtype=bool)
    return np.where(found, codes.data[place] if len(keys) else 0, 0).astype(np.float32)


def pieces(text: str, spans: list[tuple[int, int]], values: np.ndarray) -> tuple[int, int, list[str], list[float]]:
    """Cut the stretch of text that some neighbouring tokens cover into pieces of whole characters.

    Tokens that share a character become one piece, with the greatest of their activations; characters that no token covers
    join the piece after them. The pieces put together are ``text[start:end]``.

    Returns:
        start, end, the pieces and their activations.
    """
    bounds: list[list[int]] = []
    peaks: list[float] = []
    for (start, end), value in zip(spans, values.tolist(), strict=True):
        if bounds and (start < bounds[-1][1] or start == end):
            bounds[-1][1] = max(bounds[-1][1], end)
            peaks[-1] = max(peaks[-1], value)
        else:
            bounds.append([bounds[-1][1] if bounds else start, end])
            peaks.append(value)
    if not bounds:
        return 0, 0, [], []
    return bounds[0][0], bounds[-1][1], [text[start:end] for start, end in bounds], peaks
