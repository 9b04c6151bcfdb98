"""Per-item scores of a subject, wherever they come from: how a choice is chosen, how a run is summed up and written."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gapscope.artifacts import SCORES
from gapscope.files import rounded
from gapscope.items import Item

Normaliser = Literal["none", "char", "byte", "token"]


@dataclass(frozen=True)
class ItemScore:
    """How a subject did on one item.

    Attributes:
        item_id: id of the item.
        score: 0 to 1; None where it could not be scored, and then `reason` says why.
        prediction: index of the chosen choice as text, or the answer itself; None where unscored or not known.
        logprobs: natural log-probability of each choice, before any normaliser.
        reason: slug of the reason why the item is unscored, or None.
        n_truncated: tokens of the item that the subject did not read.
        chance: expected score of a blind guess, where it is not the item's own (:attr:`gapscope.items.Item.chance`).
    """

    item_id: str
    score: float | None = None
    prediction: str | None = None
    logprobs: tuple[float, ...] | None = None
    reason: str | None = None
    n_truncated: int = 0
    chance: float | None = None


def chance_of(item: Item, score: ItemScore) -> float:
    """Expected score of a blind guess at an item, scored in this way."""
    return item.chance if score.chance is None else score.chance


def choose(item: Item, logprobs: Sequence[float], normaliser: Normaliser, n_tokens: Sequence[int], n_truncated: int = 0) -> ItemScore:
    """Score a choice item by the greatest normalised log-probability, the first of equals.

    `none` compares the sums (lm-eval's acc), `char` divides by the choice's characters (its acc_norm, which the papers
    describe as bytes), `byte` by its UTF-8 bytes, `token` by its `n_tokens` scored tokens. A log-probability that is
    not finite leaves the item unscored, since a comparison with NaN would pick a choice at random.
    """
    if not all(math.isfinite(value) for value in logprobs):
        return ItemScore(item.id, reason="not_finite", n_truncated=n_truncated)
    sizes: dict[str, Sequence[int]] = {
        "none": [1] * len(item.choices),
        "char": [len(choice) for choice in item.choices],
        "byte": [len(choice.encode()) for choice in item.choices],
        "token": n_tokens,
    }
    best = int(np.argmax(np.array(logprobs) / np.array(sizes[normaliser])))
    return ItemScore(item.id, float(best == item.answer), str(best), tuple(logprobs), n_truncated=n_truncated)


def wilson_interval(mean: float, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """95% interval of a mean of `n` values in [0, 1] (Wilson 1927).

    Exact in form for scores of 0 and 1; wide enough for fractions too, whose variance is at most mean * (1 - mean).
    """
    centre, spread = mean + z * z / (2 * n), z * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return max(0.0, (centre - spread) / (1 + z * z / n)), min(1.0, (centre + spread) / (1 + z * z / n))


def first_of_each(items: list[Item], limit: int | None) -> list[Item]:
    """The first `limit` items of each benchmark, in the order given; all of them without a limit."""
    seen: Counter[str] = Counter()
    kept = []
    for item in items:
        seen[item.benchmark] += 1
        if limit is None or seen[item.benchmark] <= limit:
            kept.append(item)
    return kept


def write_scores(output: Path, items: list[Item], scores: Iterable[ItemScore]) -> None:
    """Write `scores.parquet` (:data:`gapscope.artifacts.SCORES`) into a directory, one row for each item."""
    by_id = {score.item_id: score for score in scores}
    rows = [(item, by_id[item.id]) for item in sorted(items, key=lambda item: item.id)]
    columns: dict[str, list[Any]] = {
        "item_id": [item.id for item, _ in rows],
        "score": [score.score for _, score in rows],
        "chance": [chance_of(item, score) for item, score in rows],
        "prediction": [score.prediction for _, score in rows],
        "logprobs": [None if score.logprobs is None else rounded(score.logprobs) for _, score in rows],
        "scored": [score.score is not None for _, score in rows],
    }
    SCORES.write(output / "scores.parquet", columns)


def summarise(items: list[Item], scores: Iterable[ItemScore]) -> dict[str, Any]:
    """Accuracy over the scored items with its 95% interval, per benchmark and overall, and what was left out and why.

    `micro` is the mean over items, `macro` the mean over benchmarks. Items of one family count as one in the width of
    an interval. What has no scored item has no accuracy, only its `n` of 0.
    """
    by_id = {score.item_id: score for score in scores}
    groups: dict[str, list[tuple[Item, ItemScore]]] = defaultdict(list)
    for item in items:
        groups[item.benchmark].append((item, by_id[item.id]))
    benchmarks = {name: _accuracy(rows) for name, rows in sorted(groups.items())}
    overall = _accuracy([row for rows in groups.values() for row in rows])
    reasons = Counter(score.reason for score in by_id.values() if score.reason is not None)
    summary: dict[str, Any] = {
        "n_items": len(items),
        "n": overall["n"],
        "n_unscored": overall["n_unscored"],
        "n_truncated": sum(score.n_truncated > 0 for score in by_id.values()),
        "benchmarks": benchmarks,
    }
    if reasons:
        summary["unscored"] = dict(sorted(reasons.items()))
    defined = [entry for entry in benchmarks.values() if entry["n"]]
    if defined:
        macro = {key: float(np.mean([entry[key] for entry in defined])) for key in ("accuracy", "chance")}
        micro = {"micro": overall["accuracy"], "micro_low": overall["low"], "micro_high": overall["high"]}
        summary["accuracy"] = {"macro": macro["accuracy"], **micro}
        summary["chance"] = {"macro": macro["chance"], "micro": overall["chance"]}
    return summary


def _accuracy(rows: list[tuple[Item, ItemScore]]) -> dict[str, Any]:
    scored = [(item, score.score) for item, score in rows if score.score is not None]
    entry: dict[str, Any] = {"n": len(scored), "n_unscored": len(rows) - len(scored)}
    if scored:
        mean = math.fsum(value for _, value in scored) / len(scored)
        low, high = wilson_interval(mean, len({item.family for item, _ in scored}))
        chances = [chance_of(item, score) for item, score in rows if score.score is not None]
        entry |= {"accuracy": mean, "low": low, "high": high, "chance": math.fsum(chances) / len(scored)}
    return entry
