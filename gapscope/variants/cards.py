"""The card of an exported robustness benchmark: how it was made, how far to trust it, and under which licences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class Provenance:
    """What a card says of a set besides its counts.

    Attributes:
        licences: of each source benchmark, by slug.
        report: the filter stage's report (candidates, accepted, reasons).
        heldout: the verifier's scores on held-out families, by name; empty where they are not known.
        baselines: accuracies of baselines on all variants, and of a blind guess as ``chance``.
    """

    licences: Mapping[str, str]
    report: Mapping[str, Any]
    heldout: Mapping[str, float]
    baselines: Mapping[str, float]


def dataset_card(counts: Mapping[str, int], provenance: Provenance) -> str:
    """A README.md in the form of the Hugging Face hub: a YAML head that names the files, and text."""
    head = {
        "license": "other",
        "license_name": "as-the-source-items",
        "language": ["en"],
        "task_categories": ["multiple-choice"],
        "pretty_name": "Robustness variants by gapscope",
        "configs": [{"config_name": name, "data_files": [{"split": "test", "path": f"{name}.parquet"}]} for name in counts],
    }
    blocks = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---",
        "# Robustness variants",
        INTRODUCTION,
        "## What is in it",
        _table(("part", "items"), [(name, str(count)) for name, count in counts.items()]),
        "## How it was made, and how far to trust it",
        MAKING,
        "\n".join(_trust(provenance)),
        "## Limits",
        LIMITS,
        "## Licence",
        "A variant is made from its source item and is under that item's licence:\n\n"
        + _table(("benchmark", "licence"), sorted(provenance.licences.items())),
    ]
    return "\n\n".join(blocks) + "\n"


INTRODUCTION = (
    "Multiple-choice questions that ask again, in another form, what existing benchmark items ask. `original` holds the items,\n"
    "every other part one type of variant; `family` joins an original and its variants, and is the unit to resample.\n"
    'Choices are in the order in which gapscope asked them. Load a part with `datasets.load_dataset(FOLDER, PART, split="test")`.'
)
MAKING = (
    "A small generator, fine-tuned on hand-written families and then by reinforcement with a verifier's probability as reward, wrote\n"
    "candidates. Unless `generate.guided` was false, they are in set forms: labels, and what is taken over from the original and not\n"
    "invented, were put in for it; `problem_restatement`, `negative_transformation`, `critical_testing` and `sentence_ordering` are then\n"
    "made by rule throughout. Rules of each type, the verifier and a search for duplicates removed some of them. No person has read\n"
    "them all."
)
LIMITS = (
    "- A verifier that is right only in part lets wrong variants pass. Read its figures above beside the pass rate that it awards,\n"
    "  and read a sample (`gapscope variants show`) before you build on this set.\n"
    "- Both models learned from one hand's style of English, and so did what passes here.\n"
    "- `critical_testing` keeps its original's text, and `scenario_refinement` its choices: who trained on the originals has seen these."
)


def _trust(provenance: Provenance) -> list[str]:
    report = provenance.report
    lines = [f"- Candidates: {report.get('n_candidates', 0)}, accepted: {report.get('n_accepted', 0)}."]
    reasons = {name: count for name, count in sorted(report.get("reasons", {}).items()) if count}
    if reasons:
        lines.append("- Rejected for: " + ", ".join(f"{name} {count}" for name, count in reasons.items()) + ".")
    if provenance.heldout:
        scores = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in sorted(provenance.heldout.items()))
        lines.append(f"- The verifier on held-out hand-written families: {scores}.")
    if provenance.baselines:
        rows = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in sorted(provenance.baselines.items()))
        lines.append(f"- Accuracy of baselines that do not read the question, and of a blind guess: {rows}.")
    return lines


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
