"""The paired null: two subjects change places on every family at random, and nothing else moves.

A family adds w_fc = sum over its items of weight times difference of scores to concept c. If the two subjects were alike on it,
its sign would be as likely the other: T_c = sum_f w_fc has mean 0, variance sum w^2 and no skewness over the 2^F ways to flip.
Its tail is the saddlepoint approximation of Lugannani and Rice (1980) in Barndorff-Nielsen's r* form, with the exact
cumulant function sum_f log cosh(t w_fc); half the smallest step, a flip of the smallest w, is taken off first (the
continuity correction). That of all families on one side is 2^-n, exactly, and no other is less.
With equal weights this is McNemar's test. Nothing is drawn at random. Against all flips of 16 unequal families a p below 0.1
is at most a quarter too small; the few below 1e-4 may be twice too large (tests).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.units import weighted_count

NEAR = 0.2
"""Standard deviations within which the tail is a normal one: there the saddlepoint divides by almost nothing, and p is above 0.8."""

STEPS = 80


@dataclass(frozen=True)
class _Sums:
    """The terms of every concept's statistic, scaled to variance 1: concept and size of each, and half a concept's smallest step."""

    concept: IntArray
    value: FloatArray
    half_step: FloatArray

    def cumulants(self, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """sum log cosh(t w) of each concept at t (C) and its first two derivatives."""
        at = np.abs(t[self.concept] * self.value)
        slope = np.tanh(at)
        parts = (at + np.log1p(np.exp(-2 * at)) - np.log(2), self.value * slope, self.value**2 * (1 - slope**2))
        k0, k1, k2 = (weighted_count(self.concept, part, len(t)) for part in parts)
        return k0, k1, k2


def flip_p(contributions: sp.csr_matrix) -> FloatArray:
    """Two-sided p (C) of the column sums of families' contributions (F x C); 1 where no family differs."""
    columns = sp.csc_matrix(contributions, dtype=np.float64)
    columns.eliminate_zeros()
    p = np.ones(columns.shape[1])
    moving = np.flatnonzero(np.diff(columns.indptr))
    if not len(moving):
        return p
    moved = columns[:, moving]
    count = np.diff(moved.indptr)
    concept = np.repeat(np.arange(len(moving)), count)
    scale = np.sqrt(weighted_count(concept, moved.data**2, len(moving)))
    values = np.abs(moved.data) / scale[concept]
    sums = _Sums(concept, values, np.minimum.reduceat(values, moved.indptr[:-1]))
    reached = np.abs(weighted_count(concept, moved.data, len(moving))) / scale
    tail = np.maximum(_tail(sums, np.maximum(reached - sums.half_step, 0.0)), 0.5**count)
    one_sided = reached >= weighted_count(concept, values, len(moving)) * (1 - 1e-9)
    p[moving] = np.minimum(2 * np.where(one_sided, 0.5**count, tail), 1.0)
    return p


def _tail(sums: _Sums, z: FloatArray) -> FloatArray:
    """Probability of a standardised sum of at least z >= 0 (C)."""
    t = _solve(sums, np.maximum(z, NEAR))
    k0, _, k2 = sums.cumulants(t)
    root = np.sqrt(np.maximum(2 * (t * np.maximum(z, NEAR) - k0), 1e-12))
    # Of a sum that moves in steps of 2 h, t is to be sinh(t h) / h (Daniels 1987, the second correction); the two are one for small h.
    rise = np.minimum(t * sums.half_step, 300.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        corrected = root + np.log(np.sinh(rise) / sums.half_step * np.sqrt(k2) / root) / root
    far = np.where(np.isfinite(corrected), ndtr(-corrected), ndtr(-root))
    tail: FloatArray = np.where(z < NEAR, ndtr(-z), far)
    return tail


def _solve(sums: _Sums, z: FloatArray) -> FloatArray:
    """The t > 0 at which the first derivative of the cumulant function is z: Newton, kept inside a bracket."""
    t, low, high = z.copy(), np.zeros_like(z), np.full_like(z, 1e4)
    for _ in range(STEPS):
        _, k1, k2 = sums.cumulants(t)
        error = z - k1
        low, high = np.where(error > 0, t, low), np.where(error > 0, high, t)
        if (np.abs(error) <= 1e-9 * z).all():
            break
        ahead = t + error / np.maximum(k2, 1e-12)
        inside = (ahead > low) & (ahead < high)
        t = np.where(inside, ahead, np.where(high > 5e3, np.minimum(2 * t, 1e4), (low + high) / 2))
    return t
