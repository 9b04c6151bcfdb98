"""Batches planned once: which texts share a forward pass, in which order, in how many resumable shards.

A matrix product's last bits depend on the shape of its batch, so a plan is made from lengths alone, before anything is
computed, and an interrupted or distributed run computes whole batches of that plan.
"""

from __future__ import annotations

from collections.abc import Sequence

SHARD_TOKENS = 16_384


def plan_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group the indices of ``lengths`` into batches whose padded size is at most ``batch_tokens``.

    The longest come first (a batch that does not fit in memory fails at the start), equal lengths in order of index, so
    that little is padded. A text longer than ``batch_tokens`` is a batch by itself; one of length 0 is in no batch.
    """
    order = sorted((index for index, length in enumerate(lengths) if length > 0), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def plan_shards(batches: list[list[int]], lengths: Sequence[int], shard_tokens: int = SHARD_TOKENS) -> list[list[list[int]]]:
    """Cut a plan into runs of whole batches of about ``shard_tokens`` tokens: what is stored, and lost when killed, at once."""
    shards: list[list[list[int]]] = []
    held = shard_tokens
    for batch in batches:
        if held >= shard_tokens:
            shards.append([])
            held = 0
        shards[-1].append(batch)
        held += sum(lengths[index] for index in batch)
    return shards
