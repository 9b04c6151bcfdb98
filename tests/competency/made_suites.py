"""Suites with known truth, for the tests of inference: drawn in one go, never item by item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp


@dataclass
class Made:
    saliency: sp.csr_matrix
    scores: np.ndarray
    benchmarks: np.ndarray
    lengths: np.ndarray
    planted: np.ndarray


def sparse_saliency(rng: np.random.Generator, firing: np.ndarray) -> sp.csr_matrix:
    """Gamma saliency, as uneven as that of SAEs, where `firing` (I x C, bool) holds."""
    matrix = sp.csr_matrix(firing).astype(np.float32)
    matrix.data = (rng.gamma(0.7, size=len(matrix.data)) + 1e-3).astype(np.float32)
    return matrix


def confounded_suite(rng: np.random.Generator, n_items: int = 3000, n_concepts: int = 240, n_planted: int = 8, drop: float = 0.4) -> Made:
    """Long items and items of hard benchmarks are wrong more often, and concepts prefer lengths and benchmarks.

    Planted concepts lower the chance to be right by `drop` on the items that carry them. They are among the commoner half.
    """
    benchmarks = rng.integers(0, 3, n_items)
    log_length = rng.normal(0, 1, n_items)
    ease = np.array([0.85, 0.65, 0.45])[benchmarks] - 0.12 * log_length
    home, taste = rng.integers(0, 3, n_concepts), rng.normal(0, 1, n_concepts)
    common = np.sort(np.exp(rng.uniform(np.log(0.004), np.log(0.08), n_concepts)))
    rate = common * np.where(benchmarks[:, None] == home, 2.0, 0.5) * np.exp(0.7 * np.outer(log_length, taste) - 0.25 * taste**2)
    firing = rng.random((n_items, n_concepts)) < np.minimum(rate, 0.5)
    planted = rng.choice(np.arange(n_concepts // 2, n_concepts), n_planted, replace=False)
    ease = ease - drop * firing[:, planted].any(axis=1)
    scores = (rng.random(n_items) < np.clip(ease, 0.02, 0.98)).astype(float)
    lengths = np.round(30 * np.exp(0.5 * log_length)).astype(np.int64)
    return Made(sparse_saliency(rng, firing), scores, benchmarks, lengths, planted)


def null_suite(rng: np.random.Generator, n_items: int = 900, n_concepts: int = 120) -> Made:
    """Two benchmarks of different difficulty; no concept has anything to do with the score."""
    benchmarks = np.repeat([0, 1], [n_items // 3, n_items - n_items // 3])
    rates = np.exp(rng.uniform(np.log(0.008), np.log(0.2), n_concepts))
    firing = rng.random((n_items, n_concepts)) < rates
    scores = (rng.random(n_items) < np.array([0.8, 0.4])[benchmarks]).astype(float)
    return Made(sparse_saliency(rng, firing), scores, benchmarks, np.full(n_items, 10), np.empty(0, dtype=np.int64))
