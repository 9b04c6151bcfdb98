"""Concepts whose decoder directions point the same way."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gapscope.errors import InputError
from gapscope.files import require_file
from gapscope.report.explorer.blocks import Block

COUNT = 8
"""Neighbours shown of a concept."""

ALL_UP_TO = 8192
"""In a wider dictionary only the concepts of clusters get neighbours, so many at most: all pairs would take minutes."""

_ROWS = 512


def neighbours_block(sae: Path, concepts: np.ndarray, clustered: list[int]) -> Block:
    """The nearest concepts of each, by cosine of decoder directions (SAELens's own format, read without torch).

    Raises:
        InputError: no weights, damaged, or fewer latents than a concept's index.
    """
    import safetensors

    path = require_file(sae / "sae_weights.safetensors")
    try:
        with safetensors.safe_open(path, framework="np") as tensors:
            weights = tensors.get_tensor("W_dec").astype(np.float32)
    except (TypeError, safetensors.SafetensorError) as error:
        raise InputError(f"its decoder is not readable: {error}", file=path, fix="run train-sae again") from error
    if len(concepts) and concepts.max() >= len(weights):
        raise InputError(f"has {len(weights)} latents, concept {concepts.max()} is asked for", file=path)
    directions = weights[concepts]
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)
    wanted = np.arange(len(concepts)) if len(concepts) <= ALL_UP_TO else np.flatnonzero(np.isin(concepts, clustered))[:ALL_UP_TO]
    count = min(COUNT, max(len(concepts) - 1, 0))
    nearest, cosine = np.zeros((len(wanted), count), np.int64), np.zeros((len(wanted), count))
    for first in range(0, len(wanted), _ROWS):
        rows = wanted[first : first + _ROWS]
        found = directions[rows] @ directions.T
        found[np.arange(len(rows)), rows] = -np.inf
        found = np.round(found, 4)  # so that equals keep the order of their indices, whatever the last bits are
        # A rough cut first, as sorting whole rows of a wide dictionary takes long; then by cosine, equals by index.
        near = np.sort(np.argpartition(-found, min(4 * count, found.shape[1] - 1), axis=1)[:, : 4 * count], axis=1)
        ranks = np.argsort(-np.take_along_axis(found, near, axis=1), axis=1, kind="stable")[:, :count]
        order = np.take_along_axis(near, ranks, axis=1)
        nearest[first : first + _ROWS] = order
        cosine[first : first + _ROWS] = np.take_along_axis(found, order, axis=1)
    block = Block()
    block.value("count", count)
    block.counts("place", wanted)
    block.counts("nearest", nearest)
    block.linear("cosine", cosine)
    return block
