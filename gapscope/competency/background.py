"""What the items are compared with: firing on a reference corpus and on the template with empty content, and a control's sample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gapscope.artifacts import FIRING
from gapscope.canary import TEXTS
from gapscope.competency.reading import Policy, Reader, text_firing
from gapscope.competency.saliency import read_all
from gapscope.documents import token_windows
from gapscope.errors import InputError
from gapscope.lm import LM, Encoding, special_ids
from gapscope.work import WorkDirectory

CONTROL_TOKENS = 8192
"""Tokens of the reference on which a control dictionary's thresholds are chosen."""


@dataclass(frozen=True)
class Counts:
    """How often each concept fires on some texts.

    Attributes:
        n_texts, n_tokens: texts read, and their tokens that count.
        n_firing: tokens on which each concept fires.
        n_firing_squared: sum over texts of the squared number of such tokens.
    """

    n_texts: int
    n_tokens: int
    n_firing: np.ndarray
    n_firing_squared: np.ndarray


def reference_windows(lm: LM, documents: list[str] | None, policy: Policy, budget: int) -> list[list[int]]:
    """Windows of the reference part of the corpus, which the SAE was not trained on; none without a corpus."""
    if documents is None:
        return []
    bounds = {"context": policy.max_tokens, "prepend_bos": policy.prepend_bos, "budget": budget}
    windows = token_windows(lm.tokenizer, documents, "reference", **bounds)  # type: ignore[arg-type]
    if not windows:
        raise InputError("the reference part of the corpus is empty", field="corpus", fix="give a larger corpus")
    return windows


def _window_encoding(lm: LM, window: list[int]) -> Encoding:
    special = special_ids(lm.tokenizer)
    return Encoding(window, [(0, 0)] * len(window), [token in special for token in window], 0)


def read_reference(reader: Reader, windows: list[list[int]], batch_tokens: int, work: WorkDirectory) -> Counts | None:
    """Firing counts on the reference corpus; None without one."""
    if not windows:
        return None
    counts = _nothing(reader.sae.d_sae)
    lengths = [len(window) for window in windows]

    def encode(index: int) -> Encoding:
        return _window_encoding(reader.lm, windows[index])

    for shard in read_all(reader, lengths, encode, batch_tokens, work, "reference"):
        counted = ~shard.masked
        firing = text_firing(shard.codes, shard.n_tokens, counted).astype(np.int64)
        counts = Counts(
            counts.n_texts + len(shard.texts),
            counts.n_tokens + int(counted.sum()),
            counts.n_firing + np.asarray(firing.sum(axis=0)).ravel(),
            counts.n_firing_squared + np.asarray(firing.power(2).sum(axis=0)).ravel(),
        )
    return counts


def _nothing(d_sae: int) -> Counts:
    return Counts(0, 0, np.zeros(d_sae, dtype=np.int64), np.zeros(d_sae, dtype=np.int64))


def read_template(reader: Reader, template: str) -> Counts:
    """Firing counts on the template with empty content; nothing is counted where it has no text."""
    encoding = reader.policy.encode(reader.lm, template)
    if len(encoding.ids) == 0:
        return _nothing(reader.sae.d_sae)
    tokens = reader.tokens([encoding])
    fired = reader.sae.encode(tokens.x[torch.from_numpy(~tokens.masked).to(tokens.x.device)]) > 0
    n_firing = fired.sum(0).cpu().numpy().astype(np.int64)
    return Counts(1, int((~tokens.masked).sum()), n_firing, n_firing**2)


def control_sample(reader: Reader, windows: list[list[int]]) -> torch.Tensor:
    """Unmasked activations on which the controls' thresholds are chosen: of the reference, or of the canary's text without one."""
    encodings = [_window_encoding(reader.lm, window) for window in windows] or [reader.policy.encode(reader.lm, text) for text in TEXTS]
    parts: list[torch.Tensor] = []
    n = 0
    for encoding in encodings:
        tokens = reader.tokens([encoding])
        parts.append(tokens.x[torch.from_numpy(~tokens.masked).to(tokens.x.device)])
        n += len(parts[-1])
        if n >= CONTROL_TOKENS:
            break
    return torch.cat(parts)[:CONTROL_TOKENS]


def write_counts(path: Path, counts: Counts) -> None:
    """Write firing counts as a FIRING table, every concept a row."""
    n = len(counts.n_firing)
    shared = {"n_texts": np.full(n, counts.n_texts), "n_tokens": np.full(n, counts.n_tokens)}
    counted = {"n_firing": counts.n_firing, "n_firing_squared": counts.n_firing_squared}
    FIRING.write(path, {"concept": np.arange(n), **shared, **counted})
