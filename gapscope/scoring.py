"""Choice scoring by log-likelihood: what an item's choices share is run once, and the rest goes on from its KV cache.

The convention is lm-evaluation-harness's for multiple choice: the prompt is the context, the separator and a choice its
continuation, both encoded together; the log-probability of a choice is the sum over its continuation's tokens. Three
things are done otherwise, on purpose. The boundary is found by character offsets, so that a token that spans it counts
as continuation. Text that spells a control token stays text. A context that is too long loses the same tokens for
every choice of the item, and never its begin-of-text token.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from gapscope.errors import InputError
from gapscope.files import dump_json
from gapscope.items import Item
from gapscope.lm import LM, encode_text, load_lm, pad_id
from gapscope.params import ScoreParams
from gapscope.progress import bar
from gapscope.provenance import library_versions
from gapscope.scores import ItemScore, choose
from gapscope.threads import use_threads
from gapscope.work import WorkDirectory, work_key

logger = logging.getLogger(__name__)

MAX_LOGITS = 2**27
"""Most logits held at once (half a GiB in float32), a single item apart."""


@dataclass(frozen=True)
class Query:
    """One item as tokens.

    `prefix` holds the tokens that the sequences of all choices begin with, `tails` what follows for each choice. The
    tokens from `start` (1 <= start <= len(prefix)) on are scored; those before it are context.
    """

    item_id: str
    prefix: list[int]
    start: int
    tails: list[list[int]]
    n_truncated: int

    @property
    def n_scored(self) -> list[int]:
        """Scored tokens of each choice."""
        return [len(self.prefix) - self.start + len(tail) for tail in self.tails]

    @property
    def n_tokens(self) -> int:
        """Tokens that the model reads, about."""
        return len(self.prefix) + sum(len(tail) for tail in self.tails)

    @property
    def longest_tail(self) -> int:
        """Tokens of the longest tail."""
        return max(len(tail) for tail in self.tails)


@dataclass(frozen=True)
class Pick:
    """One wanted log-probability: that of `token` right after position `column` of row `row`."""

    row: int
    column: int
    token: int


def adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer by itself begins a text with its begin-of-text token."""
    ids = tokenizer("a")["input_ids"]
    return tokenizer.bos_token_id is not None and bool(ids) and ids[0] == tokenizer.bos_token_id


def context_length(lm: LM, params: ScoreParams) -> int:
    """Most tokens the model reads at once: `max_tokens`, or what its configuration allows where that is less."""
    allowed = getattr(lm.model.config.get_text_config(), "max_position_embeddings", None)
    return params.max_tokens if allowed is None else min(params.max_tokens, int(allowed))


def encode_item(lm: LM, item: Item, params: ScoreParams) -> Query | str:
    """An item's choices as tokens, or the reason why they cannot be scored.

    The reasons are `no_choices`, `empty_choice` (no text, or no token of its own), `no_context` (nothing precedes the
    first scored token) and `choice_too_long` (a choice alone exceeds the context length).
    """
    if not item.choices:
        return "no_choices"
    if not all(choice.strip() for choice in item.choices):
        return "empty_choice"
    bos = adds_bos(lm.tokenizer) if params.prepend_bos is None else params.prepend_bos
    context = params.prompt.replace("{text}", item.text)
    # Spaces at the end of the context belong to the first token of the continuation.
    boundary = len(context.rstrip())
    sequences, starts = [], []
    for choice in item.choices:
        encoding = encode_text(lm, context + params.separator + choice, prepend_bos=bos)
        sequences.append(encoding.ids)
        starts.append(sum(1 for _begin, end in encoding.offsets if end <= boundary))
    prefix = [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False))]
    # Should a token span the boundary for one choice only, all are scored from the last common point before it.
    start = min(len(prefix), *starts)
    if start == 0:
        return "no_context"
    if any(len(sequence) == start for sequence in sequences):
        return "empty_choice"
    return _truncate(item.id, sequences, len(prefix), start, context_length(lm, params), int(bos))


def _truncate(item_id: str, sequences: list[list[int]], n_shared: int, start: int, limit: int, n_kept: int) -> Query | str:
    """Cut the context on its left so that the longest sequence, its last token apart, fits `limit`."""
    longest = max(len(sequence) for sequence in sequences)
    excess = max(0, longest - 1 - limit)
    if excess > start - max(n_kept, 1):
        return "choice_too_long"
    cut = [sequence[:n_kept] + sequence[n_kept + excess :] for sequence in sequences]
    n_shared -= excess
    return Query(item_id, cut[0][:n_shared], start - excess, [sequence[n_shared:] for sequence in cut], excess)


def plan_batches(queries: list[Query], batch_tokens: int, batch_size: int | None, vocabulary: int) -> list[list[Query]]:
    """Queries in batches of like tails and like prefixes, within the budgets for tokens, items and logits.

    `batch_tokens` bounds the padded prefixes and the padded tails, each by itself; an item that exceeds it is a batch
    of its own. The plan depends on nothing else, so that a resumed run meets the same batches.
    """
    batches: list[list[Query]] = []
    for query in sorted(queries, key=_batch_order):
        batch = [*batches[-1], query] if batches else [query]
        prefixes = len(batch) * max(len(member.prefix) for member in batch)
        tails = sum(len(member.tails) for member in batch) * max(member.longest_tail for member in batch)
        logits = vocabulary * sum(sum(member.n_scored) for member in batch)
        fits = max(prefixes, tails) <= batch_tokens and logits <= MAX_LOGITS
        if batches and fits and len(batch) <= (batch_size or len(batch)):
            batches[-1] = batch
        else:
            batches.append([query])
    return batches


def _batch_order(query: Query) -> tuple[int, int, str]:
    """By the longest tail in steps of half an octave, then by the prefix, longest first: little is lost to padding."""
    return (-round(2 * math.log2(max(query.longest_tail, 1))), -len(query.prefix), query.item_id)


def score_batch(lm: LM, batch: list[Query]) -> list[list[float]]:
    """Log-probability (natural) of every choice of every query in the batch, summed over its scored tokens.

    One forward pass over the prefixes and one over the tails, which go on from the cache of their item's prefix. The
    first token of a tail is scored by the prefix's last position, so a choice that is one token long needs no second.
    """
    # Prefixes end together and tails begin together, so that no padding comes between them.
    longest = max(len(query.prefix) for query in batch)
    ids, mask = _pad([query.prefix for query in batch], pad_id(lm.tokenizer), left=True)
    picks, owners = [], []
    for row, query in enumerate(batch):
        offset = longest - len(query.prefix)
        shared = [Pick(row, offset + k - 1, query.prefix[k]) for k in range(query.start, len(query.prefix))]
        for choice, tail in enumerate(query.tails):
            own = [*shared, *(Pick(row, longest - 1, token) for token in tail[:1])]
            picks += own
            owners += [(row, choice)] * len(own)
    cache = DynamicCache(config=lm.model.config.get_text_config())
    totals = [[0.0] * len(query.tails) for query in batch]
    for (row, choice), value in zip(owners, _log_probabilities(lm, ids, mask, cache, picks), strict=True):
        totals[row][choice] += value
    going_on = [(row, choice) for row, query in enumerate(batch) for choice, tail in enumerate(query.tails) if len(tail) > 1]
    if going_on:
        for (row, choice), value in _score_tails(lm, batch, going_on, mask, cache):
            totals[row][choice] += value
    return totals


def _score_tails(
    lm: LM, batch: list[Query], going_on: list[tuple[int, int]], prefix_mask: torch.Tensor, cache: DynamicCache
) -> list[tuple[tuple[int, int], float]]:
    tails = [batch[row].tails[choice] for row, choice in going_on]
    ids, mask = _pad([tail[:-1] for tail in tails], pad_id(lm.tokenizer), left=False)
    picks, owners = [], []
    for k, tail in enumerate(tails):
        picks += [Pick(k, column, token) for column, token in enumerate(tail[1:])]
        owners += [going_on[k]] * (len(tail) - 1)
    rows = torch.tensor([row for row, _choice in going_on])
    cache.reorder_cache(rows.to(lm.device))
    values = _log_probabilities(lm, ids, torch.cat([prefix_mask[rows], mask], dim=1), cache, picks)
    return list(zip(owners, values, strict=True))


def _pad(rows: list[list[int]], filler: int, *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Token rows and their mask, both (rows, longest) int64, padded on one side."""
    ids = torch.full((len(rows), max(len(row) for row in rows)), filler)
    mask = torch.zeros_like(ids)
    for k, row in enumerate(rows):
        span = slice(ids.shape[1] - len(row), None) if left else slice(0, len(row))
        ids[k, span] = torch.tensor(row)
        mask[k, span] = 1
    return ids, mask


def _log_probabilities(lm: LM, ids: torch.Tensor, mask: torch.Tensor, cache: DynamicCache, picks: list[Pick]) -> list[float]:
    """The picked log-probabilities in one forward pass; the output layer runs on the picked positions only, softmax in float32.

    `ids` is (rows, columns); `mask` is (rows, cached + columns); `cache` is extended in place.
    """
    places = sorted({(pick.row, pick.column) for pick in picks})
    index = {place: k for k, place in enumerate(places)}
    rows, columns = torch.tensor(places).T.to(lm.device)
    accepted = inspect.signature(lm.model.forward).parameters
    arguments: dict[str, Any] = {"cache" if "cache" in accepted else "past_key_values": cache, "use_cache": True}
    if "position_ids" in accepted:
        arguments["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :].to(lm.device)
    with torch.inference_mode(), _output_layer_at(lm, rows, columns):
        logits = lm.model(input_ids=ids.to(lm.device), attention_mask=mask.to(lm.device), **arguments).logits[0].float()
        if len(logits) != len(places):
            raise InputError("this model's output layer runs on every position, which gapscope cannot score", field="model")
        at = torch.tensor([index[pick.row, pick.column] for pick in picks], device=lm.device)
        tokens = torch.tensor([pick.token for pick in picks], device=lm.device)
        values: list[float] = (logits[at, tokens] - logits.logsumexp(-1)[at]).tolist()
    return values


@contextmanager
def _output_layer_at(lm: LM, rows: torch.Tensor, columns: torch.Tensor) -> Iterator[None]:
    """While open, the output layer sees the given positions only, as one row: (1, positions, width).

    Whatever the model does to its logits afterwards (scaling, soft caps) still happens.
    """

    def keep(_module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        return (arguments[0][rows, columns].unsqueeze(0),)

    handle = lm.model.get_output_embeddings().register_forward_pre_hook(keep)
    try:
        yield
    finally:
        handle.remove()


def score_items(lm: LM, items: list[Item], params: ScoreParams, work: WorkDirectory) -> list[ItemScore]:
    """Score every item, one shard of the work directory a batch; in the order of `items`."""
    encoded = {item.id: encode_item(lm, item, params) for item in items}
    queries = [query for query in encoded.values() if isinstance(query, Query)]
    head = lm.model.get_output_embeddings()
    if head is None:
        raise InputError("this model has no output layer: it is not a causal language model", field="model")
    batches = plan_batches(queries, params.batch_tokens, params.batch_size, int(head.weight.shape[0]))
    found: dict[str, list[float]] = {}
    with bar("score", sum(query.n_tokens for query in queries), "tok") as progress:
        for number, batch in enumerate(batches):
            shard = work.shard(f"batch-{number:06d}.json", partial(_shard, lm, batch))
            found |= {key: [math.nan if value is None else value for value in row] for key, row in json.loads(shard).items()}
            progress.update(sum(query.n_tokens for query in batch))
    return [
        choose(item, found[item.id], params.normaliser, query.n_scored, query.n_truncated)
        if isinstance(query := encoded[item.id], Query)
        else ItemScore(item.id, reason=query)
        for item in items
    ]


def _shard(lm: LM, batch: list[Query]) -> bytes:
    """The log-probabilities of a batch by item id as JSON, null where not finite."""
    rows = zip(batch, score_batch(lm, batch), strict=True)
    return dump_json({query.item_id: [x if math.isfinite(x) else None for x in values] for query, values in rows}).encode()


def score_model(
    model_dir: Path, items: list[Item], params: ScoreParams, work_root: Path, *, dtype: str, device: str, threads: int
) -> tuple[list[ItemScore], WorkDirectory]:
    """Load a model and score every item; a call that was killed goes on from its finished batches under `work_root`.

    Returns the scores and the directory of those batches, for the caller to clear once the scores are written.
    """
    use_threads(threads)
    lm = load_lm(model_dir, dtype, device)
    # A log-probability's last bits depend on all of these.
    depends = {
        "params": params.model_dump(),
        "items": [asdict(item) for item in items],
        "dtype": dtype,
        "device": lm.device.type,
        "threads": threads,
        "versions": library_versions(),
    }
    work = WorkDirectory(work_root, "score", work_key(depends, [model_dir]))
    return score_items(lm, items, params, work), work
