"""Torch's threads and algorithms, set once a stage: the same number of threads gives the same bits."""

from __future__ import annotations

import torch


def use_threads(threads: int) -> None:
    """Use so many threads and deterministic algorithms, from here on."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
