"""The evidence's heads: fitted to written seeds, and with less weight to others made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gapscope.files import stable_hash
from gapscope.params_variants import VerifierParams
from gapscope.progress import track
from gapscope.variants.contrasts import Labelled
from gapscope.variants.heads import Head, fit_head
from gapscope.variants.measures import COLUMNS, Calibration, calibrate, truths


@dataclass(frozen=True)
class Block:
    """Labelled pairs with their evidence (rows, columns); ``weight`` is that of all together, as a share of the written seeds'."""

    rows: Sequence[Labelled]
    evidence: np.ndarray
    weight: float

    def of(self, families: set[str]) -> Block:
        """The rows of some families."""
        kept = [k for k, row in enumerate(self.rows) if row.pair.original.family in families]
        return Block([self.rows[k] for k in kept], self.evidence[kept], self.weight)


@dataclass(frozen=True)
class EvidenceHeads:
    """A head a column, and what they say of written seeds whose family they did not see: (rows, COLUMNS)."""

    heads: dict[str, Head]
    unseen: np.ndarray
    calibration: Calibration


def fit_evidence(written: Block, made: Sequence[Block], names: tuple[str, ...], params: VerifierParams, seed: int) -> EvidenceHeads:
    """Fit the heads to all families, and in folds of families to say something of each row without having seen its family.

    Temperature and threshold are chosen on the latter.
    """
    families = {row.pair.original.family for row in written.rows}
    order = sorted(families, key=lambda family: (stable_hash(seed, "fold", family), family))
    unseen = np.zeros((len(written.rows), len(COLUMNS)))
    for fold in track(range(params.folds), "folds", params.folds, "fold"):
        left_out = set(order[fold :: params.folds])
        heads = _fit([block.of(families - left_out) for block in (written, *made)], names, params, seed)
        here = [k for k, row in enumerate(written.rows) if row.pair.original.family in left_out]
        unseen[here] = probabilities(heads, written.evidence[here])
    return EvidenceHeads(_fit([written, *made], names, params, seed), unseen, calibrate(unseen, truths(written.rows)))


def _fit(blocks: Sequence[Block], names: tuple[str, ...], params: VerifierParams, seed: int) -> dict[str, Head]:
    used = [block for block in blocks if block.weight > 0 and len(block.rows)]
    evidence = np.vstack([block.evidence for block in used])
    truth = np.vstack([truths(block.rows) for block in used])
    n = len(blocks[0].rows)
    weights = np.concatenate([np.full(len(block.rows), block.weight * n / len(block.rows)) for block in used])
    return {column: fit_head(evidence, truth[:, k], names, params.head, seed, weights) for k, column in enumerate(COLUMNS)}


def probabilities(heads: Mapping[str, Head], evidence: np.ndarray) -> np.ndarray:
    """Probabilities (rows, COLUMNS) that the heads give."""
    return np.column_stack([heads[column].probability(evidence) for column in COLUMNS])
