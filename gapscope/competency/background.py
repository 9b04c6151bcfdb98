"""What the items are compared with: firing on a reference corpus and on the template with empty content, and a control's sample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gapscope.artifacts import FIRING
from gapscope.canary import TEXTS
from gapscope.competency.reading import Policy, Reader
from gapscope.competency.saliency import read_all
from gapscope.documents import token_windows
from gapscope.errors import InputError
from gapscope.lm import LM, Encoding, special_ids
from gapscope.work import WorkDirectory

CONTROL_TOKENS = 8192
"""Tokens of the reference on which a control dictionary's thresholds are chosen."""


@dataclass(frozen=True)
class Counts:
    """Tokens of a text that count, and on how many of them each concept fires."""

    n_tokens: int
    n_firing: np.ndarray


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
    counts = Counts(0, np.zeros(reader.sae.d_sae, dtype=np.int64))
    lengths = [len(window) for window in windows]

    def encode(index: int) -> Encoding:
        return _window_encoding(reader.lm, windows[index])

    for shard in read_all(reader, lengths, encode, batch_tokens, work, "reference"):
        counted = ~shard.masked
        counts = Counts(counts.n_tokens + int(counted.sum()), counts.n_firing + shard.codes[counted].getnnz(axis=0))
    return counts


def read_template(reader: Reader, template: str) -> Counts:
    """Firing counts on the template with empty content; nothing is counted where it has no text."""
    encoding = reader.policy.encode(reader.lm, template)
    if len(encoding.ids) == 0:
        return Counts(0, np.zeros(reader.sae.d_sae, dtype=np.int64))
    tokens = reader.tokens([encoding])
    fired = reader.sae.encode(tokens.x[torch.from_numpy(~tokens.masked).to(tokens.x.device)]) > 0
    return Counts(int((~tokens.masked).sum()), fired.sum(0).cpu().numpy().astype(np.int64))


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
    FIRING.write(path, {"concept": np.arange(n), "n_tokens": np.full(n, counts.n_tokens), "n_firing": counts.n_firing})
