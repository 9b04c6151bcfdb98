"""Log-likelihoods of continuations by a model that nobody has tuned: asked for once, scored together, looked up after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.lm import LM
from gapscope.params import ScoreParams
from gapscope.provenance import library_versions
from gapscope.scoring import score_items
from gapscope.work import WorkDirectory, work_key

Query = tuple[str, tuple[str, ...]]
"""A context, and what may follow it."""


class Likelihoods:
    """What a model thinks of continuations: natural log-probabilities, each summed over the continuation's tokens.

    Args:
        lm: the model.
        work_root: where finished batches are kept, so that a call that was killed goes on from them; see :meth:`clear`.
        separator: what stands between a context and a continuation.
        identity: what tells the model's weights from those of others that share ``work_root``.
        batch_tokens: padded tokens in one forward pass.
    """

    def __init__(self, lm: LM, work_root: Path, *, separator: str = " ", identity: str = "untuned", batch_tokens: int = 512) -> None:
        self._lm, self._root, self._identity = lm, work_root, identity
        self._params = ScoreParams(prompt="{text}", separator=separator, normaliser="none", batch_tokens=batch_tokens)
        self._known: dict[Query, tuple[float, ...] | None] = {}
        self._works: list[WorkDirectory] = []

    def learn(self, queries: Iterable[Query]) -> None:
        """Score the queries not seen before. What cannot be scored (an empty choice, a value that is not finite) is known as None."""
        new = sorted(set(queries) - self._known.keys())
        items = [Item(f"{stable_hash(*query[1], query[0]):016x}", "evidence", "evidence", query[0], query[1], 0) for query in new]
        if not items:
            return
        depends = {
            "items": [asdict(item) for item in items],
            "params": self._params.model_dump(),
            "dtype": str(self._lm.dtype),
            "device": self._lm.device.type,
            "model": [self._lm.model.config.to_json_string(), self._identity],
            "versions": library_versions(),
        }
        work = WorkDirectory(self._root, "evidence", work_key(depends, []))
        self._works.append(work)
        self._known |= {query: score.logprobs for query, score in zip(new, score_items(self._lm, items, self._params, work), strict=True)}

    def of(self, context: str, continuations: tuple[str, ...]) -> tuple[float, ...] | None:
        """Log-probability of each continuation after a context; None unless :meth:`learn` was asked and could score them."""
        return self._known.get((context, continuations))

    def clear(self) -> None:
        """Remove what was kept for a restart, once the result is written."""
        for work in self._works:
            work.clear()
        self._works.clear()
