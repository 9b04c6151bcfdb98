"""The written report: what a person pastes into the appendix of a paper or a model card, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import CONTEXTS, ROBUSTNESS, SUITE
from gapscope.competency.activations import read_rows
from gapscope.files import read_json, write_bytes
from gapscope.report.accuracy import Suite, accuracy_by_benchmark, read_suite
from gapscope.report.explorer.sources import About, ExplorerPaths
from gapscope.report.extremes import Extreme, rank_extremes
from gapscope.report.inputs import Coverage, found_observers, found_subjects, read_coverage, read_labels, read_performance
from gapscope.report.summary_rest import fall_or_rise, trust_lines
from gapscope.report.text import NO_LABEL, one_line, shorten, without_zero_sign
from gapscope.report.told import Validity, read_told
from gapscope.variants.off import off_reason

FINDINGS = 10
"""Findings told with an example."""

EXAMPLE_COLUMNS = 160

MADE = """## How each number was made

- **Concept**: one latent of the observer's SAE. **Saliency**: its mean activation over an item's unmasked tokens.
- **Coverage** (chi_bench): a concept's mean saliency in a benchmark over the mean of all concepts; 0 never fires (missing).
- **Adjusted**: the saliency-weighted mean of the chance-corrected score minus that of items of the same benchmark and about the
  same length; 0 is as expected. **n_eff**: how many equally weighted items a concept's items are worth.
- **Typical**: tested, and not told from chance. Intervals are of single concepts, not corrected for choosing the extremes.
- **p** by permutation within those strata over families, **q** by Benjamini and Hochberg over the supported concepts. A **gap** is
  q < alpha and adjusted < 0, a **strength** the same above 0. Concepts that fire on the same items are one finding.
- **Label**: a guess at what a concept is about; "(?)" marks one whose words do not pick out held-out contexts.
"""

SHORTCUTS = {
    "longest": "Taking the longest choice",
    "shortest": "Taking the shortest choice",
    "overlap": "Taking the choice that shares most words with the question",
}
ROBUSTNESS_TOLD = """
Variants were accepted by rules and by a verifier, which is a model: no person has read them.
OA: accuracy on originals; ARA: on their variants; RLA: OA less ARA; CRA: pairs of an original and a variant that are both right.
{:.0%} intervals by bootstrap over families, none where every draw gives the same; they are not corrected for looking at several types."""

OF_OBSERVER = {
    "missing_by_benchmark": "Share of concepts that no item exercises",
    "coverage_distribution": "Coverage of the concepts",
    "concept_overlap": "Overlap of benchmarks",
}
OF_SUBJECT = {
    "concepts": "Worst and best concepts",
    "performance_distribution": "Performance on the concepts",
    "coverage_performance": "Coverage against performance",
}


def escape(text: str) -> str:
    """Text of others as Markdown shows it: on one line, with nothing in it that Markdown or HTML would act on."""
    plain = re.sub(r"([\\`*_\[\]#|~>$])", r"\\\1", one_line(text).replace("&", "&amp;").replace("<", "&lt;"))
    return re.sub(r"(?i)\b(https?|ftp|www)([:.])", r"\1&#8203;\2", plain)


def table(columns: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table; the cells are Markdown already."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def number(value: float | None, form: str = ".2f") -> str:
    """A number, or a dash where it is undefined."""
    return "—" if value is None or not np.isfinite(value) else without_zero_sign(format(value, form)).replace("-", "−")


def spanned(value: float | None, low: float | None, high: float | None, form: str) -> str:
    """A number with its interval."""
    return number(value, form) if low is None or high is None else f"{number(value, form)} ({number(low, form)} to {number(high, form)})"


def write_markdown(file: Path, paths: ExplorerPaths, about: About, more: Sequence[str] = ()) -> None:
    """Write the report of a run; the lines of further sections come after those on robustness.

    Raises:
        InputError: an artifact is absent, damaged or does not belong to the others.
    """
    artifacts = paths.artifacts
    observers = dict(sorted(about.observers.items())) or {slug: slug for slug in found_observers(artifacts)}
    suite = read_suite(artifacts.items / "items.jsonl", read_rows(artifacts.activations / next(iter(observers))))
    subjects = sorted({slug for observer in observers for slug in about.models or found_subjects(artifacts, observer)})
    lines: list[str] = ["# What this run found", ""]
    several = len(suite.rows.benchmarks) > 1
    lines += [f"{len(suite.items):,} items in {len(suite.rows.benchmarks)} benchmark{'s' * several}; seed {about.seed}.", ""]
    lines += _accuracy(paths, about, subjects, suite)
    for slug, name in observers.items():
        coverage = read_coverage(artifacts.coverage / slug / "coverage.parquet")
        lines += _coverage(name, coverage, suite)
        for subject in sorted(about.models) or found_subjects(artifacts, slug):
            lines += _findings(paths, about, slug, subject, coverage)
    lines += _trust(paths.validity, observers)
    lines += [*_robustness(paths, about), *more]
    lines += _figures(observers, {slug: about.models.get(slug, slug) for slug in subjects}, several)
    write_bytes(file, ("\n".join(lines) + MADE).encode())


def _accuracy(paths: ExplorerPaths, about: About, subjects: list[str], suite: Suite) -> list[str]:
    rows = []
    for slug in subjects:
        file = paths.artifacts.scores / slug / "scores.parquet"
        whole: dict[str, Any] = accuracy_by_benchmark(slug, file, suite, about.confidence)[0]
        shown = spanned(whole["accuracy"], whole["low"], whole["high"], ".1%")
        counts = (f"{whole[name]:,}" for name in ("n", "n_unscored"))
        rows.append([escape(about.models.get(slug, slug)), shown, number(whole["chance"], ".1%"), *counts])
    title = f"accuracy, mean over benchmarks ({about.confidence:.0%} interval)"
    return ["## Subjects", "", *table(["subject", title, "blind guess", "items scored", "unscored"], rows)]


def _coverage(name: str, coverage: Coverage, suite: Suite) -> list[str]:
    rows = []
    for code, benchmark in enumerate(suite.rows.benchmarks):
        chi, mine = coverage.chi[benchmark], suite.rows.codes == code
        missing = int((chi == 0).sum())
        tokens = int(suite.rows.n_tokens[mine].sum())
        rows.append([escape(benchmark), f"{int(mine.sum()):,}", f"{tokens:,}", f"{missing:,}", number(missing / len(chi), ".1%")])
    whole, dead = int((coverage.chi[SUITE] == 0).sum()), int(coverage.dead.sum())
    return [
        f"## Coverage, read by {escape(name)}",
        "",
        f"No item of the suite exercises {whole:,} of {len(coverage.concepts):,} concepts; {dead:,} of the dictionary are dead: they "
        "fire nowhere, in the reference corpus either. Dead ones count as missing below. A benchmark with less text misses more for that "
        "alone.",
        "",
        *table(["benchmark", "items", "tokens", "concepts missing", "share"], rows),
    ]


def _findings(paths: ExplorerPaths, about: About, observer: str, subject: str, coverage: Coverage) -> list[str]:
    artifacts = paths.artifacts
    performance = read_performance(artifacts.performance / observer / f"{subject}.parquet")
    labels = read_labels(artifacts.clusters / f"{observer}.parquet", subject)
    structural = set(coverage.concepts[coverage.structural].tolist())
    ranking = rank_extremes(performance, labels, structural, len(coverage.concepts), about.min_n_eff, FINDINGS)
    both = [*ranking.worst, *ranking.best]
    told = [extreme for extreme in both if extreme.status in ("gap", "strength")]
    chosen = sorted(told or both, key=lambda extreme: (extreme.q if extreme.q is not None else 1.0, -abs(extreme.value)))[:FINDINGS]
    shown = "adjusted" if ranking.calibrated else "chi_model"
    counts = f"{ranking.n_ranked:,} concepts ranked, {ranking.n_gap:,} gaps, {ranking.n_strength:,} strengths"
    if not ranking.calibrated:
        said = "Nothing is calibrated: the ends of the raw chi_model ranking, of which none is claimed."
    elif told:
        said = f"The strongest findings (q < {about.alpha:g}), one concept of each:"
    else:
        said = f"No concept is told from chance at q < {about.alpha:g}. The surest candidates, of which none is claimed:"
    examples = _examples(artifacts.activations / observer / "contexts.parquet", [extreme.concept for extreme in chosen])
    rows = [_row(extreme, examples) for extreme in chosen]
    return [
        f"## Concepts of {escape(about.models.get(subject, subject))}, read by {escape(about.observers.get(observer, observer))}",
        "",
        f"{counts}. {said}",
        "",
        *table(["concept", "label", f"{shown} ({about.confidence:.0%} interval)", "q", "items", "n_eff", "status", "an example"], rows),
    ]


def _row(extreme: Extreme, examples: dict[int, str]) -> list[str]:
    label = escape(shorten(extreme.label.shown, 60)) if extreme.label else NO_LABEL
    alike = f" ({extreme.n_alike} concepts)" if extreme.n_alike > 1 else ""
    value = spanned(extreme.value, extreme.low, extreme.high, "+.2f")
    q, example = number(extreme.q, ".2g"), examples.get(extreme.concept, "—")
    return [f"{extreme.concept}", label, value, q, f"{extreme.n:,}", f"{extreme.n_eff:,.0f}", f"{extreme.status}{alike}", example]


def _examples(file: Path, concepts: list[int]) -> dict[int, str]:
    """The strongest context of each concept, its peak in bold."""
    contexts = CONTEXTS.read(file)
    wanted = contexts.filter(pc.and_(pc.is_in(contexts["concept"], pa.array(concepts, pa.int64())), pc.equal(contexts["group"], "top")))
    found: dict[int, str] = {}
    for row in wanted.filter(pc.equal(wanted["rank"], 0)).to_pylist():
        peak = int(np.argmax(row["activations"])) if row["activations"] else 0
        before, after = "".join(row["tokens"][:peak]), "".join(row["tokens"][peak + 1 :])
        half = EXAMPLE_COLUMNS // 2
        peak_text = escape(row["tokens"][peak]) if row["tokens"] else ""
        opening = " " if before and (before[-1].isspace() or row["tokens"][peak][:1].isspace()) else ""
        closing = " " if after and (after[0].isspace() or row["tokens"][peak][-1:].isspace()) else ""
        bold = f"{opening}**{peak_text}**{closing}" if peak_text else opening or closing
        found[row["concept"]] = f"{escape(before[-half:])}{bold}{escape(after[:half])}"
    return found


def _robustness(paths: ExplorerPaths, about: About) -> list[str]:
    if paths.robustness is None:
        return []
    if reason := off_reason(paths.robustness):
        return ["## Robustness", "", f"Not measured: {escape(reason)}.", ""]
    rows = ROBUSTNESS.read(paths.robustness / "robustness.parquet").to_pylist()
    if not rows:
        return ["## Robustness", "", "Not measured: no variant was accepted.", ""]
    cells = []
    for row in rows:
        if not row["n_variants"]:
            continue
        oa, ara, rla, cra = (
            spanned(row[name], row[f"{name}_low"], row[f"{name}_high"], ".1%") for name in ("oa", "ara", "rla", "cra_pair")
        )
        guesses = (number(row[name], ".1%") for name in ("chance_original", "chance_variant"))
        who = [escape(about.models.get(row["subject"], row["subject"])), escape(row["subset"])]
        cells.append([*who, f"{row['n_families']:,}", f"{row['n_variants']:,}", oa, ara, *guesses, rla, cra])
    columns = ["subject", "type", "families", "variants", "originals (OA)", "variants (ARA)"]
    columns += ["blind guess, originals", "blind guess, variants", "loss (RLA)", "both right (CRA)"]
    verdicts = [_verdict(row, about) for row in rows if row["subset"] == "all" and row["rla"] is not None]
    shortcuts = _shortcuts(paths.robustness / "quality.json")
    return ["## Robustness", "", *verdicts, ROBUSTNESS_TOLD.format(about.confidence), "", *table(columns, cells), *shortcuts]


def _verdict(row: dict[str, Any], about: About) -> str:
    """Whether a subject's loss over all variants is told from none."""
    told = fall_or_rise(row["rla_low"], row["rla_high"])
    loss, low, high = (None if row[name] is None else 100 * row[name] for name in ("rla", "rla_low", "rla_high"))
    support = f"{row['n_variants']:,} variants of {row['n_families']:,} families"
    who = escape(about.models.get(row["subject"], row["subject"]))
    return f"- {who}: loss {spanned(loss, low, high, '+.1f')} points on {support}: {told}."


def _shortcuts(quality: Path) -> list[str]:
    """The baselines that beat a blind guess on the variants without reading: what they score, a subject may have scored by them."""
    found = read_json(quality).get("subsets", {}).get("all", {}).get("shortcuts", {})
    lines = []
    for name, row in sorted(found.items()):
        if row["n"] and row["low"] > row["chance"]:
            shown = spanned(row["accuracy"], row["low"], row["high"], ".1%")
            name, guess = SHORTCUTS.get(name, name), number(row["chance"], ".1%")
            lines.append(f"- {name} is right in {shown} of {row['n']:,} variants, a blind guess in {guess}.")
    return ["The variants give something away by themselves:", "", *lines, ""] if lines else []


def _trust(validity: Path | None, observers: Mapping[str, str]) -> list[str]:
    """Whether effects on one half of the items come again on the other, for concepts and for random directions."""
    found = read_told(validity, Validity, "validity")[0] if validity is not None and validity.exists() else Validity()
    lines = [f"- {escape(observers.get(slug, slug))}: {'; '.join(parts)}." for slug, parts in trust_lines(found, number).items()]
    return ["## How far this can be trusted", "", *lines, "", "The explorer's validity view holds the other checks.", ""] if lines else []


def _figures(observers: Mapping[str, str], subjects: Mapping[str, str], several: bool) -> list[str]:
    """The figures with their titles; one benchmark overlaps with none."""
    shown = [("accuracy_by_benchmark", "Accuracy by benchmark")]
    for slug, name in observers.items():
        shown += [
            (f"{slug}-{figure}", f"{title}, read by {name}")
            for figure, title in OF_OBSERVER.items()
            if several or figure != "concept_overlap"
        ]
        shown += [
            (f"{slug}-{subject}-{figure}", f"{title} of {whose}, read by {name}")
            for subject, whose in subjects.items()
            for figure, title in OF_SUBJECT.items()
        ]
    return ["## Figures", "", *(f"![{escape(title)}](figures/{name}.svg)\n" for name, title in shown), ""]
