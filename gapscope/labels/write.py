"""Better labels than keywords where they can be had: published ones first, then a language model's, each with a score.

What the report of the labels says, in plain words (the README quotes these):

- ``n_published``: concepts whose label a published file gives; ``published``: what of the file was left out.
- ``n_llm``: concepts labelled by the language model. ``n_unusable_labels``: replies that are no label; there the keywords stay.
- ``n_detected``: labels whose score is the language model's: balanced accuracy on held-out contexts, half of them the
  concept's own (0.5 is guessing). ``n_unusable_scores``: replies that name no passages. ``n_too_few``: concepts with too few
  contexts to write from or to test on.
- ``n_replies``, ``prompt_tokens``, ``completion_tokens``, ``cost``: what all of it takes, whether asked for now or remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import scipy.sparse as sp

from gapscope.competency.labels import KEYWORDS, Label
from gapscope.files import atomic_directory, write_json, write_jsonl
from gapscope.labels.passages import Reading, readings
from gapscope.labels.prompts import (
    balanced_accuracy,
    cluster_prompt,
    detect_prompt,
    explain_prompt,
    mixed,
    read_cluster,
    read_label,
    read_numbers,
)
from gapscope.labels.published import Published
from gapscope.labels.replies import Replies
from gapscope.labels.word_scores import word_scores
from gapscope.params_labels import Asking, Endpoint

LLM = "llm"
"""The ``label_source`` of a label that the language model wrote."""

FEWEST = 2
"""With fewer contexts of either kind, nothing is written from them and nothing tested on them."""

MILLION = 1_000_000


@dataclass(frozen=True)
class Evidence:
    """Where concepts fire: the contexts table, firing counts (items x concepts), and the items of its rows."""

    contexts: pa.Table
    firing: sp.csr_matrix
    item_ids: Sequence[str]


@dataclass
class LabelSources:
    """Where labels come from besides keywords.

    Attributes:
        published: labels of a file and the name of its source, or None.
        replies: the language model with its memory, or None.
        asking: how it is asked.
    """

    published: tuple[Published, str] | None = None
    replies: Replies | None = None
    asking: Asking | None = None

    @property
    def any(self) -> bool:
        """Whether there is anything but keywords."""
        return self.published is not None or self.replies is not None


def better_labels(keywords: dict[int, Label], evidence: Evidence, sources: LabelSources) -> tuple[dict[int, Label], dict[str, Any]]:
    """The labels with published and written ones in place of keywords, and the report that the module's docstring explains.

    The words by which concepts are compared stay those of the keywords, so that clusters do not move with a wording.

    Raises:
        InputError: the language model cannot be had.
    """
    labels = dict(keywords)
    report: dict[str, Any] = {"n_concepts": len(keywords), "n_published": 0, "n_llm": 0}
    if sources.published is not None:
        published, name = sources.published
        texts = {concept: published.texts[concept] for concept in labels if concept in published.texts}
        scores = word_scores(texts, evidence.contexts, evidence.firing, evidence.item_ids)
        labels |= {concept: replace(labels[concept], text=text, source=name, score=scores[concept]) for concept, text in texts.items()}
        report["n_published"] = len(texts)
        left_out = {"n_empty": published.n_empty, "n_repeated": published.n_repeated, "n_other": published.n_other}
        report["published"] = {"n_labels": len(published.texts), **left_out}
    if sources.replies is not None and sources.asking is not None:
        report |= _ask(labels, evidence, sources.replies, sources.asking)
    return labels, report


def _ask(labels: dict[int, Label], evidence: Evidence, replies: Replies, asking: Asking) -> dict[str, Any]:
    """Let the language model label what has keywords only, and score all that is not keywords; changes ``labels``."""
    concepts = sorted(labels)
    seen = readings(evidence.contexts, concepts, evidence.firing, evidence.item_ids, asking.shown, asking.held_out)
    full = [concept for concept in concepts if _enough(seen[concept])]
    to_write = [concept for concept in full if labels[concept].source == KEYWORDS]
    written = replies.ask("label", [(f"concept {concept}", explain_prompt(seen[concept])) for concept in to_write])
    unusable = 0
    for concept, reply in zip(to_write, written, strict=True):
        label = read_label(reply.text)
        unusable += label is None
        if label is not None:
            labels[concept] = replace(labels[concept], text=label, source=LLM, score=None)
    to_test = [concept for concept in full if labels[concept].source != KEYWORDS]
    unscored = _detect(to_test, labels, seen, replies)
    return {
        "n_llm": sum(label.source == LLM for label in labels.values()),
        "n_unusable_labels": unusable,
        "n_detected": len(to_test) - unscored,
        "n_unusable_scores": unscored,
        "n_too_few": len(concepts) - len(full),
    }


def _enough(reading: Reading) -> bool:
    return min(len(side) for side in (reading.shown, reading.others, reading.held_out, reading.held_out_others)) >= FEWEST


def _detect(concepts: list[int], labels: dict[int, Label], seen: dict[int, Reading], replies: Replies) -> int:
    """Score the labels of these concepts, and return of how many the reply was unusable; those keep the score they have."""
    cases = {concept: mixed(concept, seen[concept]) for concept in concepts}
    prompts = [(f"concept {concept}", detect_prompt(labels[concept].text, cases[concept][0])) for concept in concepts]
    unusable = 0
    for concept, reply in zip(concepts, replies.ask("detect", prompts), strict=True):
        passages, own = cases[concept]
        named = read_numbers(reply.text, len(passages))
        unusable += named is None
        if named is not None:
            labels[concept] = replace(labels[concept], score=balanced_accuracy(named, own, len(passages)))
    return unusable


def name_clusters(groups: Sequence[tuple[str, list[str]]], replies: Replies) -> list[str | None]:
    """Name and paragraph of each group (what kind of concepts, their labels), None where the reply is unusable."""
    prompts = [(", ".join(labels)[:200], cluster_prompt(kind, labels)) for kind, labels in groups]
    names: list[str | None] = []
    for reply in replies.ask("cluster", prompts):
        found = read_cluster(reply.text)
        names.append(None if found is None else f"{found[0]}: {found[1]}" if found[1] else found[0])
    return names


def write_replies(output: Path, report: dict[str, Any], replies: Replies | None, asking: Asking | None) -> dict[str, Any]:
    """Write report.json and replies.jsonl (empty where no language model was asked) into a directory; return the whole report."""
    report = dict(report)
    if replies is not None:
        report |= replies.totals()
        cost = _cost(report, asking)
        report |= {} if cost is None else {"cost": cost}
    with atomic_directory(output) as directory:
        write_json(directory / "report.json", report)
        write_jsonl(directory / "replies.jsonl", [] if replies is None else replies.asked)
    return report


def _cost(report: dict[str, Any], asking: Asking | None) -> float | None:
    """What the replies cost; None without prices, and where a server did not count its tokens: half a bill is no bill."""
    if not isinstance(asking, Endpoint) or asking.price_input is None or asking.price_output is None or report["n_without_tokens"]:
        return None
    spent = report["prompt_tokens"] * asking.price_input + report["completion_tokens"] * asking.price_output
    return float(spent) / MILLION
