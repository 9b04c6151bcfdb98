"""One number of a validity check with its interval: the row of every validity table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import betaincinv

from gapscope.competency.activations import FloatArray

NOTHING = float("nan")

CALIBRATED, RAW = "calibrated", "raw"
"""The two rankings that are compared: by adjusted effect and its p, and by chi_model."""


@dataclass(frozen=True)
class Outcome:
    """A value with its interval, NaN where undefined.

    Attributes:
        features: feature set.
        subject: slug; empty where the number is of no one subject.
        ranking: calibrated or raw; empty where it is of neither.
        group: of which features, items or benchmark.
        quantity: what was measured.
        value, low, high: the number and its 95% interval.
        n: how many features, draws, items or pairs it rests on; 0 where it is undefined.
    """

    features: str
    subject: str
    ranking: str
    group: str
    quantity: str
    value: float = NOTHING
    low: float = NOTHING
    high: float = NOTHING
    n: int = 0


def columns(outcomes: Iterable[Outcome]) -> dict[str, list[Any]]:
    """The outcomes as columns of the validity table."""
    rows = list(outcomes)
    return {field.name: [getattr(row, field.name) for row in rows] for field in fields(Outcome)}


def averaged(outcomes: Sequence[Outcome], **changes: str) -> list[Outcome]:
    """The mean of outcomes of the same name, one a name, in the order of their first.

    The ends of intervals are averaged, not drawn together: halves of one suite, and subjects on the same items, share their
    luck, and a mean of them is no surer than one of them. ``n`` is summed. Undefined outcomes count only if all are.
    """
    found: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        named = replace(outcome, **changes)  # type: ignore[arg-type]
        key = (named.features, named.subject, named.ranking, named.group, named.quantity)
        found.setdefault(key, []).append(named)
    return [_mean(group) for group in found.values()]


def _mean(group: list[Outcome]) -> Outcome:
    defined = [one for one in group if one.n and not np.isnan(one.value)]
    if not defined:
        return replace(group[0], value=NOTHING, low=NOTHING, high=NOTHING, n=0)
    value, low, high = (float(np.mean([getattr(one, name) for one in defined])) for name in ("value", "low", "high"))
    return replace(group[0], value=value, low=low, high=high, n=sum(one.n for one in defined))


def share(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float, float]:
    """A share with its Jeffreys interval; NaN where there are no trials."""
    if not trials:
        return NOTHING, NOTHING, NOTHING
    tail = (1 - confidence) / 2
    low, high = (float(betaincinv(hits + 0.5, trials - hits + 0.5, level)) for level in (tail, 1 - tail))
    return hits / trials, low if hits else 0.0, high if hits < trials else 1.0


def mean_of_draws(values: FloatArray, low: float = -np.inf, high: float = np.inf) -> tuple[float, float, float]:
    """Mean of independent draws (NaN left out) with its 95% interval by the spread between them, kept inside low and high."""
    known = values[~np.isnan(values)]
    if not len(known):
        return NOTHING, NOTHING, NOTHING
    half = 1.96 * float(known.std(ddof=1)) / len(known) ** 0.5 if len(known) > 1 else NOTHING
    mean = float(known.mean())
    return mean, max(mean - half, low), min(mean + half, high)


def centre(values: FloatArray, middle: Callable[[FloatArray], np.floating[Any]]) -> tuple[float, float, float]:
    """The mean or median of values with the central 95% of them; NaN where there are none."""
    if not len(values):
        return NOTHING, NOTHING, NOTHING
    low, high = (float(end) for end in np.quantile(values, [0.025, 0.975]))
    return float(middle(values)), low, high


def headline(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Outcomes of one feature set as nested metrics {ranking: {group: {quantity: {value, low, high, n}}}}, averaged over subjects."""
    metrics: dict[str, Any] = {}
    for one in averaged(outcomes, subject=""):
        place = metrics
        for name in (one.ranking, one.group):
            place = place.setdefault(name, {}) if name else place
        numbers = {name: getattr(one, name) for name in ("value", "low", "high") if not np.isnan(getattr(one, name))}
        place[one.quantity] = {**numbers, "n": one.n}
    return metrics
