"""What lm-evaluation-harness says of a whole run: ``results_<date>.json``, of old and new releases."""

from __future__ import annotations

import re
from typing import Any

from gapscope.results.answers import Answer, Key

MODEL_ARGUMENTS = ("pretrained", "model", "path", "engine")


def model_of(results: dict[str, Any]) -> str | None:
    """The subject's name: as recorded, or the argument of the run that names it."""
    if isinstance(results.get("model_name"), str) and results["model_name"]:
        return str(results["model_name"])
    arguments = results.get("config", {}).get("model_args")
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    if isinstance(arguments, dict):
        return next((str(arguments[name]) for name in MODEL_ARGUMENTS if arguments.get(name)), None)
    return None


def stated_of(results: dict[str, Any], task: str) -> dict[Key, float]:
    """The run's own means of a task: ``acc,none`` (metric and filter), or ``acc`` in the oldest."""
    entries = results.get("results", {}).get(task, {})
    found: dict[Key, float] = {}
    for name, value in entries.items():
        metric, _comma, filter_name = name.partition(",")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not metric.endswith("_stderr") and metric != "sample_len":
            found[task, metric, filter_name] = float(value)
    return found


def limit_notes(results: dict[str, Any], task: str) -> list[str]:
    """A warning where the run did not ask every item of the task."""
    counts = results.get("n-samples", {}).get(task, {})
    original, effective = counts.get("original"), counts.get("effective")
    if isinstance(original, int) and isinstance(effective, int):
        return [f"{task}: the run asked {effective} of {original} items (--limit or --samples)"] if effective < original else []
    limit = results.get("config", {}).get("limit")
    return [f"{task}: the run was limited (--limit {limit})"] if limit else []


def gold_notes(answers: list[Answer], task: str) -> list[str]:
    """A warning where the gold as read here and the log's own accuracy contradict each other."""
    compared = [a for a in answers if a.fault is None and a.logprobs and a.answer is not None and a.scores.get("acc") in (0.0, 1.0)]
    wrong = [a.line for a in compared if (a.prediction == str(a.answer)) != (a.scores["acc"] == 1.0)]
    if not wrong:
        return []
    rows = f"{len(wrong)} of {len(compared)} rows, first in row {wrong[0]}"
    return [f"{task}: acc contradicts the log-probabilities and the target in {rows}"]


def groups_of(results: dict[str, Any]) -> dict[str, list[str]]:
    """The outermost groups of the run, each with all the tasks inside it."""
    table = {name: names for name, names in results.get("group_subtasks", {}).items() if names}
    inner = {name for names in table.values() for name in names}

    def tasks(name: str) -> list[str]:
        return [task for part in table[name] for task in (tasks(part) if part in table else [part])]

    return {re.sub(r"\W+", "_", name): tasks(name) for name in table if name not in inner}
