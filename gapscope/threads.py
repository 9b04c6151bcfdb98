"""Torch's threads and algorithms, set once a stage: the same number of threads gives the same bits."""

from __future__ import annotations

import os

import torch


def use_threads(threads: int) -> None:
    """Use so many threads and deterministic algorithms, from here on.

    On a GPU, an operation that has no deterministic form warns and goes on, so there byte stability is not promised.
    """
    # cuBLAS reads it when the first product is computed, and torch refuses products in deterministic mode without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
