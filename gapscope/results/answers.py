"""What a log of results says, in one form for every format: an answer a row, and what was understood of the whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapscope.benchmarks.question import normalised

Key = tuple[str, str, str]
"""A task, a metric and a filter."""

MOST_PROMPT = 8000
"""Characters kept of the end of a prompt: few-shot examples stand before the question."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a log says of one item.

    Attributes:
        line: line or row of the file.
        task: the log's name of the benchmark.
        text: the question without template, choices and examples.
        name: the item's own id in its benchmark, if the log has one.
        position: the log's number of the item, which tells its rows apart and joins nothing.
        doc_hash: the log's hash of the item, if it has one.
        prompt: what the subject read (the end of it), for the join only.
        choices: the options, empty where free-form.
        answer: index of the gold choice, or None.
        target: gold text of a free-form item, or None.
        references: every gold text of a free-form item that has several.
        scores: value by metric, 0 to 1; None where the log gives no finite number.
        filter: the log's name of how the reply was parsed; empty where it does not say.
        prediction: index of the chosen choice as text, or the reply; None where not known.
        logprobs: natural log-probability of each choice, if the log has them.
        fault: slug of the reason for which the answer cannot be scored, or None.
        repeat: which repetition of the item this is (an epoch), from 1.
        chance: expected score of a blind guess, where it is not that of the item's choices.
        meta: what else the log says of the item, JSON values.
    """

    line: int
    task: str
    text: str
    name: str | None = None
    position: str | None = None
    doc_hash: str | None = None
    prompt: str = ""
    choices: tuple[str, ...] = ()
    answer: int | None = None
    target: str | None = None
    references: tuple[str, ...] = ()
    scores: Mapping[str, float | None] = field(default_factory=dict)
    filter: str = ""
    prediction: str | None = None
    logprobs: tuple[float, ...] | None = None
    fault: str | None = None
    repeat: int = 1
    chance: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """A log as read, before a metric and a filter are chosen.

    Attributes:
        format: lm_eval, inspect, lighteval or arena.
        files: the files that hold the answers.
        model: the subject's name, if the log says it.
        answers: every row, in the order of the files.
        stated: the log's own accuracies.
        not_scores: metrics that are not scores from 0 to 1, with an example.
        understood: where the text, the choices and the id of an item were found.
        notes: what a person should know before trusting the log (a limited or unfinished run, ...).
        groups: the log's own groups of tasks, by name.
    """

    format: str
    files: list[Path]
    model: str | None
    answers: list[Answer]
    stated: Mapping[Key, float] = field(default_factory=dict)
    not_scores: Mapping[tuple[str, str], str] = field(default_factory=dict)
    understood: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    groups: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, in the order of the files."""
        return list(dict.fromkeys(answer.task for answer in self.answers))


def as_score(value: Any) -> float | None:
    """A logged value as a score from 0 to 1: a number or its text, a truth value, or the mean of a list of truth values.

    None stands for no finite number.

    Raises:
        ValueError: it is anything else, or out of range.
    """
    if value is None:
        return None
    if isinstance(value, list) and value and all(isinstance(part, bool) for part in value):
        return sum(value) / len(value)
    if isinstance(value, str):
        value = {"true": "1", "false": "0"}.get(value.strip().lower(), value)
    elif not isinstance(value, (int, float)):
        raise ValueError("no number")
    number = float(value)
    if math.isnan(number):
        return None
    if not 0 <= number <= 1:
        raise ValueError("not from 0 to 1")
    return number


def split_scores(values: Mapping[str, Any], task: str, line: int, not_scores: dict[tuple[str, str], str]) -> dict[str, float | None]:
    """The values that are scores; the first example of each metric that is not one is noted in ``not_scores``."""
    scores: dict[str, float | None] = {}
    for metric, value in values.items():
        try:
            scores[metric] = as_score(value)
        except ValueError as error:
            not_scores.setdefault((task, metric), f"{shorten(repr(value), 40)} in row {line}: {error}")
    return scores


def mean(values: Iterable[float]) -> float:
    """The mean as the harnesses compute it: summed in the order of the rows, then divided."""
    numbers = list(values)
    return sum(numbers) / len(numbers)


def content_key(text: str, choices: Iterable[str]) -> tuple[str, ...]:
    """By what two wordings of a question count as one."""
    return (normalised(text), *sorted(normalised(choice) for choice in choices))


def common_start(texts: Sequence[str]) -> str:
    """The characters that all texts begin with."""
    low, high = min(texts), max(texts)
    return next((low[:k] for k, character in enumerate(low) if not high.startswith(character, k)), low)


def shorten(text: str, most: int = 80) -> str:
    """A text on one line, its middle left out where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most * 2 // 3]} ... {text[-(most // 3 - 5) :]}"
