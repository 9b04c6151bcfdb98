"""Choice scoring by log-likelihood: what an item's choices share is run once, and every choice goes on from it.

The convention is lm-evaluation-harness's for multiple choice: the prompt is the context, the separator and a choice its
continuation, both encoded together; the log-probability of a choice is the sum over its continuation's tokens. Three
things are done otherwise, on purpose. The boundary is found by character offsets, so that a token that spans it counts
as continuation. Text that spells a control token stays text. A context that is too long loses the same tokens for
every choice of the item, and never its begin-of-text token.

An item is one row of a batch: the shared tokens, then each choice's own, which see the shared ones and themselves but
no other choice (the attention of a tree, as in SpecInfer, arXiv 2305.09781, section 4). So the shared keys and values
are computed once and copied nowhere, and there is nothing to pad between them and the choices.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path

import torch

from gapscope.choice_tokens import Query, encode_item, plan_batches
from gapscope.errors import InputError
from gapscope.files import dump_json
from gapscope.items import Item
from gapscope.lm import LM, load_lm, pad_id, special_ids
from gapscope.params import ScoreParams
from gapscope.progress import bar
from gapscope.provenance import library_versions
from gapscope.scores import ItemScore, choose
from gapscope.threads import use_threads
from gapscope.work import WorkDirectory, work_key

logger = logging.getLogger(__name__)

LONGEST_ROW = 4096
"""Longest row with branches: its mask has this many tokens squared."""


@dataclass(frozen=True)
class Pick:
    """One wanted log-probability: that of `token` right after position `column` of row `row`, a part of total `owner`."""

    row: int
    column: int
    token: int
    owner: int


def score_batch(lm: LM, batch: list[Query]) -> list[float]:
    """Log-probability (natural) of every choice of every query, one after the other, each summed over its scored tokens."""
    picks, n_choices = [], 0
    for row, query in enumerate(batch):
        picks += _picks(query, row, n_choices)
        n_choices += len(query.tails)
    totals = [0.0] * n_choices
    for pick, value in zip(picks, _log_probabilities(lm, batch, picks), strict=True):
        totals[pick.owner] += value
    return totals


def _picks(query: Query, row: int, owner: int) -> list[Pick]:
    """The tokens to score in a row, where its choices are the totals from `owner` on.

    The first token of a tail follows the prefix, so a choice of one token needs no branch at all.
    """
    picks, last, column = [], len(query.prefix) - 1, len(query.prefix)
    for choice, (tail, branch) in enumerate(zip(query.tails, query.branches, strict=True), start=owner):
        picks += [Pick(row, k - 1, query.prefix[k], choice) for k in range(query.start, len(query.prefix))]
        before = [last, *range(column, column + len(branch))]
        picks += [Pick(row, place, token, choice) for place, token in zip(before, tail, strict=False)]
        column += len(branch)
    return picks


def _log_probabilities(lm: LM, batch: list[Query], picks: list[Pick]) -> list[float]:
    """The picked log-probabilities in one forward pass; the output layer runs on the picked positions only, softmax in float32."""
    places = sorted({(pick.row, pick.column) for pick in picks})
    index = {place: k for k, place in enumerate(places)}
    rows, columns = torch.tensor(places).T.to(lm.device)
    arguments = _rows(lm, batch)
    with torch.inference_mode(), _output_layer_at(lm, rows, columns):
        logits = lm.model(**{name: value.to(lm.device) for name, value in arguments.items()}, use_cache=False).logits[0].float()
        if len(logits) != len(places):
            raise InputError("this model's output layer runs on every position, which gapscope cannot score", field="model")
        at = torch.tensor([index[pick.row, pick.column] for pick in picks], device=lm.device)
        tokens = torch.tensor([pick.token for pick in picks], device=lm.device)
        values: list[float] = (logits[at, tokens] - logits.logsumexp(-1)[at]).tolist()
    return values


def _rows(lm: LM, batch: list[Query]) -> dict[str, torch.Tensor]:
    """The model's arguments for a batch, padded on the right: (rows, columns) ids, and for branches their places and mask.

    Without branches attention is causal, and what is to the right of a token, padding too, is not seen from it.
    """
    width = max(query.n_tokens for query in batch)
    ids = torch.full((len(batch), width), pad_id(lm.tokenizer))
    positions, branch_of = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, query in enumerate(batch):
        ids[row, : query.n_tokens], positions[row, : query.n_tokens], branch_of[row, : query.n_tokens] = map(torch.tensor, query.layout())
    if not any(any(query.branches) for query in batch):
        return {"input_ids": ids}
    # A token sees what is to its left and either shared or of its own branch: (rows, 1, columns, columns).
    seen = (branch_of[:, None, :] == 0) | (branch_of[:, :, None] == branch_of[:, None, :])
    seen = (seen & torch.ones(width, width, dtype=torch.bool).tril()).unsqueeze(1)
    mask = torch.zeros(seen.shape, dtype=lm.dtype).masked_fill_(~seen, torch.finfo(lm.dtype).min)
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask}


def keeps_branches_apart(lm: LM) -> bool:
    """Whether the model honours a mask over pairs of tokens: another first branch must leave the second one's scores alone.

    State space models and some implementations of attention do not; their choices are run one by one.
    """
    if "position_ids" not in inspect.signature(lm.model.forward).parameters:
        return False
    special = special_ids(lm.tokenizer)
    first, second, *others = islice((token for token in count() if token not in special), 10)
    found = []
    for token in (first, second):
        probe = Query("probe", (0, 1), others[:4], 4, [[token] * 4, others[4:8]], 0)
        try:
            found.append(score_batch(lm, [probe])[1])
        except (RuntimeError, ValueError, TypeError):
            return False
    return math.isclose(*found, rel_tol=1e-4 if lm.dtype == torch.float32 else 1e-3)


def context_window(lm: LM) -> float:
    """Length up to which every layer sees the whole text: a mask over pairs of tokens takes the place of a sliding window's."""
    config = lm.model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((window for window in windows if window), default=math.inf)


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
    head = lm.model.get_output_embeddings()
    if head is None:
        raise InputError("this model has no output layer: it is not a causal language model", field="model")
    queries = [query for query in encoded.values() if isinstance(query, Query)]
    rows = _shareable(lm, queries)
    batches = plan_batches(rows, params.batch_tokens, params.batch_size, int(head.weight.shape[0]))
    found: dict[str, dict[int, float]] = defaultdict(dict)
    with bar("score", sum(row.n_tokens for row in rows), "tok") as progress:
        for number, batch in enumerate(batches):
            for item_id, choice, value in json.loads(work.shard(f"batch-{number:06d}.json", partial(_shard, lm, batch))):
                found[item_id][choice] = math.nan if value is None else value
            progress.update(sum(row.n_tokens for row in batch))
    return [
        choose(item, [found[item.id][choice] for choice in query.choices], params.normaliser, query.n_scored, query.n_truncated)
        if isinstance(query := encoded[item.id], Query)
        else ItemScore(item.id, reason=query)
        for item in items
    ]


def _shareable(lm: LM, queries: list[Query]) -> list[Query]:
    """The queries, those split into their choices whose context this model cannot share in one row."""
    longest = context_window(lm) if keeps_branches_apart(lm) else 0
    shared = [query.span <= longest and query.n_tokens <= LONGEST_ROW for query in queries]
    if not all(shared):
        logger.info("the context of %d items is read once for each choice, since this model cannot share it", shared.count(False))
    return [row for query, keep in zip(queries, shared, strict=True) for row in ([query] if keep else query.split())]


def _shard(lm: LM, batch: list[Query]) -> bytes:
    """The log-probabilities of a batch as JSON: item id, choice and value, null where not finite."""
    owners = [(query.item_id, choice) for query in batch for choice in query.choices]
    values = [value if math.isfinite(value) else None for value in score_batch(lm, batch)]
    return dump_json([[*owner, value] for owner, value in zip(owners, values, strict=True)]).encode()


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
