"""Small extract-activations directories made by hand or by seed, for the tests of the stages that read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gapscope.artifacts import CONTEXTS, FIRING, ROWS, SCORES, rows_digest
from gapscope.files import write_csr, write_json


def write_activations(
    directory: Path,
    saliency: np.ndarray,
    benchmarks: list[str],
    *,
    ids: list[str] | None = None,
    tokens: list[int] | None = None,
    firing: np.ndarray | None = None,
    unmasked: np.ndarray | None = None,
    reference: tuple[int, list[int]] | None = None,
    template: tuple[int, list[int]] | None = None,
) -> Path:
    """Write rows, matrices and counts; without ``firing``, every saliency above 0 is one firing token."""
    n_items, n_concepts = saliency.shape
    item_ids = ids or [f"i{k:04d}" for k in range(n_items)]
    ROWS.write(
        directory / "rows.parquet",
        {
            "item_id": item_ids,
            "benchmark": benchmarks,
            "n_tokens": tokens or [10] * n_items,
            "n_masked": [1] * n_items,
            "n_truncated": [0] * n_items,
        },
    )
    write_csr(directory / "saliency.npz", sp.csr_matrix(saliency.astype(np.float32)))
    write_csr(directory / "saliency_unmasked.npz", sp.csr_matrix((saliency if unmasked is None else unmasked).astype(np.float32)))
    write_csr(directory / "firing.npz", sp.csr_matrix((saliency > 0 if firing is None else firing).astype(np.int32)))
    for name, counts in (("reference", reference), ("template", template)):
        if counts is not None:
            # As if every firing token were in a text of its own.
            shared = {"n_texts": [max(counts[1])] * n_concepts, "n_tokens": [counts[0]] * n_concepts}
            data = {"concept": np.arange(n_concepts), **shared, "n_firing": counts[1], "n_firing_squared": counts[1]}
            FIRING.write(directory / f"{name}.parquet", data)
    write_json(directory / "meta.json", {"d_sae": n_concepts, "rows_sha256": rows_digest(item_ids, benchmarks)})
    return directory


def random_saliency(seed: int, n_items: int, n_concepts: int, share: float = 0.2) -> np.ndarray:
    """Random sparse non-negative saliency (I x C), float32."""
    generator = np.random.default_rng(seed)
    values = generator.gamma(2.0, 1.0, (n_items, n_concepts))
    return np.where(generator.random((n_items, n_concepts)) < share, values, 0).astype(np.float32)


def write_scores(directory: Path, scores: dict[str, float | None], chance: float = 0.25) -> Path:
    """Write scores.parquet of one subject; None is an unscored item."""
    SCORES.write(
        directory / "scores.parquet",
        {
            "item_id": list(scores),
            "score": list(scores.values()),
            "chance": [chance] * len(scores),
            "prediction": [None if value is None else "0" for value in scores.values()],
            "logprobs": [None] * len(scores),
            "scored": [value is not None for value in scores.values()],
        },
    )
    return directory


def write_contexts(directory: Path, windows: list[tuple[int, str, list[str], list[float], str]]) -> None:
    """Write contexts.parquet from (concept, item id, pieces, activations, group), ranked in the order given."""
    ranks: dict[tuple[int, str], int] = {}
    rows = []
    for concept, item, pieces, activations, group in windows:
        rank = ranks.get((concept, group), 0)
        ranks[concept, group] = rank + 1
        rows.append((concept, item, 0, len("".join(pieces)), pieces, activations, rank, group))
    names = ("concept", "item_id", "start", "end", "tokens", "activations", "rank", "group")
    CONTEXTS.write(directory / "contexts.parquet", dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
