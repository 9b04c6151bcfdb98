"""On how many of the gap concepts some texts fire, and how often: variants, their originals, and random items of the suite.

Any texts fire on some concepts, and more texts on more of them. So what the variants reach is held against what random items of
the suite reach, drawn again and again: as many items, and as many tokens, because a suite's items may be longer or shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray, read_matrix, read_rows
from gapscope.files import stable_hash

BLOCK = 64
"""Draws looked at together."""


@dataclass(frozen=True)
class Texts:
    """Some texts as the observer read them (T texts, C concepts), in the order of their ids.

    Attributes:
        ids: of the items.
        benchmarks: slug of each.
        n_tokens: unmasked tokens of each (T).
        firing: tokens on which each concept fires (T x C).
        saliency: a(i,c) (T x C).
    """

    ids: list[str]
    benchmarks: list[str]
    n_tokens: IntArray
    firing: sp.csr_matrix
    saliency: sp.csr_matrix

    @staticmethod
    def read(directory: Path) -> Texts:
        """What extract-activations wrote.

        Raises:
            InputError: a file is absent or damaged, or two do not belong together.
        """
        rows = read_rows(directory)
        saliency = read_matrix(directory, "saliency", rows)
        firing = read_matrix(directory, "firing", rows, saliency.shape[1])
        order = np.array(sorted(range(len(rows.item_ids)), key=rows.item_ids.__getitem__), dtype=np.int64)
        texts = Texts(rows.item_ids, [rows.benchmarks[code] for code in rows.codes], rows.n_tokens, firing, saliency)
        return texts.take(order)

    @staticmethod
    def none(n_concepts: int) -> Texts:
        """No text at all."""
        empty = sp.csr_matrix((0, n_concepts))
        return Texts([], [], np.empty(0, dtype=np.int64), empty, empty)

    def take(self, rows: IntArray) -> Texts:
        """The texts at these places."""
        ids, benchmarks = ([names[row] for row in rows] for names in (self.ids, self.benchmarks))
        return Texts(ids, benchmarks, self.n_tokens[rows], self.firing[rows], self.saliency[rows])

    def of(self, benchmark: str) -> Texts:
        """The texts of one benchmark."""
        return self.take(np.flatnonzero([name == benchmark for name in self.benchmarks]))

    def n_firing(self) -> IntArray:
        """Texts on which each concept fires (C)."""
        return np.asarray(self.firing.getnnz(axis=0), dtype=np.int64)

    def rates(self) -> FloatArray:
        """Share of tokens on which each concept fires (C); NaN without a token."""
        fired, n_tokens = np.asarray(self.firing.sum(axis=0), dtype=np.float64).ravel(), int(self.n_tokens.sum())
        return fired / n_tokens if n_tokens else np.full(len(fired), np.nan)


def n_reached(firing: sp.csr_matrix, groups: Sequence[IntArray]) -> IntArray:
    """Number of concepts on which any text of each group (places of rows) fires."""
    fires = sp.csr_matrix((np.ones(firing.nnz, dtype=np.int64), firing.indices, firing.indptr), shape=firing.shape)
    counts = []
    for start in range(0, len(groups), BLOCK):
        block = groups[start : start + BLOCK]
        starts = np.concatenate([[0], np.cumsum([len(group) for group in block])])
        places = np.concatenate([*block, np.empty(0, dtype=np.int64)]).astype(np.int64)
        selector = sp.csr_matrix((np.ones(len(places), dtype=np.int64), places, starts), shape=(len(block), firing.shape[0]))
        counts.append((selector @ fires).getnnz(axis=1))
    return np.concatenate([*counts, np.empty(0, dtype=np.int64)]).astype(np.int64)


def random_groups(
    n_tokens: IntArray, places: IntArray, size: int, tokens: int, draws: int, seed: int
) -> tuple[list[IntArray], list[IntArray]]:
    """Random texts of these places without replacement, ``draws`` times: ``size`` of them, and about ``tokens`` tokens of them.

    The latter are the first of a random order, up to where the sum is nearest to ``tokens``, and at least one. No draws where there
    are not so many texts or tokens, or none are asked for.
    """
    rng = np.random.default_rng(stable_hash(seed, "reach", "groups"))
    items: list[IntArray] = []
    equal: list[IntArray] = []
    for _ in range(draws):
        order: IntArray = rng.permutation(places).astype(np.int64)
        sums = np.cumsum(n_tokens[order])
        if 0 < size <= len(order):
            items.append(np.sort(order[:size]))
        if len(sums) and 0 < tokens <= int(sums[-1]):
            equal.append(np.sort(order[: int(np.abs(sums - tokens).argmin()) + 1]))
    return items, equal


def against(counts: IntArray, found: int, confidence: float) -> dict[str, float | None]:
    """Mean of the draws' counts, the ends of their central part, and the share of draws that reach as many as ``found`` or more.

    That share is (1 + draws that do) / (1 + draws), a one-sided Monte-Carlo p; all None without draws.
    """
    if not len(counts):
        return dict.fromkeys(("mean", "low", "high", "at_least"))
    low, high = np.quantile(counts, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    at_least = (1 + int((counts >= found).sum())) / (1 + len(counts))
    return {"mean": float(counts.mean()), "low": low, "high": high, "at_least": at_least}


def family_draws(n: int, draws: int, seed: int) -> FloatArray:
    """How often each of n families is drawn in each draw of a bootstrap (draws x n)."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64)


def rate_change(
    variants: tuple[FloatArray, FloatArray],
    originals: tuple[FloatArray, FloatArray],
    suite: float | None,
    draws: int,
    confidence: float,
    seed: int,
) -> dict[str, float | None]:
    """log2 of the variants' firing rate over the originals', and over the suite's, with intervals by bootstrap over families.

    Args:
        variants, originals: firing tokens and tokens by family (F each, in one order): (sum of firings) / (sum of tokens) is the rate.
        suite: the suite's rate, which is taken as known; None where undefined.
        draws, confidence, seed: of the bootstrap.

    Returns:
        ``originals`` and ``suite``, each with ``_low`` and ``_high``; None where a rate is 0 or undefined, and for an end beyond which
        a rate may be 0.
    """
    n = len(variants[1])
    names = [f"{name}{end}" for name in ("originals", "suite") for end in ("", "_low", "_high")]
    found: dict[str, float | None] = dict.fromkeys(names)
    if n == 0:
        return found
    table = np.vstack([np.ones((1, n)), family_draws(n, draws, seed)])
    with np.errstate(divide="ignore", invalid="ignore"):
        here, there = (np.log2((table @ fired) / (table @ tokens)) for fired, tokens in (variants, originals))
        ratios = {"originals": here - there, "suite": here - (np.log2(suite) if suite else np.nan)}
    for name, values in ratios.items():
        if not np.isfinite(values[0]):
            continue
        found[name] = float(values[0])
        # A draw in which one rate is 0 is infinitely far out, on a side that is known; in which both are it says nothing.
        known = values[1:][~np.isnan(values[1:])]
        if len(known) and known.min() < known.max() - 1e-12:
            low = float(np.quantile(known, (1 - confidence) / 2, method="lower"))
            high = float(np.quantile(known, (1 + confidence) / 2, method="higher"))
            found |= {f"{name}_{end}": value for end, value in (("low", low), ("high", high)) if np.isfinite(value)}
    return found
