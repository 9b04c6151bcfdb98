"""The whole of an import: read, choose, bring or join items, describe, and what there is to write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from gapscope.benchmarks import without_duplicates
from gapscope.errors import InputError
from gapscope.files import atomic_directory
from gapscope.items import Item, read_items, write_items
from gapscope.params import Results
from gapscope.params_types import LogFormat
from gapscope.results.answers import Answer, Log
from gapscope.results.bring import groups_of, items_of
from gapscope.results.describe import describe_log, describe_match, describe_plain
from gapscope.results.gather import LogFiles, expand, format_of, log_files
from gapscope.results.into import benchmark_entries, results_entry
from gapscope.results.join import Way
from gapscope.results.plain import import_results
from gapscope.results.select import TaskScores, select
from gapscope.results.subject import match, read_log
from gapscope.scores import ItemScore, write_scores

PLAIN = "give its items with --items, and name its columns: --id-column and --score-column or --prediction-column"


@dataclass(frozen=True)
class Choice:
    """What a person may choose where the file leaves it open.

    Attributes:
        log_format: None to find out by the content.
        columns: of a plain table, the fields of :class:`gapscope.params.Results`.
    """

    log_format: LogFormat | Literal["plain"] | None = None
    metric: str | None = None
    filter: str | None = None
    join: Way = "auto"
    id_prefix: str = ""
    kind: str = "other"
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Import:
    """An import that was understood, and of which nothing is written yet.

    Attributes:
        items: the items that were given, or those of the log.
        scores: one an item.
        found: what was understood, as JSON values.
        files: what to record of the files.
        name: the subject's name, if the log says it.
        results: the entry ``results`` of a model in params.yaml.
        benchmarks: the entries of the log's own questions, each without its source, by slug.
        n_items: the usable items of these.
    """

    items: list[Item]
    scores: list[ItemScore]
    found: dict[str, Any]
    files: LogFiles
    name: str | None
    results: dict[str, Any]
    benchmarks: dict[str, dict[str, Any]] = field(default_factory=dict)
    n_items: dict[str, int] = field(default_factory=dict)

    def write_scores(self, output: Path) -> None:
        """Write scores.parquet into a directory."""
        with atomic_directory(output) as directory:
            write_scores(directory, self.items, self.scores)

    def write_items(self, output: Path) -> None:
        """Write items.jsonl into a directory."""
        with atomic_directory(output) as directory:
            write_items(directory / "items.jsonl", self.items)


def understand(paths: Sequence[Path], items_file: Path | None, choice: Choice) -> Import:
    """Read a log or a plain table and join it with the items given; a log also with its own.

    Raises:
        InputError: the file is a plain table and there are no items; or as the steps, see
            :mod:`gapscope.results.subject`, :mod:`gapscope.results.select` and :mod:`gapscope.results.plain`.
    """
    files = expand(paths)
    log_format = choice.log_format or format_of(files)
    if log_format is None or log_format == "plain":
        return _plain(files, items_file, choice)
    log = read_log(files, log_format)
    tasks = select(log, choice.metric, choice.filter)
    found = describe_log(log, tasks, found=choice.log_format is None)
    source = log_files(files, log_format)
    brought: dict[str, list[Item]] = {}
    if items_file is None:
        brought, found["items"] = _brought(log, tasks, choice.kind)
    items = [item for part in brought.values() for item in part] if items_file is None else read_items(items_file)
    matched = match(log, tasks, items, choice.join, choice.id_prefix)
    found["match"] = describe_match(matched, len(items))
    return Import(
        items,
        matched.scores,
        found,
        source,
        tasks[0].metric if log.format == "arena" else log.model,
        results_entry(log, tasks, source, metric=choice.metric, filter=choice.filter, join=choice.join, id_prefix=choice.id_prefix),
        benchmark_entries(log, tasks, source, choice.kind),
        {slug: len(part) for slug, part in brought.items()},
    )


def _plain(files: Sequence[Path], items_file: Path | None, choice: Choice) -> Import:
    columns = {name: value for name, value in choice.columns.items() if value is not None}
    if items_file is None or len(columns) < 2:
        raise InputError("is a plain table, without questions", file=files[0], fix=PLAIN)
    if len(files) > 1:
        raise InputError("a plain table is one file", file=files[1], fix="import one at a time")
    given = {"file": files[0].name, "id_prefix": choice.id_prefix, **columns}
    try:
        results = Results(**given)
    except ValidationError as error:
        raise InputError(error.errors()[0]["msg"].removeprefix("Value error, "), file=files[0]) from error
    items = read_items(items_file)
    scores, counts = import_results(files[0], items, results)
    entry = {key: value for key, value in given.items() if value != ""}
    return Import(items, scores, describe_plain(files[0], given, scores, counts), log_files(files, None), None, entry)


def _brought(log: Log, tasks: Sequence[TaskScores], kind: str) -> tuple[dict[str, list[Item]], dict[str, Any]]:
    # Of an arena only the battles of the side that is studied are its items.
    metric_of = {task.task: task.metric for task in tasks}
    answers: dict[str, list[Answer]] = defaultdict(list)
    for answer in log.answers:
        if log.format != "arena" or metric_of[answer.task] in answer.scores:
            answers[answer.task].append(answer)
    items: dict[str, list[Item]] = {}
    report: dict[str, Any] = {}
    for slug, parts in groups_of(log):
        brought, dropped = items_of((answer for part in parts for answer in answers[part]), slug, kind)
        items[slug] = without_duplicates(brought, dropped, log.files[0])
        report[slug] = {"n_items": len(items[slug]), "n_dropped": dict(sorted(dropped.items()))}
    if not any(items.values()):
        raise InputError(f"no row makes an item: {report}", file=log.files[0], fix="give the run's items with --items")
    return items, report
