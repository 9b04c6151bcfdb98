"""The sources stage: which items are rewritten, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.competency.activations import FloatArray
from gapscope.competency.intervals import column_sums
from gapscope.errors import InputError
from gapscope.files import atomic_directory, round_significant, stable_hash, write_json
from gapscope.items import Item
from gapscope.loop.gaps import KINDS, Gaps, carried
from gapscope.loop.order import FILE

FIX = "set generate.source: items"
DIGITS = 7


def write_seeded(output: Path) -> dict[str, Any]:
    """Write that the items come in the order of the seed; nothing of the first half is in it. Returns the metrics."""
    with atomic_directory(output) as place:
        write_json(place / FILE, {"source": "items"})
    return {"from_gaps": 0}


def write_gap_order(
    output: Path, gaps: Gaps, items: Sequence[Item], benchmarks: Sequence[str] | None, observer: str, seed: int
) -> dict[str, Any]:
    """Write the items in the order of what they carry of the gaps, with the gaps themselves; returns the metrics.

    Args:
        output: directory for ``report.json``.
        gaps: of the observer.
        items: the suite.
        benchmarks: whose items may be rewritten; None for all.
        observer: slug.
        seed: decides between equal weights.

    Raises:
        InputError: as :func:`order_items`.
    """
    candidates = [item for item in items if item.answer is not None and (benchmarks is None or item.benchmark in benchmarks)]
    order = order_items(gaps, candidates, seed)
    n_items = np.asarray((gaps.saliency > 0).sum(axis=0)).ravel()
    concepts = [
        {"concept": gap.concept, "kind": gap.kind, "subject": gap.subject, "n_items": int(n_items[gap.concept])} for gap in gaps.found
    ]
    told = {"source": "gaps", "observer": observer, "concepts": concepts, "n_without": len(candidates) - len(order)}
    with atomic_directory(output) as place:
        write_json(place / FILE, told | {"items": [{"id": item_id, "weight": weight} for item_id, weight in order]})
    return {"from_gaps": 1, "concepts": gaps.counts(), "n_items": len(order), "n_without": told["n_without"]}


def order_items(gaps: Gaps, candidates: Sequence[Item], seed: int) -> list[tuple[str, float]]:
    """Ids and weights of the items that carry any of the gap concepts, the heaviest first; equals by the seed's hash.

    The weight is :func:`gapscope.loop.gaps.carried` over all gap concepts, each once. Where the suite's only item with a concept is
    a candidate, that item has the whole share: it is the one text from which the concept can be reached.

    Raises:
        InputError: there is no gap concept, an item was not read, or none of the candidates carries a gap concept.
    """
    concepts = gaps.concepts()
    if not len(concepts):
        subjects = ", ".join(gaps.subjects)
        message = f"there is no gap concept: none that the suite under-exercises, and no gap of {subjects}"
        raise InputError(message, field="generate.source", fix=FIX)
    row_of = {item_id: row for row, item_id in enumerate(gaps.rows.item_ids)}
    for item in candidates:
        if item.id not in row_of:
            raise InputError(f"item {item.id!r} was not read by the observer", field="items", fix="run extract-activations again")
    weights = _shown(carried(gaps.saliency, column_sums(gaps.saliency), concepts))
    found = [(item.id, float(weights[row_of[item.id]])) for item in candidates if weights[row_of[item.id]] > 0]
    if not found:
        kinds = ", ".join(f"{gaps.counts()[kind]} {kind}" for kind in KINDS)
        message = f"none of the gap concepts ({kinds}) fires on any of the {len(candidates)} items that may be rewritten"
        raise InputError(message, field="generate.source", fix=f"{FIX}, or name other benchmarks in rewritten")
    return sorted(found, key=lambda one: (-one[1], stable_hash(seed, "source", one[0]), one[0]))


def _shown(weights: FloatArray) -> FloatArray:
    """Weights as they are written: what is no difference on paper decides nothing."""
    return np.asarray(round_significant(weights, DIGITS), dtype=np.float64)
