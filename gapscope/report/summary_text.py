"""The summary of a run as tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gapscope.report.inputs import Label
from gapscope.report.summary_rest import rest_lines
from gapscope.report.text import NO_LABEL, one_line, shorten, without_zero_sign

LOG_WIDTH = 120
SAE_QUALITY = {
    "fvu": ("FVU", ".3g"),
    "l0": ("L0", ".3g"),
    "dead_share": ("dead", ".1%"),
    "loss_recovered": ("loss recovered", ".1%"),
}
STATUS_MARK = {"gap": "gap", "strength": "strength", "typical": "not told from chance", "untested": "not tested"}


def print_summary(found: dict[str, Any], console: Console | None = None) -> None:
    """Print the summary to stdout. Text from models and benchmarks is never read as markup."""
    console = console or _console()
    _print(console, "Run", _overview(found))
    for observer, subjects in found["concepts"].items():
        for subject, concepts in subjects.items():
            if concepts is not None:
                _print(console, *_ends(found, observer, subject, concepts))
    if found["files"]:
        files = _table("", "")
        for name, path in found["files"].items():
            files.add_row(name, Text(path))
        _print(console, "Files", files)
    for line in found["absent"]:
        console.print(Text(f"absent  {one_line(line)}"), soft_wrap=True)


def _console() -> Console:
    """stdout; where it is no terminal, wide enough for a label and its figures on one line."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, LOG_WIDTH))


def _print(console: Console, title: str, table: Table) -> None:
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)
    console.print()


def _table(*columns: str) -> Table:
    table = Table(show_header=any(columns), box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _overview(found: dict[str, Any]) -> Table:
    table = _table("", "")
    suite = found["suite"]
    if suite is not None:
        kinds = ", ".join(suite["kinds"])
        table.add_row(
            "suite", Text(f"{suite['n_items']:,} items in {suite['n_benchmarks']} benchmark{'s' * (suite['n_benchmarks'] > 1)} ({kinds})")
        )
    for slug, observer in found["observers"].items():
        table.add_row(f"observer {slug}", Text("; ".join(_observer(observer))))
    for slug, subject in found["subjects"].items():
        table.add_row(f"subject {slug}", Text("; ".join(_subject(subject, found["confidence"]))))
    names = {slug: subject["name"] for slug, subject in found["subjects"].items()}
    for name, line in rest_lines(found["rest"], names) if found["rest"] else []:
        table.add_row(name, Text(line))
    return table


def _observer(observer: dict[str, Any]) -> list[str]:
    parts = [observer["name"]]
    found = _flat(observer["sae"] or {})
    quality = [f"{name} {found[key]:{form}}" for key, (name, form) in SAE_QUALITY.items() if key in found]
    if quality:
        parts.append("SAE on held-out text: " + ", ".join(quality))
    if "n_concepts" in observer:
        masked, unmasked = observer["missing_share"], observer["missing_share_unmasked"]
        also = "" if unmasked is None else f" ({unmasked:.1%} with special tokens read)"
        dead = f"{observer['n_missing']:,} of them, {observer['n_dead']:,} concepts are dead"
        missing = "missing share undefined" if masked is None else f"the suite misses {masked:.1%}{also}: {dead}"
        parts.append(f"{observer['n_concepts']:,} concepts, {missing}")
    return parts


def _flat(metrics: dict[str, Any]) -> dict[str, float]:
    """Numbers by the last part of their key; the first of a name stays."""
    flat: dict[str, float] = {}
    for key, value in metrics.items():
        inner = _flat(value) if isinstance(value, dict) else {key: value}
        flat = {**inner, **flat}
    return flat


def _subject(subject: dict[str, Any], confidence: float) -> list[str]:
    parts = [subject["name"]]
    if subject.get("accuracy") is not None:
        ends = [subject[name] for name in ("low", "high")]
        interval = "no interval" if None in ends else f"{confidence:.0%} interval {ends[0]:.1%} to {ends[1]:.1%}"
        parts.append(f"accuracy {subject['accuracy']:.1%} ({interval}), mean over benchmarks; a blind guess {subject['chance']:.1%}")
    if "n" in subject:
        unscored = f", {subject['n_unscored']:,} unscored" if subject["n_unscored"] else ""
        parts.append(f"{subject['n']:,} items scored{unscored}")
    return parts


def _ends(found: dict[str, Any], observer: str, subject: str, concepts: dict[str, Any]) -> tuple[str, Table]:
    """A title, and the worst and the best concepts."""
    basis = "adjusted score" if concepts["calibrated"] else "raw chi_model, uncalibrated"
    told = f", gaps: {concepts['n_gap']:,}, strengths: {concepts['n_strength']:,}" if concepts["calibrated"] else ""
    title = f"Concepts of {found['subjects'][subject]['name']}, seen by {observer}: {concepts['n_ranked']:,} ranked{told} ({basis})"
    table = _table("", "concept", "label", "value", f"{found['confidence']:.0%} interval", "q", "n_eff", "status")
    for side in ("worst", "best"):
        for concept in concepts[side]:
            low, high = concept["low"], concept["high"]
            form = "+.2f" if concepts["calibrated"] else ".2f"
            value, *ends = ("" if number is None else without_zero_sign(format(number, form)) for number in (concept["value"], low, high))
            interval = " to ".join(ends) if all(ends) else ""
            more = f" (+{concept['n_alike'] - 1} alike)" if concept["n_alike"] > 1 else ""
            known = concept["label"] and Label(concept["label"], "", concept["label_score"]).shown
            label = Text(shorten(known or NO_LABEL, 48))
            table.add_row(
                side,
                f"#{concept['concept']}",
                label,
                value,
                interval,
                "" if concept["q"] is None else f"{concept['q']:.2g}",
                f"{concept['n_eff']:,.0f}",
                STATUS_MARK[concept["status"]] + more,
            )
        if not concepts[side]:
            table.add_row(side, "none", "", "", "", "", "", "no concept qualifies")
    return title, table
