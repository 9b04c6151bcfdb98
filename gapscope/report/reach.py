"""What the variants reach of the gaps, as a section of the written report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gapscope.report.markdown import escape, number, spanned, table
from gapscope.report.told import Gaps, ReachReport, Spread, read_told
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
    """The section of the written report from what the reach stage wrote; ``names`` are the subjects'.

    Raises:
        InputError: what it wrote is damaged.
    """
    if reason := off_reason(directory):
        return [*TITLE, f"Not measured: {escape(reason)}.", ""]
    told = read_told(directory / "report.json", ReachReport, "reach")[0]
    if not told.n.variants:
        return [*TITLE, "Not measured: no variant was accepted.", ""]
    rows = []
    for kind, meaning in KINDS.items():
        row = getattr(told.reached, kind)
        random = [_spread(part) for part in (row.random_items, row.random_tokens, row.random_rewritten)]
        rows.append([meaning, *(f"{part:,}" for part in (row.n, row.variants, row.originals, row.new)), *random])
    columns = [
        "concepts that",
        "number",
        "variants fire on",
        "originals fire on",
        "variants alone",
        "random items",
        "random items, equal text",
        "random items of the benchmarks rewritten, equal text",
    ]
    variants, originals, suite = (number(rate, ".0f") for rate in (told.rate.variants, told.rate.originals, told.rate.suite))
    change = spanned(told.change.originals, told.change.originals_low, told.change.originals_high, "+.2f")
    return [
        *TITLE,
        f"On how many of the gap concepts {told.n.variants:,} variants fire, against their {told.n.originals:,} originals and random "
        "items: of the suite, as many and as much text, and as much text of the benchmarks that are rewritten "
        "(mean and interval over draws).",
        "",
        *table(columns, rows),
        f"Under-exercised concepts fire {variants} times per 1,000 tokens of variants, {originals} of originals, "
        f"{suite} of the suite; log2 of variants over originals {change}.",
        "",
        *(f"- {escape(names.get(slug, slug))}: {_held(row)}" for slug, row in told.model.items()),
        "",
    ]


def _spread(part: Spread) -> str:
    return spanned(part.mean, part.low, part.high, ".0f")


def _held(row: Gaps) -> str:
    if not row.n_concepts:
        return "no gap to look for."
    one = row.variants
    said = f"{row.n_concepts:,} gap concepts; on the variants {HELD[one.status]}"
    if one.status == "not_asked":
        return f"{said}."
    return f"{said} ({spanned(one.difference, one.low, one.high, '+.2f')}, n {one.n:,}, n_eff {one.n_eff:.0f})."
