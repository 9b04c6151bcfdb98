"""Contexts as a language model reads them: those of a concept, to explain and to hold out, and others in which it is silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from gapscope.competency.labels import REFERENCE
from gapscope.files import stable_hash

POOL = 2000
"""Windows, evenly spaced over all, among which those are found in which a concept is silent."""

MARKED = 0.5
"""Share of a window's peak from which a piece of text is marked as one on which the concept fires."""


@dataclass(frozen=True)
class Passage:
    """A window of an item's text: as it is, and with what the concept fires on between << and >>."""

    item_id: str
    plain: str
    marked: str


@dataclass(frozen=True)
class Reading:
    """What of a concept is shown to write a label from, and what is held out to test the label on.

    Attributes:
        shown: contexts of the concept, the strongest first; ``others`` are passages in which it is silent.
        held_out: contexts of it from other items; ``held_out_others`` are passages in which it is silent, again others.
    """

    shown: list[Passage]
    others: list[Passage]
    held_out: list[Passage]
    held_out_others: list[Passage]


def readings(
    contexts: pa.Table, concepts: Sequence[int], firing: sp.csr_matrix, item_ids: Sequence[str], n_shown: int, n_held_out: int
) -> dict[int, Reading]:
    """What a language model is shown of each of the named concepts.

    Contexts that are shown come from every other item of the concept, strongest first, so that strong ones are held out
    too; no item is on both sides. Contexts of the reference corpus are left out, since it is not known where else
    in it the concept fires. Nothing is drawn at random.
    """
    items = contexts.filter(pc.not_equal(contexts["group"], REFERENCE))
    pool = _pool(items)
    row_of = {item: row for row, item in enumerate(item_ids)}
    own = _own(items, concepts)
    columns = sp.csc_matrix(firing[:, list(concepts)])
    found: dict[int, Reading] = {}
    for place, concept in enumerate(concepts):
        fires = set(columns.indices[columns.indptr[place] : columns.indptr[place + 1]].tolist())
        silent = [passage for passage in pool if row_of[passage.item_id] not in fires]
        silent.sort(key=lambda passage, concept=concept: (stable_hash("other", concept, passage.item_id, passage.plain), passage.plain))  # type: ignore[misc]
        shown, held_out = _split(own[concept])
        shown, held_out = shown[:n_shown], held_out[:n_held_out]
        others, rest = silent[: len(shown)], silent[len(shown) :]
        found[concept] = Reading(shown, others, held_out, rest[: len(held_out)])
    return found


def _pool(contexts: pa.Table) -> list[Passage]:
    step = max(1, -(-contexts.num_rows // POOL))
    sample = contexts.take(pa.array(np.arange(0, contexts.num_rows, step)))
    texts = pc.binary_join(sample["tokens"], "").to_pylist()
    return [Passage(item, text, text) for item, text in zip(sample["item_id"].to_pylist(), texts, strict=True)]


def _own(contexts: pa.Table, concepts: Sequence[int]) -> dict[int, list[Passage]]:
    """Each concept's passages, the strongest first, those of quantiles after the strongest of all."""
    wanted = contexts.filter(pc.is_in(contexts["concept"], pa.array(list(concepts), pa.int64())))
    rows = wanted.select(["concept", "item_id", "tokens", "activations", "group", "rank"]).to_pylist()
    rows.sort(key=lambda row: (row["concept"], row["group"] != "top", row["rank"]))
    own: dict[int, list[Passage]] = {concept: [] for concept in concepts}
    for row in rows:
        plain = "".join(row["tokens"])
        own[row["concept"]].append(Passage(row["item_id"], plain, mark(row["tokens"], row["activations"])))
    return own


def _split(passages: list[Passage]) -> tuple[list[Passage], list[Passage]]:
    """Passages of every other item, in the order of first appearance, and those of the rest; one passage an item."""
    first_of: dict[str, Passage] = {}
    for passage in passages:
        first_of.setdefault(passage.item_id, passage)
    ordered = list(first_of.values())
    return ordered[::2], ordered[1::2]


def mark(pieces: Sequence[str], activations: Sequence[float]) -> str:
    """The text with every run of pieces at half of the peak or more between << and >>."""
    peak = max(activations, default=0.0)
    marked, inside = [], False
    for piece, activation in zip(pieces, activations, strict=True):
        fires = peak > 0 and activation >= MARKED * peak
        if fires != inside:
            marked.append("<<" if fires else ">>")
            inside = fires
        marked.append(piece)
    return "".join([*marked, ">>" if inside else ""])
