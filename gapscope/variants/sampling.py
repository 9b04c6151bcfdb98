"""Text from a causal LM, sampled in batches, each row by its own random numbers.

A row's draws come from its own seed, so which rows it is written beside decides nothing about them. What the draws are
applied to are probabilities that a matrix product of another shape may round otherwise: for the same batches, versions
and threads the text is the same to the last character; in other batches a draw that falls within rounding of the border
between two tokens may take the other one. In float32 that is rare, in bfloat16 it happens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from gapscope.choice_tokens import adds_bos
from gapscope.errors import InputError
from gapscope.lm import LM, encode_text, pad_id

LIKELIEST = 1000
Steer = Callable[[int, int], int]
"""From a row and the token drawn for it to the token that it gets."""


@dataclass(frozen=True)
class Completion:
    """What was written: text without the end-of-text token, tokens including it, and whether it came to an end."""

    text: str
    n_tokens: int
    ended: bool


@dataclass(frozen=True)
class Sampling:
    """How to draw: at most ``max_new_tokens``, at a temperature, from the fewest likeliest tokens that hold ``top_p``.

    These are at most LIKELIEST: sorting a whole vocabulary at every step would take longer than the model does.
    """

    max_new_tokens: int
    temperature: float
    top_p: float


def encode_prompt(lm: LM, prompt: str) -> list[int]:
    """A prompt as the generator was trained to read it: text as text, with the begin token that its tokenizer adds."""
    return encode_text(lm.tokenizer, prompt, prepend_bos=adds_bos(lm.tokenizer)).ids


def sample(lm: LM, prompts: Sequence[list[int]], seeds: Sequence[int], how: Sampling, steer: Steer | None = None) -> list[Completion]:
    """What :func:`sample_tokens` writes, as text."""
    return [_completion(lm, tokens, int(lm.tokenizer.eos_token_id)) for tokens in sample_tokens(lm, prompts, seeds, how, steer)]


def sample_tokens(lm: LM, prompts: Sequence[list[int]], seeds: Sequence[int], how: Sampling, steer: Steer | None = None) -> list[list[int]]:
    """Continue every prompt by sampling, all in one batch; rows that have ended leave the batch.

    A row that has ended holds the end-of-text token last.

    Args:
        lm: the model, which must have an end-of-text token.
        prompts: token ids, none empty.
        seeds: one a prompt.
        how: lengths and distribution.
        steer: what a row gets in place of a drawn token; nothing is changed without it.
    """
    end = lm.tokenizer.eos_token_id
    if end is None:
        raise InputError("this tokenizer has no end-of-text token, so nothing would end what is written", field="generate")
    draws = [np.random.default_rng(seed).random(how.max_new_tokens) for seed in seeds]
    written: list[list[int]] = [[] for _ in prompts]
    with torch.inference_mode():
        _decode(lm, prompts, draws, written, how, int(end), steer)
    return written


def _decode(
    lm: LM, prompts: Sequence[list[int]], draws: list[Any], written: list[list[int]], how: Sampling, end: int, steer: Steer | None
) -> None:
    ids, mask = _left_padded(prompts, pad_id(lm.tokenizer), lm.device)
    alive, cache = list(range(len(prompts))), DynamicCache(config=lm.model.config)
    # Newer releases of transformers call it so; with the old name they warn.
    held = {"cache" if "cache" in inspect.signature(lm.model.forward).parameters else "past_key_values": cache}
    for step in range(how.max_new_tokens):
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = lm.model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1, **held)
        tokens = _pick(output.logits[:, -1].float(), [float(draws[row][step]) for row in alive], how)
        if steer is not None:
            tokens = [steer(row, token) for row, token in zip(alive, tokens, strict=True)]
        for row, token in zip(alive, tokens, strict=True):
            written[row].append(token)
        kept = [place for place, token in enumerate(tokens) if token != end]
        if not kept:
            return
        if len(kept) < len(alive):
            index = torch.tensor(kept, device=lm.device)
            cache.batch_select_indices(index)
            mask, alive = mask[index], [alive[place] for place in kept]
        ids = torch.tensor([[tokens[place]] for place in kept], device=lm.device)
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)


def _left_padded(rows: Sequence[list[int]], fill: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, (rows, longest) int64, the rows against the right edge so that what follows joins on."""
    longest = max(len(row) for row in rows)
    ids, mask = torch.full((len(rows), longest), fill), torch.zeros((len(rows), longest), dtype=torch.long)
    for k, row in enumerate(rows):
        ids[k, longest - len(row) :] = torch.tensor(row)
        mask[k, longest - len(row) :] = 1
    return ids.to(device), mask.to(device)


def _pick(logits: torch.Tensor, draws: Sequence[float], how: Sampling) -> list[int]:
    """A token a row: where its draw, from 0 to 1, falls among the likeliest tokens that hold ``top_p`` together."""
    if not bool(torch.isfinite(logits).any(-1).all()):
        raise InputError("the generator's output is not finite", field="generate", fix="train it again, or in float32")
    shares, tokens = torch.softmax(logits / how.temperature, -1).topk(min(LIKELIEST, logits.shape[-1]), dim=-1)
    ordered = shares.double()
    before = ordered.cumsum(-1) - ordered
    ordered = ordered.masked_fill(before >= how.top_p, 0.0)
    border = torch.tensor(draws, dtype=torch.float64, device=logits.device) * ordered.sum(-1)
    place = torch.searchsorted(ordered.cumsum(-1), border.unsqueeze(-1), right=True)
    # A draw just below 1 may round past the last kept token.
    last = (ordered > 0).sum(-1, keepdim=True) - 1
    return [int(token) for token in tokens.gather(-1, torch.minimum(place, last)).squeeze(-1).tolist()]


def _completion(lm: LM, tokens: list[int], end: int) -> Completion:
    ended = bool(tokens) and tokens[-1] == end
    text = str(lm.tokenizer.decode(tokens[:-1] if ended else tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    return Completion(text, len(tokens), ended)
