"""What an import understood, for a person to read before anything is written, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.results.answers import Answer, Log, mean, shorten
from gapscope.results.select import TaskScores
from gapscope.results.subject import Matched
from gapscope.scores import ItemScore

FORMATS = {
    "lm_eval": "sample log of lm-evaluation-harness",
    "inspect": "log of Inspect",
    "lighteval": "details of lighteval",
    "arena": "battles of an arena",
}
FEW_VALUES = 5
EXAMPLES = 3


def describe_log(log: Log, tasks: Sequence[TaskScores], *, found: bool) -> dict[str, Any]:
    """The log's format, model and tasks, with both accuracies and the spread of the scores of each."""
    return {
        "format": log.format,
        "format_found_by": "content" if found else "--format",
        "model": log.model,
        "files": [file.name for file in log.files],
        "tasks": {task.task: _task(log, task) for task in tasks},
        "notes": log.notes,
    }


def _task(log: Log, task: TaskScores) -> dict[str, Any]:
    unscored = Counter(answer.fault or "no_score" for answer, score in zip(task.answers, task.scores, strict=True) if score is None)
    return {
        "n_rows": task.n_rows,
        "n_unique": len(task.answers),
        "metric": task.metric,
        "filter": task.filter,
        "understood": log.understood.get(task.task),
        "not_scores": {name: why for (of, name), why in log.not_scores.items() if of == task.task},
        "accuracy": {"stated": task.stated, "recomputed": task.recomputed, "equal": task.equal},
        "scores": distribution(score for score in task.scores if score is not None),
        "n_unscored": dict(sorted(unscored.items())),
    }


def distribution(scores: Iterable[float]) -> dict[str, Any]:
    """How often each score occurs, or of many different ones their quartiles."""
    values = np.array(list(scores))
    counts = Counter(values.tolist())
    if len(counts) <= FEW_VALUES:
        return {f"{value:.4g}": n for value, n in sorted(counts.items())}
    names = ("min", "25%", "median", "75%", "max")
    return {name: float(value) for name, value in zip(names, np.quantile(values, [0, 0.25, 0.5, 0.75, 1]), strict=True)}


def describe_match(matched: Matched, n_items: int) -> dict[str, Any]:
    """How many items have a result, by what they were found, and examples of answers that have no item."""
    scored = sum(score.score is not None for score in matched.scores)
    reasons = Counter(score.reason for score in matched.scores if score.reason is not None)
    return {
        "n_items": n_items,
        "n_scored": scored,
        "n_unscored": dict(sorted(reasons.items())),
        **matched.counts,
        "without_item": [_example(answer) for answer in matched.joined.unmatched[:EXAMPLES]],
        "ambiguous": [_example(answer) for answer in matched.joined.ambiguous[:EXAMPLES]],
    }


def describe_plain(file: Path, columns: Mapping[str, Any], scores: Sequence[ItemScore], counts: Mapping[str, int]) -> dict[str, Any]:
    """A plain table: its columns as named, the spread and the mean of the scores, and what did not fit."""
    values = [score.score for score in scores if score.score is not None]
    reasons = Counter(score.reason for score in scores if score.reason is not None)
    return {
        "format": "plain",
        "files": [file.name],
        "columns": {name: value for name, value in columns.items() if name != "file" and value != ""},
        "accuracy": mean(values) if values else None,
        "scores": distribution(values),
        "n_items": len(scores),
        "n_scored": len(values),
        "n_unscored": dict(sorted(reasons.items())),
        **counts,
    }


def _plain_lines(found: dict[str, Any]) -> list[str]:
    unscored = ", ".join(f"{reason} {n}" for reason, n in found["n_unscored"].items())
    return [
        "format     plain, a table whose columns are named",
        f"columns    {', '.join(f'{name} {value}' for name, value in found['columns'].items())}",
        f"join       {found['n_scored']} of {found['n_items']} items scored" + (f" ({unscored})" if unscored else ""),
        f"           {found['n_without_item']} rows have no item; {found['n_not_a_choice']} answers name no choice",
        f"accuracy   {found['accuracy']!r}",
        f"scores     {', '.join(f'{value}: {n}' for value, n in found['scores'].items())}",
    ]


def _example(answer: Answer) -> str:
    return f"row {answer.line}: {shorten(answer.text or answer.prompt or str(answer.name), 100)}"


def as_lines(found: dict[str, Any]) -> list[str]:
    """The description as text, a fact a line."""
    if found["format"] == "plain":
        return _plain_lines(found)
    by = "found by its content; --format overrides it" if found["format_found_by"] == "content" else "as told"
    lines = [f"format     {found['format']}, {FORMATS[found['format']]} ({by})", f"model      {found['model'] or 'not named'}"]
    for name, task in found["tasks"].items():
        lines += [f"task       {name}", *(f"  {line}" for line in _task_lines(task))]
    for slug, counts in found.get("items", {}).items():
        left_out = ", ".join(f"{reason} {n}" for reason, n in counts["n_dropped"].items())
        lines.append(f"items      {counts['n_items']} of {slug}, brought from the log" + (f"; left out: {left_out}" if left_out else ""))
    if "match" in found:
        lines += _match_lines(found["match"])
    return lines + [f"note       {note}" for note in found["notes"]]


def _task_lines(task: dict[str, Any]) -> list[str]:
    accuracy = task["accuracy"]
    stated = "the log says none" if accuracy["stated"] is None else f"the log says {accuracy['stated']!r}"
    verdict = {True: ": equal", False: ": NOT EQUAL", None: ""}[accuracy["equal"]]
    unscored = ", ".join(f"{reason} {n}" for reason, n in task["n_unscored"].items())
    scores = ", ".join(f"{value}: {n:.4g}" if isinstance(n, float) else f"{value}: {n}" for value, n in task["scores"].items())
    return [
        f"rows     {task['n_rows']}, of {task['n_unique']} items",
        f"filter   {task['filter'] or 'not named'}",
        f"metric   {task['metric']}",
        f"accuracy {accuracy['recomputed']!r} recomputed, {stated}{verdict}",
        f"scores   {scores or 'none'}" + (f"; unscored: {unscored}" if unscored else ""),
        f"fields   {task['understood']}",
        *(f"left out {name}: {why}" for name, why in task["not_scores"].items()),
    ]


def _match_lines(match: dict[str, Any]) -> list[str]:
    ways = ", ".join(f"{match[f'n_by_{way}']} by {way}" for way in ("id", "hash", "text") if f"n_by_{way}" in match)
    unscored = ", ".join(f"{reason} {n}" for reason, n in match["n_unscored"].items())
    lines = [
        f"join       {ways or 'none'}; {match['n_scored']} of {match['n_items']} items scored" + (f" ({unscored})" if unscored else "")
    ]
    for key, what in (("without_item", "have no item"), ("ambiguous", "fit several items")):
        count = match["n_without_item" if key == "without_item" else "n_ambiguous"]
        if count:
            lines += [f"           {count} answers {what}:", *(f"             {example}" for example in match[key])]
    return lines
