"""The choices of an item as tokens: what they share, where the scored part begins, and batches of them.

The boundary between context and choice is found by character offsets in the whole, since the two encoded apart give
other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from gapscope.items import Item
from gapscope.lm import LM, encode_text
from gapscope.params import ScoreParams

MAX_LOGITS = 2**27
"""Most logits held at once (half a GiB in float32), a single row apart."""


@dataclass(frozen=True)
class Query:
    """One item as tokens, or some of its choices.

    `prefix` holds the tokens that the sequences of all these choices begin with, `tails` what follows for each. The
    tokens from `start` (1 <= start <= len(prefix)) on are scored; those before it are context.
    """

    item_id: str
    choices: tuple[int, ...]
    prefix: list[int]
    start: int
    tails: list[list[int]]
    n_truncated: int

    @property
    def n_scored(self) -> list[int]:
        """Scored tokens of each choice."""
        return [len(self.prefix) - self.start + len(tail) for tail in self.tails]

    @property
    def span(self) -> int:
        """Tokens of the longest sequence."""
        return len(self.prefix) + max(len(tail) for tail in self.tails)

    @property
    def branches(self) -> list[list[int]]:
        """What the model reads of each tail: its last token is only ever predicted."""
        return [tail[:-1] for tail in self.tails]

    @property
    def n_tokens(self) -> int:
        """Tokens that the model reads."""
        return len(self.prefix) - (not any(self.tails)) + sum(len(branch) for branch in self.branches)

    def layout(self) -> tuple[list[int], list[int], list[int]]:
        """The tokens as the model reads them, their positions in the text, and their branches (0 is shared)."""
        rows = [(token, k, 0) for k, token in enumerate(self.prefix)]
        for number, branch in enumerate(self.branches, start=1):
            rows += [(token, len(self.prefix) + k, number) for k, token in enumerate(branch)]
        tokens, positions, branches = zip(*rows[: self.n_tokens], strict=True)
        return list(tokens), list(positions), list(branches)

    def split(self) -> list[Query]:
        """One query for each choice, with nothing shared."""
        rows = zip(self.choices, self.tails, strict=True)
        return [Query(self.item_id, (choice,), self.prefix + tail, self.start, [[]], self.n_truncated) for choice, tail in rows]


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
    tails = [sequence[n_shared:] for sequence in cut]
    return Query(item_id, tuple(range(len(tails))), cut[0][:n_shared], start - excess, tails, excess)


def plan_batches(queries: list[Query], batch_tokens: int, batch_size: int | None, vocabulary: int) -> list[list[Query]]:
    """Queries in batches of like length, longest first, within the budgets for tokens, rows and logits.

    `batch_tokens` bounds the padded tokens of a batch; a row that exceeds it is a batch of its own. Rows with and without
    branches are kept apart, since the latter need no mask. The plan depends on nothing else, so that a resumed run meets
    the same batches.
    """
    batches: list[list[Query]] = []
    for query in sorted(queries, key=lambda query: (any(query.branches), -query.n_tokens, query.item_id, query.choices)):
        batch = [*batches[-1], query] if batches else [query]
        alike = any(batch[0].branches) == any(query.branches)
        logits = vocabulary * sum(sum(member.n_scored) for member in batch)
        fits = len(batch) * batch[0].n_tokens <= batch_tokens and logits <= MAX_LOGITS
        if batches and alike and fits and len(batch) <= (batch_size or len(batch)):
            batches[-1] = batch
        else:
            batches.append([query])
    return batches
