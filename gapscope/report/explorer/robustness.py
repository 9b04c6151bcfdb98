"""The variants of a run: each beside its original, who answered what, the measures by type, and why candidates were rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapscope.artifacts import ANSWERS, COMPARISONS, ROBUSTNESS
from gapscope.files import read_json, read_jsonl
from gapscope.items import Item, read_items
from gapscope.report.explorer.blocks import Block
from gapscope.report.text import shorten
from gapscope.variants.off import off_reason

MAX_VARIANTS, MAX_REJECTED = 3_000, 1_000
"""Variants and rejected candidates held in the page, the first by id; the counts are of all."""

NOT_RUN = "This run has no variants: the stages generate, filter and evaluate have not been run."


def robustness(variants: Path | None, evaluated: Path | None, blocks: dict[str, Block]) -> dict[str, Any]:
    """Measures and counts for the page; variants, originals and answers become the block ``variants``.

    Where there is nothing to show, ``absent`` says why.
    """
    if variants is None or evaluated is None:
        return {"absent": NOT_RUN}
    if reason := off_reason(evaluated):
        return {"absent": reason}
    quality, report = read_json(evaluated / "quality.json"), read_json(variants / "report.json")
    rows = ROBUSTNESS.read(evaluated / "robustness.parquet").to_pylist()
    rejected = _rejected(variants / "rejected.jsonl")
    items = _items(evaluated / "presented.jsonl")
    shown = _pairs(items, evaluated / "answers.parquet")
    block = Block()
    block.value("pairs", shown[:MAX_VARIANTS])
    block.value("rejected", rejected[:MAX_REJECTED])
    blocks["variants"] = block
    return {
        "rows": rows,
        "comparisons": COMPARISONS.read(evaluated / "comparisons.parquet").to_pylist(),
        "report": {name: report.get(name) for name in ("n_candidates", "n_accepted", "pass_rate", "reasons", "types") if name in report},
        "quality": quality.get("subsets", {}).get("all", {}),
        "not_asked": quality.get("not_asked", {}),
        "n_pairs": len(shown),
        "n_rejected": len(rejected),
    }


def _items(file: Path) -> list[Item]:
    """The presented items; none where nothing was accepted (an empty file)."""
    return read_items(file) if file.exists() and file.stat().st_size else []


def _pairs(items: list[Item], answers: Path) -> list[dict[str, Any]]:
    """Every variant with its original and the subjects' answers to both."""
    given: dict[str, dict[str, Any]] = {}
    original_of: dict[str, str] = {}
    for row in ANSWERS.read(answers).to_pylist():
        given.setdefault(row["item_id"], {})[row["subject"]] = [row["prediction"], row["score"]]
        if row["type"] == "original":
            original_of[row["family"]] = row["item_id"]
    known = {item.id: item for item in items}
    pairs = []
    for item in items:
        if not item.meta.get("type"):
            continue
        original = known.get(str(item.meta.get("original")) if item.meta.get("original") else original_of.get(item.family, ""))
        if original is not None:
            pairs.append(
                {
                    "type": item.meta["type"],
                    "family": item.family,
                    "benchmark": original.benchmark,
                    "verdict": item.meta.get("verdict"),
                    "original": _shown(original, given),
                    "variant": _shown(item, given),
                }
            )
    return pairs


def _shown(item: Item, given: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"id": item.id, "text": item.text, "choices": list(item.choices), "gold": item.answer, "answers": given.get(item.id, {})}


def _rejected(file: Path) -> list[dict[str, Any]]:
    if not file.exists() or not file.stat().st_size:
        return []
    kept = ("id", "type", "reason", "explanation", "text", "choices", "answer", "verdict", "completion")
    found = []
    for _line, row in read_jsonl(file):
        entry = {name: row.get(name) for name in kept}
        entry["completion"] = shorten(str(entry["completion"] or ""), 400) if entry["text"] is None else None
        found.append(entry)
    return found
