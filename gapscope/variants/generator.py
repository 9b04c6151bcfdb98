"""A generator writes completions: sampled in batches, each row with a random stream of its own.

A completion then does not depend on what else is in its batch, so that batch size changes the speed and nothing else
(but for the last bits of the logits, which can turn a near tie).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from gapscope.choice_tokens import adds_bos
from gapscope.errors import InputError
from gapscope.files import stable_hash
from gapscope.lm import LM, encode_text, load_lm, pad_id
from gapscope.progress import bar


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn; ``batch_size`` rows are written at once."""

    temperature: float
    top_p: float
    max_new_tokens: int
    batch_size: int


@dataclass(frozen=True)
class Written:
    """One completion: its text, its tokens (the end-of-text token counted), and whether it ended by that token."""

    text: str
    n_tokens: int
    ended: bool


class Generator:
    """A causal LM that completes prompts."""

    def __init__(self, lm: LM) -> None:
        if lm.tokenizer.eos_token_id is None:
            raise InputError("this tokenizer has no end-of-text token, so no completion would ever end", field="source")
        self.lm = lm
        self._bos = adds_bos(lm.tokenizer)

    @staticmethod
    def load(directory: Path, dtype: str = "float32", device: str = "auto") -> Generator:
        """Load what ``sft`` or ``grpo`` wrote; what is raised, see :func:`gapscope.lm.load_lm`."""
        return Generator(load_lm(directory, dtype, device))

    def n_tokens(self, prompt: str) -> int:
        """Tokens of a prompt."""
        return len(self._ids(prompt))

    def _ids(self, prompt: str) -> list[int]:
        return encode_text(self.lm.tokenizer, prompt, prepend_bos=self._bos).ids

    def write(self, prompts: Sequence[tuple[str, str]], sampling: Sampling, seed: int) -> list[Written]:
        """One completion of each (key, prompt), in the order given; the key and the seed fix what is random about it."""
        rows = [(self._ids(prompt), stable_hash(seed, "write", key)) for key, prompt in prompts]
        # Prompts of like length share a batch, so that little is padded.
        order = sorted(range(len(rows)), key=lambda k: (len(rows[k][0]), k))
        found: dict[int, Written] = {}
        with bar("completions", len(rows), "row") as shown:
            for start in range(0, len(order), sampling.batch_size):
                batch = order[start : start + sampling.batch_size]
                found |= dict(zip(batch, self._batch([rows[k] for k in batch], sampling), strict=True))
                shown.update(len(batch))
        return [found[k] for k in range(len(rows))]

    def _batch(self, rows: list[tuple[list[int], int]], sampling: Sampling) -> list[Written]:
        tokenizer, longest = self.lm.tokenizer, max(len(ids) for ids, _seed in rows)
        filler = pad_id(tokenizer)
        ids = torch.tensor([[filler] * (longest - len(row)) + row for row, _seed in rows], device=self.lm.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row, _seed in rows], device=self.lm.device)
        # Every setting is given here: a model's own generation_config would change what is drawn.
        config = GenerationConfig(
            max_new_tokens=sampling.max_new_tokens, do_sample=False, num_beams=1, eos_token_id=tokenizer.eos_token_id, pad_token_id=filler
        )
        drawn = LogitsProcessorList([_OwnStreams([seed for _row, seed in rows], sampling.temperature, sampling.top_p)])
        self.lm.model.generation_config = config
        with torch.inference_mode():
            whole = self.lm.model.generate(input_ids=ids, attention_mask=mask, generation_config=config, logits_processor=drawn)
        return [self._written(row) for row in whole[:, longest:].tolist()]

    def _written(self, ids: list[int]) -> Written:
        end = int(self.lm.tokenizer.eos_token_id)
        ended = end in ids
        kept = ids[: ids.index(end)] if ended else ids
        return Written(self.lm.tokenizer.decode(kept, skip_special_tokens=True), len(kept) + ended, ended)


class _OwnStreams(LogitsProcessor):  # type: ignore[misc]
    """Nucleus sampling by the Gumbel-max trick: noise from each row's own stream, then the greatest wins."""

    def __init__(self, seeds: Sequence[int], temperature: float, top_p: float) -> None:
        self._streams = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]
        self._temperature, self._top_p = temperature, top_p

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:  # noqa: ARG002
        """Scores (rows, vocabulary) whose argmax is a sample."""
        logits = scores.float() / self._temperature
        ranked, places = logits.sort(dim=-1, descending=True)
        before = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1)
        dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, before >= self._top_p)
        noise = torch.stack([torch.empty(logits.shape[-1]).exponential_(generator=stream) for stream in self._streams])
        return logits.masked_fill(dropped, -torch.inf) - noise.clamp_min(1e-30).log().to(logits.device)
