"""What the variants reach of the gaps, as a section of the written report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapscope.files import read_json
from gapscope.report.markdown import escape, number, spanned, table
from gapscope.variants.off import off_reason

TITLE = ["## Reach of the variants", ""]
KINDS = {"under": "the suite under-exercises", "unexercised": "no item exercises", "model": "a subject does worse on"}
HELD = {
    "holds": "the gap is there",
    "reversed": "the subject does better there",
    "undecided": "not told from the rest",
    "unsupported": "too few of the variants carry them",
    "not_asked": "not asked: its results were imported",
}


def reach_section(directory: Path, names: Mapping[str, str]) -> list[str]:
    """The section of the written report from what the reach stage wrote; ``names`` are the subjects'."""
    if reason := off_reason(directory):
        return [*TITLE, f"Not measured: {escape(reason)}.", ""]
    told = read_json(directory / "report.json")
    if not told["n"]["variants"]:
        return [*TITLE, "Not measured: no variant was accepted.", ""]
    rows = []
    for kind, meaning in KINDS.items():
        row = told["reached"][kind]
        random = [spanned(part["mean"], part["low"], part["high"], ".0f") for part in (row["random_items"], row["random_tokens"])]
        rows.append([meaning, *(f"{row[name]:,}" for name in ("n", "variants", "originals", "new")), *random])
    columns = [
        "concepts that",
        "number",
        "variants fire on",
        "originals fire on",
        "variants alone",
        "random items",
        "random items, equal text",
    ]
    shown = {name: number(rate, ".0f") for name, rate in told["rate"].items()}
    change = spanned(told["change"]["originals"], told["change"]["originals_low"], told["change"]["originals_high"], "+.2f")
    return [
        *TITLE,
        f"On how many of the gap concepts {told['n']['variants']:,} variants fire, against their {told['n']['originals']:,} originals and "
        "random items of the suite (as many, and as much text; mean and interval over draws).",
        "",
        *table(columns, rows),
        f"Under-exercised concepts fire {shown['variants']} times per 1,000 tokens of variants, {shown['originals']} of originals, "
        f"{shown['suite']} of the suite; log2 of variants over originals {change}.",
        "",
        *(f"- {escape(names.get(slug, slug))}: {_held(row)}" for slug, row in told["model"].items()),
        "",
    ]


def _held(row: Mapping[str, Any]) -> str:
    if not row["n_concepts"]:
        return "no gap to look for."
    one = row["variants"]
    said = f"{row['n_concepts']:,} gap concepts; on the variants {HELD[one['status']]}"
    if one["status"] == "not_asked":
        return f"{said}."
    return f"{said} ({spanned(one['difference'], one['low'], one['high'], '+.2f')}, n {one['n']:,}, n_eff {one['n_eff']:.0f})."
