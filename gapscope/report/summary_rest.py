"""The summary's part on what was checked and on the second half, from their metrics; what was not run is None."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import read_json

FILES = {
    "validity": "validity.json",
    "verifier": "sft.json",
    "generator": "grpo.json",
    "variants": "filter.json",
    "robustness": "evaluate.json",
}


def read_rest(metrics: Path, *, second_half: bool = True) -> dict[str, Any]:
    """Metrics of the later stages by the summary's names, None for one that has not been run.

    Where the second half is switched off, what an earlier run left of it is not this run's.

    Raises:
        InputError: a file is there and not usable.
    """
    paths = {name: metrics / file for name, file in FILES.items() if second_half or name == "validity"}
    absent = dict.fromkeys(FILES)
    return absent | {name: _metrics(path) for name, path in paths.items() if path.exists()}


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
    rows = [(f"trust {observer}", "; ".join(line)) for observer, line in _trust(found["validity"] or {}).items()]
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
            rows.append(
                (
                    f"robustness {slug}",
                    f"{subjects.get(slug, slug)}: {values['oa']:.1%} of originals right, {values['ara']:.1%} of their variants",
                )
            )
    return rows


def _trust(validity: dict[str, Any]) -> dict[str, list[str]]:
    """By observer: agreement of two halves of the families, and the same by chance and of random directions."""
    lines: dict[str, list[str]] = {}
    for observer, controls in validity.get("controls", {}).items():
        parts = []
        for name, title in (("concepts", "concepts"), ("random", "random directions")):
            values = controls.get(name, {})
            if "r" in values and "r_chance" in values:
                parts.append(
                    f"effects of {title} on two halves of the items: r {values['r']:.2f} (by chance up to {values['r_chance']:.2f})"
                )
        if parts:
            lines[observer] = parts
    return lines
