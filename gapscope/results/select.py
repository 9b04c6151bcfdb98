"""One metric and one filter of a log, one answer an item, and the log's own accuracy beside the recomputed one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gapscope.errors import InputError
from gapscope.results.answers import Answer, Log, mean, shorten

MOST_NAMED = 8


@dataclass(frozen=True)
class TaskScores:
    """What a log says of one task, by the chosen metric and filter.

    Attributes:
        answers: one an item of the log, repetitions reduced to their mean, in the order of the file.
        n_rows: rows of the file, every filter and repetition counted.
        stated: the log's own accuracy, or None where it gives none.
        recomputed: the mean over the rows of the metric, as the harness computes it; None where no row has a score.
    """

    task: str
    metric: str
    filter: str
    answers: list[Answer]
    n_rows: int
    stated: float | None
    recomputed: float | None

    @property
    def scores(self) -> list[float | None]:
        """The score of every answer, None where it cannot be used."""
        return [score_of(answer, self.metric) for answer in self.answers]

    @property
    def equal(self) -> bool | None:
        """Whether both accuracies are the same to the last digit that a double has; None where one is not there."""
        if self.stated is None or self.recomputed is None:
            return None
        return bool(np.isclose(self.stated, self.recomputed, rtol=1e-12, atol=0))


def select(log: Log, metric: str | None, filter_name: str | None) -> list[TaskScores]:
    """The chosen scores of every task.

    A name that is given holds for every task that has it; a task with a single metric or filter needs no choice.

    Raises:
        InputError: a task has several metrics or filters and none of them is chosen, the choice is unknown, no metric is a
            score, or rows are there twice.
    """
    by_task: dict[str, list[Answer]] = defaultdict(list)
    for answer in log.answers:
        by_task[answer.task].append(answer)
    named = {task: _name_filters(log, task, answers) for task, answers in by_task.items()}
    filters = list(dict.fromkeys(name for found in named.values() for name in found))
    for name, given, known in (("--metric", metric, _metrics(log.answers)), ("--filter", filter_name, filters)):
        if given is not None and given not in known:
            hint = next((f"; {m} is no score: {why}" for (_task, m), why in log.not_scores.items() if m == given), "")
            message = f"no {name.removeprefix('--')} {given!r} in the log{hint}"
            raise InputError(message, file=log.files[0], field=name, fix=f"it has: {_listed(known, len(known))}")
    return [_task_scores(log, task, found, metric, filter_name) for task, found in named.items()]


def score_of(answer: Answer, metric: str) -> float | None:
    """The score of an answer, None where it has a fault or no number."""
    return None if answer.fault is not None else answer.scores.get(metric)


def _task_scores(log: Log, task: str, named: dict[str, list[Answer]], metric: str | None, filter_name: str | None) -> TaskScores:
    chosen_filter = _choose(log, task, "filter", filter_name, list(named), lambda name: _means(named[name]))
    rows = named[chosen_filter]
    metrics = _metrics(rows)
    if not metrics:
        why = "; ".join(f"{name}: {text}" for (of, name), text in log.not_scores.items() if of == task)
        raise InputError(f"{task}: no metric is a score from 0 to 1 ({why or 'there is none'})", file=log.files[0], field="metric")
    chosen = _choose(log, task, "metric", metric, metrics, lambda name: _mean_of(rows, name))
    if log.format == "arena":
        rows = [row for row in rows if chosen in row.scores]
    values = [value for row in rows if (value := row.scores.get(chosen)) is not None]
    _refuse_doubles(log, task, rows)
    reduced = [_reduced(group, chosen) for group in _repetitions(rows)]
    # Repetitions count once each: the mean over items of the mean over repetitions, as the harnesses report it.
    several = any(row.repeat > 1 for row in rows)
    means = [value for answer in reduced if (value := answer.scores[chosen]) is not None] if several else values
    stated = log.stated.get((task, chosen, chosen_filter), log.stated.get((task, chosen, "")))
    if stated is None and not chosen_filter:
        others = [value for (of, name, _filter), value in log.stated.items() if of == task and name == chosen]
        stated = others[0] if len(others) == 1 else None
    return TaskScores(task, chosen, chosen_filter, reduced, sum(map(len, named.values())), stated, mean(means) if means else None)


def _name_filters(log: Log, task: str, answers: list[Answer]) -> dict[str, list[Answer]]:
    """The rows of each filter. Older logs do not name it: there the k-th row of a document is of filter ``#k``."""
    filters: dict[str, list[Answer]] = defaultdict(list)
    seen: Counter[tuple[str | None, str | None, int]] = Counter()
    unnamed = log.format == "lm_eval" and all(not answer.filter for answer in answers)
    for answer in answers:
        name = answer.filter
        if unnamed:
            key = (answer.doc_hash, answer.position, answer.repeat)
            seen[key] += 1
            name = f"#{seen[key]}"
        filters[name].append(answer)
    if unnamed and len(filters) > 1:
        sizes = {len(rows) for rows in filters.values()}
        if len(sizes) > 1:
            message = f"{task}: {len(answers)} rows of {len(filters['#1'])} documents, which is no whole number of filters"
            raise InputError(message, file=log.files[0], fix="the file may be cut short, or joined of two runs")
        return dict(filters)
    return {"": answers} if unnamed else dict(filters)


def _choose(log: Log, task: str, kind: str, given: str | None, names: Sequence[str], about: Callable[[str], str]) -> str:
    if given in names:
        return str(given)
    if len(names) == 1:
        return names[0]
    listed = _listed([f"{name} ({about(name)})" for name in names[:MOST_NAMED]], len(names))
    raise InputError(f"{task} has {len(names)} {kind}s: {listed}", file=log.files[0], fix=f"choose one with --{kind}")


def _means(rows: Sequence[Answer]) -> str:
    """The means of a few metrics, by which a person can tell filters apart."""
    return ", ".join(f"{name} {_mean_of(rows, name)}" for name in _metrics(rows)[:3])


def _mean_of(rows: Sequence[Answer], metric: str) -> str:
    values = [value for row in rows if (value := row.scores.get(metric)) is not None]
    return f"{mean(values):.4g} over {len(values)}" if values else "undefined"


def _metrics(answers: Iterable[Answer]) -> list[str]:
    return list(dict.fromkeys(name for answer in answers for name in answer.scores))


def _listed(names: Sequence[str], n: int) -> str:
    more = f", and {n - MOST_NAMED} more" if n > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _refuse_doubles(log: Log, task: str, rows: Sequence[Answer]) -> None:
    """Afterwards rows and documents are as many: the same document may be there twice only where the data set has it twice."""
    first: dict[tuple[str | None, str | None, str | None, int], int] = {}
    for row in rows:
        if row.position is None and row.name is None:
            continue
        key = (row.doc_hash, row.name, row.position, row.repeat)
        if first.setdefault(key, row.line) != row.line:
            message = f"{task}: item {row.name or shorten(row.text, 40)!r} is in row {first[key]} already"
            raise InputError(message, file=log.files[0], line=row.line, fix="the file may hold two runs; keep one")


def _repetitions(rows: Iterable[Answer]) -> Iterable[list[Answer]]:
    """Rows of one item together: repetitions, and the same document twice in a data set."""
    groups: dict[tuple[object, ...], list[Answer]] = defaultdict(list)
    for row in rows:
        groups[(row.doc_hash, row.name) if row.doc_hash or row.name else (row.text, row.choices, row.target)].append(row)
    return groups.values()


def _reduced(group: Sequence[Answer], metric: str) -> Answer:
    """One answer of an item's repetitions: the mean of the scores that are there; a reply only where all are alike."""
    first = group[0]
    usable = [row for row in group if score_of(row, metric) is not None]
    if len(group) == 1 or not usable:
        return replace(first, prediction=_fitting(first, metric), scores={metric: first.scores.get(metric)})
    value = mean(score for row in usable if (score := score_of(row, metric)) is not None)
    predictions = {_fitting(row, metric) for row in usable}
    prediction = predictions.pop() if len(predictions) == 1 else None
    return replace(usable[0], scores={metric: value}, prediction=prediction)


def _fitting(answer: Answer, metric: str) -> str | None:
    """The choice that a metric has scored: several metrics share a row, and each may have chosen another."""
    score = score_of(answer, metric)
    if not answer.choices or answer.answer is None or score not in (0.0, 1.0):
        return answer.prediction
    candidates = [answer.prediction]
    if answer.logprobs and len(answer.logprobs) == len(answer.choices) and answer.fault is None:
        lengths = np.array([max(len(choice), 1) for choice in answer.choices])
        candidates.append(str(int(np.argmax(np.array(answer.logprobs) / lengths))))
    if "norm" in metric:
        candidates.reverse()
    return next((name for name in candidates if name is not None and (name == str(answer.answer)) == (score == 1.0)), None)
