"""What a comparison of two subjects comes to: the concepts that changed most surely, labelled, as data and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gapscope.artifacts import CLUSTERS
from gapscope.competency.activations import IntArray, read_matrix, read_rows
from gapscope.competency.compare import RELATIVE_STATUSES, Comparison, headlines
from gapscope.competency.labels import Label, keyword_labels, read_contexts
from gapscope.errors import InputError
from gapscope.items import read_items

TABLE_WIDTH = 150


@dataclass(frozen=True)
class Sides:
    """The names of what is compared, and the rate of false discoveries that is accepted."""

    first: str
    second: str
    alpha: float


def gather_changes(found: Comparison, sides: Sides, count: int) -> dict[str, Any]:
    """Headlines, and ``count`` concepts of three kinds: behind, ahead, and changed by themselves.

    Behind and ahead are ends of the ranking by the relative change, the surest (by p) first, told from chance or not: each
    carries its status. Changed are concepts whose difference is told from chance, those first whose whole interval is farthest
    from 0.
    """
    relative = found.relative
    tested = np.flatnonzero(found.tested[-1])
    sign = np.sign(relative.adjusted[-1, tested])
    behind, ahead = (_surest(tested[sign == side], relative.p[-1], count) for side in (-1, 1))
    discovered = tested[found.q[-1, tested] < sides.alpha]
    # By p alone the list would be the concepts of every text, which are sure because they fire everywhere.
    nearest_zero = np.maximum(found.low[-1], -found.high[-1])
    changed = _surest(discovered, -nearest_zero, count)
    return {
        "first": sides.first,
        "second": sides.second,
        "alpha": sides.alpha,
        "headlines": headlines(found, sides.alpha),
        "behind": [_concept(found, concept) for concept in behind],
        "ahead": [_concept(found, concept) for concept in ahead],
        "changed": [_concept(found, concept) for concept in changed],
    }


def _surest(concepts: IntArray, order: np.ndarray, count: int) -> list[int]:
    """The first of the concepts in rising order of a value of theirs (C), the lower index first of equals."""
    ranked = concepts[np.lexsort((concepts, order[concepts]))]
    return [int(concept) for concept in ranked[:count]]


def _concept(found: Comparison, concept: int) -> dict[str, Any]:
    relative, row = found.relative, (-1, concept)
    values = {name: float(getattr(found, name)[row]) for name in ("first", "second", "difference", "low", "high", "p", "q", "n_eff")}
    counts = {name: int(getattr(found, name)[row]) for name in ("n", "n_gained", "n_lost")}
    against = {"relative": "adjusted", "relative_low": "low", "relative_high": "high"}
    values |= {name: 2 * float(getattr(relative, of)[row]) for name, of in against.items()}
    values |= {"relative_p": float(relative.p[row]), "relative_q": float(relative.q[row])}
    return {"concept": concept, "status": RELATIVE_STATUSES[int(relative.status[row])], **counts, **values}


def add_labels(gathered: dict[str, Any], activations: Path, clusters: Path, n_keywords: int) -> None:
    """Give every concept of the gathered changes its ``label`` and ``label_score``.

    They are those of the clusters table where it has the concept, and keywords of its contexts else.
    """
    rows = [row for kind in ("behind", "ahead", "changed") for row in gathered[kind]]
    known: dict[int, tuple[str, float | None]] = {}
    if clusters.exists():
        for row in CLUSTERS.read(clusters, ["concept", "label", "label_score"]).to_pylist():
            known[row["concept"]] = (row["label"], row["label_score"])
    missing = sorted({row["concept"] for row in rows} - set(known))
    if missing:
        items = read_rows(activations)
        firing = read_matrix(activations, "firing", items)
        made: dict[int, Label] = keyword_labels(
            read_contexts(activations / "contexts.parquet"), missing, firing, items.item_ids, n_keywords
        )
        known |= {concept: (label.text, label.score) for concept, label in made.items()}
    for row in rows:
        row["label"], row["label_score"] = known[row["concept"]]


def check_same_items(before: Path, now: Path, revision: str) -> None:
    """Refuse to compare scores of questions that have changed under their ids.

    Raises:
        InputError: an item that both files hold has another text, other choices or another answer.
    """
    old = {item.id: item for item in read_items(before)}
    for item in read_items(now):
        was = old.get(item.id)
        if was is not None and (was.text, was.choices, was.answer, was.target) != (item.text, item.choices, item.answer, item.target):
            message = f"item {item.id!r} is another question than at {revision}: {was.text[:60]!r} there, {item.text[:60]!r} here"
            raise InputError(message, file=now, field="id", fix="compare revisions of the same suite")


def print_changes(gathered: dict[str, Any], console: Console | None = None) -> None:
    """Print the gathered changes to stdout. Labels are never read as markup."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=TABLE_WIDTH, file=console.file)
    for line in _lines(gathered):
        console.print(Text(line), soft_wrap=True)
    console.print(_table(gathered))


def _lines(gathered: dict[str, Any]) -> list[str]:
    head, alpha = gathered["headlines"], gathered["alpha"]
    only = f" ({head['n_only_one']:,} with a score of one alone are left out)" if head["n_only_one"] else ""
    interval = f"{head['low']:+.1%} to {head['high']:+.1%}, p {_probability(head['p'])}"
    findings = {side: f"{head[f'n_{side}']:,} concepts ({head[f'n_{side}_findings']:,} findings)" for side in ("behind", "ahead")}
    return [
        f"{gathered['first']} -> {gathered['second']}: {head['n_items']:,} items that both have a score of{only}",
        f"mean score {head['mean_first']:.1%} -> {head['mean_second']:.1%}, change {head['difference']:+.1%} ({interval})",
        f"of {head['n_tested']:,} concepts tested, at q < {alpha:g}: {head['n_better']:,} better, {head['n_worse']:,} worse; "
        f"against comparable items behind: {findings['behind']}, ahead: {findings['ahead']}",
    ]


def _table(gathered: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "concept", "label", "n_eff", "change", "interval", "q", "against others", "interval", "q"):
        table.add_column(name, overflow="fold")
    for kind in ("behind", "ahead", "changed"):
        for row in gathered[kind]:
            mark = kind if kind == "changed" or row["status"] == kind else f"{kind}?"
            table.add_row(
                mark, f"#{row['concept']}", Text(_short(row)), f"{row['n_eff']:.0f}", *_change(row, ""), *_change(row, "relative")
            )
        if not gathered[kind]:
            table.add_row(kind, "none", *[""] * 8)
    return table


def _change(row: dict[str, Any], prefix: str) -> tuple[str, str, str]:
    start = f"{prefix}_" if prefix else ""
    value = row[prefix or "difference"]
    return f"{value:+.2f}", f"{row[f'{start}low']:+.2f} to {row[f'{start}high']:+.2f}", _probability(row[f"{start}q"])


def _short(row: dict[str, Any], width: int = 34) -> str:
    text = " ".join(str(row["label"]).split())
    text = "".join(char for char in text if char.isprintable())
    return text if len(text) <= width else text[: width - 1].rstrip(" ,") + "…"


def _probability(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"
