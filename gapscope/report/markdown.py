"""The written report: what a person pastes into the appendix of a paper or a model card, in Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapscope.artifacts import CONTEXTS, ROBUSTNESS, SUITE
from gapscope.competency.activations import read_rows
from gapscope.files import write_bytes
from gapscope.report.accuracy import Suite, accuracy_by_benchmark, read_suite
from gapscope.report.explorer.sources import About, ExplorerPaths
from gapscope.report.extremes import Extreme, rank_extremes
from gapscope.report.inputs import Coverage, found_observers, found_subjects, read_coverage, read_labels, read_performance
from gapscope.report.text import NO_LABEL, one_line, shorten
from gapscope.variants.off import off_reason

FINDINGS = 10
"""Findings told with an example."""

EXAMPLE_COLUMNS = 160

MADE = """## How each number was made

- **Concept**: one latent of the observer's SAE. **Saliency**: its mean activation over an item's unmasked tokens.
- **Coverage** (chi_bench): a concept's mean saliency in a benchmark over the mean of all concepts; 0 never fires (missing).
- **Adjusted**: the saliency-weighted mean of the chance-corrected score minus that of items of the same benchmark and about the
  same length; 0 is as expected. **n_eff**: how many equally weighted items a concept's items are worth.
- **p** by permutation within those strata over families, **q** by Benjamini and Hochberg over the supported concepts. A **gap** is
  q < alpha and adjusted < 0, a **strength** the same above 0. Concepts that fire on the same items are one finding.
- **Label**: a guess at what a concept is about; "(?)" marks one whose words do not pick out held-out contexts.
"""


def escape(text: str) -> str:
    """Text of others as Markdown shows it: on one line, with nothing in it that Markdown or HTML would act on."""
    plain = re.sub(r"([\\`*_\[\]#|~>])", r"\\\1", one_line(text).replace("&", "&amp;").replace("<", "&lt;"))
    return re.sub(r"(?i)\b(https?|ftp|www)([:.])", r"\1&#8203;\2", plain)


def table(columns: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table; the cells are Markdown already."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def number(value: float | None, form: str = ".2f") -> str:
    """A number, or a dash where it is undefined."""
    return "—" if value is None or not np.isfinite(value) else format(value, form).replace("-", "−")


def spanned(value: float | None, low: float | None, high: float | None, form: str) -> str:
    """A number with its interval."""
    return number(value, form) if low is None or high is None else f"{number(value, form)} ({number(low, form)} to {number(high, form)})"


def write_markdown(file: Path, paths: ExplorerPaths, about: About) -> None:
    """Write the report of a run.

    Raises:
        InputError: an artifact is absent, damaged or does not belong to the others.
    """
    artifacts = paths.artifacts
    observers = dict(sorted(about.observers.items())) or {slug: slug for slug in found_observers(artifacts)}
    suite = read_suite(artifacts.items / "items.jsonl", read_rows(artifacts.activations / next(iter(observers))))
    subjects = sorted({slug for observer in observers for slug in about.models or found_subjects(artifacts, observer)})
    lines = ["# What this run found", ""]
    lines += [f"{len(suite.items):,} items in {len(suite.rows.benchmarks)} benchmarks; seed {about.seed}.", ""]
    lines += _accuracy(paths, about, subjects, suite)
    for slug, name in observers.items():
        coverage = read_coverage(artifacts.coverage / slug / "coverage.parquet")
        lines += _coverage(name, coverage, suite)
        for subject in sorted(about.models) or found_subjects(artifacts, slug):
            lines += _findings(paths, about, slug, subject, coverage)
    lines += _robustness(paths, about)
    lines += _figures(list(observers), subjects)
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
    whole = int((coverage.chi[SUITE] == 0).sum())
    return [
        f"## Coverage, read by {escape(name)}",
        "",
        f"The suite leaves out {whole:,} of {len(coverage.concepts):,} concepts (dead ones among them). "
        "A benchmark with less text misses more for that alone.",
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
        f"## Concepts of {escape(about.models.get(subject, subject))}, seen by {escape(observer)}",
        "",
        f"{counts}. {said}",
        "",
        *table(["concept", "label", "value (interval)", "q", "n_eff", "status", "an example"], rows),
    ]


def _row(extreme: Extreme, examples: dict[int, str]) -> list[str]:
    label = escape(shorten(extreme.label.shown, 60)) if extreme.label else NO_LABEL
    alike = f" ({extreme.n_alike} concepts)" if extreme.n_alike > 1 else ""
    value = spanned(extreme.value, extreme.low, extreme.high, "+.2f")
    q, example = number(extreme.q, ".2g"), examples.get(extreme.concept, "—")
    return [f"{extreme.concept}", label, value, q, f"{extreme.n_eff:.0f}", f"{extreme.status}{alike}", example]


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
        opening = " " if before and (before[-1].isspace() or row["tokens"][peak][0].isspace()) else ""
        closing = " " if after and (after[0].isspace() or row["tokens"][peak][-1].isspace()) else ""
        bold = f"{opening}**{peak_text}**{closing}" if peak_text else ""
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
        measures = [spanned(row[name], row[f"{name}_low"], row[f"{name}_high"], ".1%") for name in ("oa", "ara", "rla", "cra_pair")]
        cells.append([escape(about.models.get(row["subject"], row["subject"])), escape(row["subset"]), f"{row['n_variants']:,}", *measures])
    columns = ["subject", "variants", "n", "originals (OA)", "variants (ARA)", "loss (RLA)", "both right (CRA)"]
    return ["## Robustness", "", "Intervals by bootstrap over families.", "", *table(columns, cells)]


def _figures(observers: list[str], subjects: list[str]) -> list[str]:
    names = ["accuracy_by_benchmark"]
    for observer in observers:
        names += [f"{observer}-{name}" for name in ("missing_by_benchmark", "coverage_distribution", "concept_overlap")]
        names += [f"{observer}-{subject}-{name}" for subject in subjects for name in ("concepts", "performance_distribution")]
    return ["## Figures", "", *(f"![{name.replace('_', ' ')}](figures/{name}.svg)\n" for name in names), ""]
