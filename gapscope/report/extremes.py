"""The concepts a subject does worst and best on: chosen, ordered and labelled in one place for plots and summaries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gapscope.report.inputs import Label, Performance

TESTED = ("gap", "strength", "typical")
UNTESTED = "untested"


@dataclass(frozen=True)
class Extreme:
    """One concept at an end of the ranking, None where something is not known.

    Attributes:
        value: what is shown: the adjusted score, or chi_model where nothing is calibrated; low and high are its interval.
        status: gap, strength or typical; "untested" where nothing is calibrated.
        n_alike: concepts of the same finding, this one included.
    """

    concept: int
    label: Label | None
    value: float
    low: float | None
    high: float | None
    q: float | None
    n: int
    n_eff: float
    status: str
    n_alike: int


@dataclass(frozen=True)
class Ranking:
    """Both ends of the ranking, most extreme first, and what they were taken from.

    Attributes:
        calibrated: whether gaps and strengths were told from chance; if not, raw chi_model gives the order.
        worst: gaps, then the lowest of the rest; not calibrated: the lowest chi_model.
        best: strengths, then the highest of the rest; not calibrated: the highest chi_model.
        n_ranked: concepts with enough support, dead and structural ones aside.
        n_gap, n_strength: how many of these are told from chance.
        n_unsupported: concepts with a value that are not ranked.
        n_undefined: concepts that never fire on a scored item.
    """

    calibrated: bool
    worst: list[Extreme]
    best: list[Extreme]
    n_ranked: int
    n_gap: int
    n_strength: int
    n_unsupported: int
    n_undefined: int


def is_calibrated(performance: Performance) -> bool:
    """Whether the table tells gaps and strengths from chance."""
    return bool((performance.status != "").any())


def supported(performance: Performance, min_n_eff: float) -> np.ndarray:
    """Concepts with enough support, as a mask over the rows: those tested, or where nothing is, n_eff at least ``min_n_eff``."""
    enough = np.isin(performance.status, TESTED) if is_calibrated(performance) else performance["n_eff"] >= min_n_eff
    return np.asarray(np.isfinite(performance["chi_model"]) & enough)


def rank_extremes(
    performance: Performance, labels: dict[int, Label], structural: set[int], n_concepts: int, min_n_eff: float, count: int
) -> Ranking:
    """The ``count`` worst and best concepts of a subject; never the same concept on both sides.

    Where the table is calibrated: gaps (strengths) in the order of ``shrunk``, one of each finding, and if these are fewer
    than ``count`` the rest of the tested concepts, the surest first (by p), with their status. Where it is not: the
    supported concepts in the order of chi_model. Ties: the more extreme adjusted score, more support, the lower index.
    """
    calibrated = is_calibrated(performance)
    usable = supported(performance, min_n_eff) & ~np.isin(performance["concept"], list(structural))
    defined = np.isfinite(performance["chi_model"])
    if calibrated:
        worst, best = (_of_findings(performance, usable, sign)[:count] for sign in (1, -1))
    else:
        count = min(count, int(usable.sum()) // 2)
        worst, best = (_ordered(performance, np.flatnonzero(usable), "chi_model", sign)[:count] for sign in (1, -1))
    return Ranking(
        calibrated,
        _extremes(performance, labels, worst, calibrated),
        _extremes(performance, labels, best, calibrated),
        n_ranked=int(usable.sum()),
        n_gap=int((usable & (performance.status == "gap")).sum()),
        n_strength=int((usable & (performance.status == "strength")).sum()),
        n_unsupported=int((defined & ~usable).sum()),
        n_undefined=n_concepts - int(defined.sum()),
    )


def _ordered(performance: Performance, rows: np.ndarray, by: str, sign: int) -> list[int]:
    """Rows with the lowest value first (sign 1) or the highest (sign -1)."""
    support = (performance["concept"][rows], -performance["n_eff"][rows])
    keys = (*support, sign * performance["adjusted"][rows], sign * performance[by][rows])
    ordered: list[int] = rows[np.lexsort(keys)].tolist()
    return ordered


def _of_findings(performance: Performance, usable: np.ndarray, sign: int) -> list[int]:
    """Rows of one side: the first of each finding, then tested concepts of no finding that lean to the same side."""
    flagged = usable & (performance.status == ("gap" if sign == 1 else "strength"))
    leaning = usable & (performance.status == "typical") & (sign * performance["adjusted"] < 0)
    chosen: list[int] = []
    seen: set[str] = set()
    for row in _ordered(performance, np.flatnonzero(flagged), "shrunk", sign):
        finding = performance.finding[row] or f"row {row}"
        if finding not in seen:
            seen.add(finding)
            chosen.append(row)
    rest = np.flatnonzero(leaning)
    surest = np.lexsort((performance["concept"][rest], sign * performance["adjusted"][rest], performance["p"][rest]))
    return [*chosen, *rest[surest].tolist()]


def _extremes(performance: Performance, labels: dict[int, Label], rows: list[int], calibrated: bool) -> list[Extreme]:
    alike = Counter(zip(performance.finding, performance.status, strict=True))
    shown = ("adjusted", "adjusted_low", "adjusted_high") if calibrated else ("chi_model", "ci_low", "ci_high")
    result = []
    for row in rows:
        value, low, high, q, n, n_eff = (float(performance[name][row]) for name in (*shown, "q", "n", "n_eff"))
        low_, high_, q_ = (number if np.isfinite(number) else None for number in (low, high, q))
        concept, finding, status = int(performance["concept"][row]), performance.finding[row], performance.status[row]
        n_alike = alike[finding, status] if finding else 1
        result.append(Extreme(concept, labels.get(concept), value, low_, high_, q_, int(n), n_eff, status or UNTESTED, n_alike))
    return result
