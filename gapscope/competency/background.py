"""What the items are compared with: firing on a reference corpus and on the template with empty content, and a control's sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from gapscope.artifacts import DOCUMENT, FIRING
from gapscope.canary import TEXTS
from gapscope.competency.context_table import Contexts, context_table
from gapscope.competency.contexts import Selection, peaks_of
from gapscope.competency.reading import Reader, text_firing
from gapscope.competency.saliency import Shard, read_all
from gapscope.documents import Window, token_windows
from gapscope.errors import InputError
from gapscope.lm import Encoding, encode_text, special_ids
from gapscope.params import ExtractActivationsParams
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


@dataclass(frozen=True)
class Reference:
    """The reference part of the corpus, on which the SAE was not trained, as the observer reads it.

    Attributes:
        names, texts: of the documents.
        windows: what is read of them.
        reader, batch_tokens, work: how, and where shards are kept.
    """

    names: list[str]
    texts: list[str]
    windows: list[Window]
    reader: Reader
    batch_tokens: int
    work: WorkDirectory

    @classmethod
    def of(cls, reader: Reader, documents: Mapping[str, str], params: ExtractActivationsParams, work: WorkDirectory) -> Reference:
        """Choose the windows, within ``params.reference_tokens``.

        Raises:
            InputError: the reference part is empty.
        """
        names, texts = list(documents.values()), list(documents)
        policy, budget = reader.policy, params.reference_tokens
        windows = token_windows(
            reader.lm.tokenizer, texts, "reference", context=policy.max_tokens, prepend_bos=policy.prepend_bos, budget=budget
        )
        if not windows:
            raise InputError("the reference part of the corpus is empty", field="corpus", fix="give a larger corpus")
        return cls(names, texts, windows, reader, params.batch_tokens, work)

    def encode(self, index: int) -> Encoding:
        """The tokens of one window; where they lie in the document's text is left out."""
        ids = self.windows[index].ids
        special = special_ids(self.reader.lm.tokenizer)
        return Encoding(ids, [(0, 0)] * len(ids), [token in special for token in ids], 0)

    def shards(self) -> Iterator[Shard]:
        """The windows' shards, computed the first time and read back after that."""
        lengths = [len(window.ids) for window in self.windows]
        return read_all(self.reader, lengths, self.encode, self.batch_tokens, self.work, "reference")

    def read(self, params: ExtractActivationsParams) -> tuple[Counts, pa.Table]:
        """Firing counts, and each concept's strongest contexts as a CONTEXTS table."""
        counts = _nothing(self.reader.sae.d_sae)
        names = [f"{self.names[window.document]}:{window.start}" for window in self.windows]
        selection = Selection(names, params.reference_contexts, quantiles=0)
        for shard in self.shards():
            counted = ~shard.masked
            firing = text_firing(shard.codes, shard.n_tokens, counted).astype(np.int64)
            counts = Counts(
                counts.n_texts + len(shard.texts),
                counts.n_tokens + int(counted.sum()),
                counts.n_firing + np.asarray(firing.sum(axis=0)).ravel(),
                counts.n_firing_squared + np.asarray(firing.power(2).sum(axis=0)).ravel(),
            )
            selection.add(peaks_of(shard.codes, shard.texts, shard.n_tokens, counted))
        return counts, context_table(self._contexts(params.context_window), self.shards(), selection, "reference")

    def _contexts(self, window: int) -> Contexts:
        front = int(self.reader.policy.prepend_bos)
        return Contexts(
            item_ids=[f"{DOCUMENT}{self.names[one.document]}" for one in self.windows],
            text=lambda index: self.texts[self.windows[index].document],
            spans=lambda index: self._spans(self.windows[index], front),
            window=window,
            first_token=front,
        )

    def _spans(self, window: Window, front: int) -> list[tuple[int, int]]:
        whole = encode_text(self.reader.lm, self.texts[window.document], prepend_bos=False).offsets
        return [(0, 0)] * front + whole[window.start : window.start + len(window.ids) - front]


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


def control_sample(reader: Reader, reference: Reference | None) -> torch.Tensor:
    """Unmasked activations on which the controls' thresholds are chosen: of the reference, or of the canary's text without one."""
    parts: list[torch.Tensor] = []
    n = 0
    canary = (reader.policy.encode(reader.lm, text) for text in TEXTS)
    for encoding in canary if reference is None else map(reference.encode, range(len(reference.windows))):
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
