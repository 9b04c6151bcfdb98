"""The summary's part on what was checked and on the second half, from their metrics; what was not run is None."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapscope.artifacts import ROBUSTNESS
from gapscope.errors import InputError
from gapscope.files import read_json

FILES = {
    "validity": "validity.json",
    "verifier": "sft.json",
    "generator": "grpo.json",
    "variants": "filter.json",
    "robustness": "evaluate.json",
    "reach": "reach.json",
}


def read_rest(metrics: Path, robustness: Path, *, second_half: bool = True) -> dict[str, Any]:
    """Metrics of the later stages by the summary's names, None for one that has not been run.

    ``loss`` holds, by subject, the row over all variants of the table in ``robustness``, which alone has intervals.
    Where the second half is switched off, what an earlier run left of it is not this run's.

    Raises:
        InputError: a file is there and not usable.
    """
    paths = {name: metrics / file for name, file in FILES.items() if second_half or name == "validity"}
    absent = dict.fromkeys(FILES)
    table = robustness / "robustness.parquet"
    rows = ROBUSTNESS.read(table).to_pylist() if second_half and table.exists() else []
    loss = {row["subject"]: row for row in rows if row["subset"] == "all"}
    return absent | {name: _metrics(path) for name, path in paths.items() if path.exists()} | {"loss": loss}


def _metrics(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise InputError("holds no metrics", file=path, fix="run its stage again")
    return found


def rest_lines(found: dict[str, Any], subjects: dict[str, str]) -> list[tuple[str, str]]:
    """A name and a line for each part that has been run and was not switched off.

    Args:
        found: what :func:`read_rest` gave.
        subjects: names of subjects by slug.
    """
    rows = [(f"trust {observer}", "; ".join(line)) for observer, line in trust_lines(found["validity"] or {}).items()]
    heldout = (found["verifier"] or {}).get("heldout")
    if heldout:
        balanced = f"{heldout['balanced_accuracy']:.2f} (a bag of words {heldout['bag_of_words']['balanced_accuracy']:.2f})"
        labels = heldout.get("label_correct", {}).get("balanced_accuracy")
        told = "" if labels is None else f"; of right labels {labels:.2f}"
        rows.append(("verifier", f"balanced accuracy {balanced} on {heldout['n']:,} held-out variants{told}"))
    variants = found["variants"] or {}
    if variants.get("n_candidates"):
        fewest = min(variants["accepted"].values())
        rows.append(
            ("variants", f"{variants['n_accepted']:,} of {variants['n_candidates']:,} candidates accepted, of each type {fewest} or more")
        )
    for slug, values in (found["robustness"] or {}).get("subjects", {}).items():
        if "ara" in values:
            told = f"{subjects.get(slug, slug)}: {values['oa']:.1%} of originals right, {values['ara']:.1%} of their variants"
            rows.append((f"robustness {slug}", told + loss_told(found["loss"].get(slug))))
    if line := reach_line(found["reach"] or {}):
        rows.append(("reach", line))
    return rows


def reach_line(found: dict[str, Any]) -> str | None:
    """What the variants reach of the gaps, from the metrics of reach; None where it was off or there was nothing to reach."""
    row = found.get("reached", {}).get("coverage", {})
    if not row.get("n") or not found.get("n", {}).get("variants"):
        return None
    random = row.get("random_tokens", {})
    against = f", as much text of random items on {random['mean']:.0f} ({random['low']:.0f} to {random['high']:.0f})" if random else ""
    told = f"variants fire on {row['variants']:,} of {row['n']:,} concepts that the suite under-exercises"
    return f"{told}; their originals on {row['originals']:,}{against}"


def loss_told(row: dict[str, Any] | None) -> str:
    """What follows the two accuracies: the loss from originals to variants, its interval and support; nothing without a row."""
    if row is None or row["rla_low"] is None:
        return ""
    low, high = (100 * row[name] for name in ("rla_low", "rla_high"))
    verdict = "a fall" if low > 0 else "a rise" if high < 0 else "not told from none"
    support = f"{row['n_variants']:,} variants of {row['n_families']:,} families"
    return f"; loss {100 * row['rla']:+.1f} points ({low:+.1f} to {high:+.1f}), {verdict}, on {support}"


def trust_lines(validity: dict[str, Any]) -> dict[str, list[str]]:
    """By observer: agreement of two halves of the families, of concepts and of random directions, each against shuffled scores."""
    lines: dict[str, list[str]] = {}
    for observer, controls in validity.get("controls", {}).items():
        parts = []
        for name, title in (("concepts", "concepts"), ("random", "random directions")):
            values = controls.get(name, {})
            if "r" in values and "r_chance" in values:
                told = "told from chance" if values["r"] > values["r_chance"] else "not told from chance"
                reach = f"shuffled scores reach {values['r_chance']:.2f}"
                parts.append(f"effects of {title} on two halves of the items: r {values['r']:.2f}, {told} ({reach})")
        if parts:
            lines[observer] = parts
    return lines
