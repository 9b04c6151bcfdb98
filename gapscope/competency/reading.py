"""Read texts with the observer: one text a sequence, the forward pass stopped at the hook, codes sparse at once.

What is masked never enters a statistic: special tokens, each text's first position, and attention sinks (a residual of enormous
norm is no sign of the concepts that it seems to carry). Padding is dropped before anything is encoded, and a code depends on
its token alone, so results do not depend on what shares a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch

from gapscope.errors import InputError
from gapscope.lm import LM, Encoding, encode_text, pad_batch, pad_id, read_residual
from gapscope.sae import LoadedSAE

QUALITY_STRIDE = 16
"""One token in so many is reconstructed as well, to know how well the SAE explains this very text."""


class Dictionary(Protocol):
    """Anything that turns activations (n, width) into non-negative codes (n, d_sae), row by row."""

    @property
    def d_sae(self) -> int:
        """Number of latents."""

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Codes (n, d_sae), fp32, zero where a latent does not fire."""

    def chunk(self) -> int:
        """How many rows to encode at a time."""


@dataclass(frozen=True)
class Policy:
    """How text becomes tokens, and which tokens count.

    Attributes:
        prepend_bos: exactly one begin-of-text token in front, or none.
        max_tokens: longest sequence, that token included; the rest of a text is cut off and counted.
        max_norm: a token with a longer residual is an attention sink; infinity to keep them all.
    """

    prepend_bos: bool
    max_tokens: int
    max_norm: float

    def encode(self, lm: LM, text: str) -> Encoding:
        """The text's tokens under this policy."""
        return encode_text(lm, text, prepend_bos=self.prepend_bos, max_tokens=self.max_tokens)


@dataclass(frozen=True)
class Tokens:
    """Activations of some texts, all real tokens one after the other.

    Attributes:
        x: (tokens, width), fp32.
        n_tokens: tokens of each text.
        masked: (tokens,) left out of every statistic.
        sink: (tokens,) masked for its norm alone.
    """

    x: torch.Tensor
    n_tokens: np.ndarray
    masked: np.ndarray
    sink: np.ndarray


@dataclass(frozen=True)
class Reader:
    """An observer, its SAE and a policy; ``controls`` are further dictionaries applied to the same activations."""

    lm: LM
    sae: LoadedSAE
    policy: Policy
    controls: Mapping[str, Dictionary] = field(default_factory=dict)

    def tokens(self, encodings: Sequence[Encoding]) -> Tokens:
        """Run one batch up to the hook.

        Raises:
            InputError: an activation is not finite.
        """
        ids, mask = pad_batch([encoding.ids for encoding in encodings], pad_id(self.lm.tokenizer), self.lm.device)
        x = read_residual(self.lm, ids, mask, self.sae.layer)[mask.bool()].float()
        norms = x.norm(dim=1).cpu().numpy()
        if not np.isfinite(norms).all():
            raise InputError("an activation is not finite", field="dtype", fix="use float32 or bfloat16")
        special = np.array([flag for encoding in encodings for flag in (True, *encoding.special[1:])], dtype=bool)
        sink = ~special & (norms > self.policy.max_norm)
        return Tokens(x, np.array([len(encoding.ids) for encoding in encodings]), special | sink, sink)


def sparse_codes(dictionary: Dictionary, x: torch.Tensor) -> sp.csr_matrix:
    """Codes of activations as a CSR matrix (tokens, d_sae), float32, encoded a chunk at a time."""
    columns: list[np.ndarray] = []
    values: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    for rows in x.split(dictionary.chunk()):
        codes = dictionary.encode(rows)
        place, concept = torch.nonzero(codes, as_tuple=True)
        values.append(codes[place, concept].cpu().numpy())
        columns.append(concept.cpu().numpy().astype(np.int32))
        counts.append(np.bincount(place.cpu().numpy(), minlength=len(rows)))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return sp.csr_matrix((np.concatenate(values), np.concatenate(columns), starts), shape=(len(x), dictionary.d_sae))


def text_means(codes: sp.csr_matrix, n_tokens: np.ndarray, counted: np.ndarray) -> sp.csr_matrix:
    """a(i, c) = (1 / T_i) sum over the T_i counted tokens of text i: CSR float32 (texts, d_sae); nothing where T_i is 0."""
    return _pooled(codes, n_tokens, counted, mean=True).astype(np.float32)


def text_firing(codes: sp.csr_matrix, n_tokens: np.ndarray, counted: np.ndarray) -> sp.csr_matrix:
    """Counted tokens of each text on which a concept fires: CSR int32 (texts, d_sae)."""
    ones = sp.csr_matrix((np.ones_like(codes.data), codes.indices, codes.indptr), shape=codes.shape)
    return _pooled(ones, n_tokens, counted, mean=False).astype(np.int32)


def _pooled(codes: sp.csr_matrix, n_tokens: np.ndarray, counted: np.ndarray, *, mean: bool) -> sp.csr_matrix:
    text = np.repeat(np.arange(len(n_tokens)), n_tokens)
    total = np.bincount(text[counted], minlength=len(n_tokens))
    weights = 1 / total[text[counted]] if mean else np.ones(int(counted.sum()))
    selector = sp.csr_matrix((weights, (text[counted], np.flatnonzero(counted))), shape=(len(n_tokens), len(text)))
    pooled = sp.csr_matrix(selector @ codes.astype(np.float64))
    pooled.sort_indices()
    return pooled


@dataclass
class Quality:
    """Sums from which the fraction of variance unexplained over many batches is computed, in float64."""

    n: int
    error: float
    squares: float
    total: np.ndarray

    @classmethod
    def of(cls, sae: LoadedSAE, tokens: Tokens) -> Quality:
        """Measure on a sample of a batch's counted tokens that depends on each text alone."""
        starts = np.repeat(np.cumsum(tokens.n_tokens) - tokens.n_tokens, tokens.n_tokens)
        place = np.arange(len(starts)) - starts + np.repeat(tokens.n_tokens, tokens.n_tokens)
        chosen = ~tokens.masked & (place % QUALITY_STRIDE == 0)
        x = tokens.x[torch.from_numpy(chosen).to(tokens.x.device)]
        error = float((x - sae.reconstruct(x)).double().pow(2).sum())
        return cls(len(x), error, float(x.double().pow(2).sum()), x.double().sum(0).cpu().numpy())

    @classmethod
    def empty(cls, width: int) -> Quality:
        """Nothing measured yet."""
        return cls(0, 0.0, 0.0, np.zeros(width))

    def __iadd__(self, other: Quality) -> Quality:
        self.n, self.error, self.squares = self.n + other.n, self.error + other.error, self.squares + other.squares
        self.total = self.total + other.total
        return self

    @property
    def fvu(self) -> float | None:
        """sum |x - x'|^2 / sum |x - mean|^2; None where nothing varies."""
        variance = self.squares - float(self.total @ self.total) / self.n if self.n else 0.0
        return self.error / variance if variance > 0 else None
