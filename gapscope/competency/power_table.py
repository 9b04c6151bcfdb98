"""What a suite can show, for people who plan one: from its activations alone, before any subject is scored.

``gap`` is a chance-corrected drop: 0.1 is a tenth of the way from always right down to a blind guess. Whether one is found
depends on how many effective items (n_eff) carry the concept, on the accuracy to be expected, and on how many concepts are
tested at once (:mod:`gapscope.competency.power`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.competency.performance import read_suite
from gapscope.competency.power import plan, smallest_gap, suite_support
from gapscope.errors import InputError
from gapscope.items import read_items
from gapscope.params import PerformanceParams

SUPPORTS = (20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Supports for which the smallest gap is told."""

SHARES = (0.5, 0.8, 0.95)
"""Shares of the supported concepts for which it is told how many items more they need."""


@dataclass(frozen=True)
class Expected:
    """What is assumed: the accuracy of the subject, the gap to be found, the power, and discoveries in all."""

    accuracy: float
    gap: float
    power: float
    discoveries: int


def power_table(activations: Path, items: Path, coverage: Path | None, expected: Expected, params: PerformanceParams) -> dict[str, Any]:
    """What the suite can show of its concepts, as nested numbers; what cannot be is left out.

    ``by_support`` gives for each n_eff the smallest gap and how many concepts have at least that; ``items_for`` how many items
    more, at the suite's make-up, give that share of the concepts tested now the support that the gap needs.

    Raises:
        InputError: an artifact is absent or damaged, or an assumption is out of range.
    """
    suite = read_suite(activations, items, coverage, params.strata)
    chance = float(np.mean([item.chance for item in read_items(items)]))
    if not chance < expected.accuracy:
        message = f"is {expected.accuracy:g}, no more than the mean chance of {chance:.3g}: there is nothing to fall from"
        raise InputError(message, field="accuracy", fix="give the accuracy that you expect of the subject")
    support = np.where(suite.excluded, 0.0, suite_support(suite.saliency, suite.rows.codes, suite.strata, suite.families))
    n_items = len(suite.rows.item_ids)
    made = plan(
        support, n_items, accuracy=expected.accuracy, chance=chance, gap=expected.gap, alpha=params.alpha, power=expected.power,
        min_n_eff=params.min_n_eff, discoveries=expected.discoveries,
    )  # fmt: skip
    tested = support >= params.min_n_eff
    smallest = smallest_gap(np.array(SUPPORTS), expected.accuracy, chance, made.level, expected.power)
    table: dict[str, Any] = {
        "n_items": n_items,
        "chance": chance,
        "n_tested": int(tested.sum()),
        "n_untested": int((~tested).sum()),
        "level": made.level,
        "n_detectable": int((made.smallest_gap <= expected.gap).sum()),
        "by_support": {
            f"{size:.0f}": {"n_concepts": int((support >= size).sum()), **({} if np.isnan(gap) else {"smallest_gap": float(gap)})}
            for size, gap in zip(SUPPORTS, smallest, strict=True)
        },
        "items_for": {},
    }
    if not np.isnan(made.support_needed):
        table["support_needed"] = made.support_needed
        more = np.sort(made.items_more[tested])
        for share in SHARES if len(more) else ():
            table["items_for"][f"{share:.0%}"] = int(more[int(np.ceil(share * len(more))) - 1])
    return table


def power_text(table: dict[str, Any], expected: Expected) -> str:
    """The table in words."""
    lines = [
        f"suite      {table['n_items']:,} items; {table['n_tested']:,} concepts have support enough to be tested, "
        f"{table['n_untested']:,} have not",
        f"assumed    accuracy {expected.accuracy:.0%} (a blind guess {table['chance']:.0%}), power {expected.power:.0%}, "
        f"{expected.discoveries} true discoveries, so p below {table['level']:.2g}",
        "",
        "  n_eff   concepts with it   smallest gap found (chance-corrected)",
    ]
    for size, row in table["by_support"].items():
        gap = f"{row['smallest_gap']:.2f}" if "smallest_gap" in row else "none, however deep"
        lines.append(f"{size:>7} {row['n_concepts']:>18,}   {gap}")
    lines.append("")
    if "support_needed" not in table:
        return "\n".join([*lines, f"A gap of {expected.gap:g} is more than this accuracy can fall: no suite shows it."])
    lines.append(
        f"A gap of {expected.gap:g} needs n_eff {table['support_needed']:.0f}: "
        f"{table['n_detectable']:,} of {table['n_tested']:,} concepts have it."
    )
    lines += [f"For {share} of them it takes {more:,} items more of the same make-up." for share, more in table["items_for"].items()]
    return "\n".join(lines)
