"""The summary's part on what was checked and on the second half, from their metrics; what was not run is None."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gapscope.artifacts import ROBUSTNESS
from gapscope.report.text import without_zero_sign
from gapscope.report.told import Filtered, Heldout, Reach, Robustness, Told, Validity, Verifier, read_told

FILES: dict[str, tuple[str, type[Told]]] = {
    "validity": ("validity", Validity),
    "verifier": ("sft", Verifier),
    "generator": ("grpo", Told),
    "variants": ("filter", Filtered),
    "robustness": ("evaluate", Robustness),
    "reach": ("reach", Reach),
}
"""By the summary's name: the stage, whose metrics file bears its name, and what is told of it."""


def read_rest(metrics: Path, robustness: Path, *, second_half: bool = True) -> dict[str, Any]:
    """Metrics of the later stages by the summary's names, None for one that has not been run.

    ``loss`` holds, by subject, the row over all variants of the table in ``robustness``, which alone has intervals.
    Where the second half is switched off, what an earlier run left of it is not this run's.

    Raises:
        InputError: a file is there and not usable.
    """
    absent: dict[str, Any] = dict.fromkeys(FILES)
    found: dict[str, Any] = {}
    for name, (stage, kind) in FILES.items():
        if (second_half or name == "validity") and (file := metrics / f"{stage}.json").exists():
            found[name] = read_told(file, kind, stage)[1]
    table = robustness / "robustness.parquet"
    rows = ROBUSTNESS.read(table).to_pylist() if second_half and table.exists() else []
    loss = {row["subject"]: row for row in rows if row["subset"] == "all"}
    return absent | found | {"loss": loss}


def rest_lines(found: dict[str, Any], subjects: dict[str, str]) -> list[tuple[str, str]]:
    """A name and a line for each part that has been run and was not switched off.

    Args:
        found: what :func:`read_rest` gave.
        subjects: names of subjects by slug.
    """
    trust = trust_lines(Validity.model_validate(found["validity"] or {}))
    rows = [(f"trust {observer}", "; ".join(parts)) for observer, parts in trust.items()]
    if line := _verifier(Verifier.model_validate(found["verifier"] or {}).heldout):
        rows.append(("verifier", line))
    variants = Filtered.model_validate(found["variants"] or {})
    if variants.n_candidates:
        fewest = f", of each type {min(variants.accepted.values())} or more" if variants.accepted else ""
        rows.append(("variants", f"{variants.n_accepted:,} of {variants.n_candidates:,} candidates accepted{fewest}"))
    for slug, values in Robustness.model_validate(found["robustness"] or {}).subjects.items():
        if values.ara is not None:
            right = "none of the originals scored" if values.oa is None else f"{values.oa:.1%} of originals right"
            told = f"{subjects.get(slug, slug)}: {right}, {values.ara:.1%} of their variants{' right' * (values.oa is None)}"
            rows.append((f"robustness {slug}", told + loss_told(found["loss"].get(slug))))
    if line := reach_line(Reach.model_validate(found["reach"] or {})):
        rows.append(("reach", line))
    return rows


def _verifier(heldout: Heldout) -> str | None:
    """How well the verifier judges held-out variants; None where that is undefined or it was off."""
    if heldout.balanced_accuracy is None:
        return None
    words, labels = heldout.bag_of_words.balanced_accuracy, heldout.label_correct.balanced_accuracy
    beside = "" if words is None else f" (a bag of words {words:.2f})"
    also = "" if labels is None else f"; of right labels {labels:.2f}"
    return f"balanced accuracy {heldout.balanced_accuracy:.2f}{beside} on {heldout.n:,} held-out variants{also}"


def reach_line(found: Reach) -> str | None:
    """What the variants reach of the gaps, from the metrics of reach; None where it was off or there was nothing to reach."""
    row = found.reached.get("under")
    if row is None or not row.n or not found.n.variants:
        return None
    told = f"variants fire on {row.variants:,} of {row.n:,} concepts that the suite under-exercises; their originals on {row.originals:,}"
    random = row.random_rewritten
    if random.mean is None:
        return told
    span = "" if random.low is None or random.high is None else f" ({random.low:.0f} to {random.high:.0f})"
    return f"{told}, as much text of random items of the same benchmarks on {random.mean:.0f}{span}"


def loss_told(row: dict[str, Any] | None) -> str:
    """What follows the two accuracies: the loss from originals to variants, its interval and support; nothing without a row."""
    if row is None or row["rla_low"] is None:
        return ""
    loss, low, high = (without_zero_sign(f"{100 * row[name]:+.1f}") for name in ("rla", "rla_low", "rla_high"))
    verdict = fall_or_rise(row["rla_low"], row["rla_high"])
    support = f"{row['n_variants']:,} variants of {row['n_families']:,} families"
    return f"; loss {loss} points ({low} to {high}), {verdict}, on {support}"


def fall_or_rise(low: float | None, high: float | None) -> str:
    """What the interval of a loss from originals to variants says."""
    if low is None or high is None:
        return "no interval"
    return "a fall" if low > 0 else "a rise" if high < 0 else "not told from none"


def two_digits(value: float) -> str:
    """Two digits after the point."""
    return without_zero_sign(f"{value:.2f}")


def trust_lines(validity: Validity, form: Callable[[float], str] = two_digits) -> dict[str, list[str]]:
    """By observer: agreement of two halves of the families, of concepts and of random directions, each against shuffled scores."""
    lines: dict[str, list[str]] = {}
    for observer, controls in validity.controls.items():
        parts = []
        for title, values in (("concepts", controls.concepts), ("random directions", controls.random)):
            if values.r is not None and values.r_chance is not None:
                told = "told from chance" if values.r > values.r_chance else "not told from chance"
                reach = f"shuffled scores reach {form(values.r_chance)}"
                parts.append(f"effects of {title} on two halves of the items: r {form(values.r)}, {told} ({reach})")
        if parts:
            lines[observer] = parts
    return lines
