"""Results as a subject and as a suite in params.yaml, so that the DAG runs on them: source, benchmarks and model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gapscope.errors import InputError
from gapscope.params import Params
from gapscope.presets import edited, put
from gapscope.results.answers import Log
from gapscope.results.bring import groups_of
from gapscope.results.gather import LogFiles
from gapscope.results.select import TaskScores

Suite = Literal["replace", "add", "keep"]

SLUG = re.compile(r"^[a-z0-9_]+$")


@dataclass(frozen=True)
class Entry:
    """What results become in params.yaml.

    Attributes:
        slug: key of the source and of the model.
        name: the subject's name.
        licence: of the log.
        suite: whether the log's questions take the place of the benchmarks there are, come beside them, or are left out;
            the first puts the subject in the place of the models there are, too.
        files: what to record of the files.
        results: the entry ``results`` of the model.
        benchmarks: the entries of the log's own questions, each without its source, by slug.
    """

    slug: str
    name: str
    licence: str
    suite: Suite
    files: LogFiles
    results: Mapping[str, Any]
    benchmarks: Mapping[str, Mapping[str, Any]]


def results_entry(log: Log, tasks: Sequence[TaskScores], files: LogFiles, **given: str | None) -> dict[str, Any]:
    """The entry ``results`` of a model whose results are a log.

    What was given of metric, filter, join and id_prefix is written out, and a metric or filter that all tasks share.
    """
    entry: dict[str, Any] = {"format": log.format, "files": files.patterns}
    for name, found in (("metric", {task.metric for task in tasks}), ("filter", {task.filter for task in tasks})):
        entry[name] = given.get(name) or (next(iter(found)) if len(found) == 1 else None)
    entry |= {"join": None if given.get("join") == "auto" else given.get("join"), "id_prefix": given.get("id_prefix")}
    return {name: value for name, value in entry.items() if value}


def benchmark_entries(log: Log, tasks: Sequence[TaskScores], files: LogFiles, kind: str) -> dict[str, dict[str, Any]]:
    """The entries of a log's benchmarks, each without its source, by slug."""
    file_of = dict(zip(log.tasks, files.patterns, strict=True))
    metric_of = {task.task: task.metric for task in tasks}
    found: dict[str, dict[str, Any]] = {}
    for slug, parts in groups_of(log):
        found[slug] = {"files": [file_of[task] for task in parts], "format": "results", "log": log.format}
        # Of an arena only the battles of the side that is studied are its items.
        found[slug] |= ({"metric": metric_of[parts[0]]} if log.format == "arena" else {}) | {"kind": kind}
    return found


def into_params(text: str, params_file: Path, entry: Entry) -> str:
    """The text of params.yaml with results in it as a source, a model and (but for ``keep``) benchmarks.

    A benchmark that is there already under the same slug stays, and the results are joined with its items.

    Raises:
        InputError: the slug is none, or is another source's; or there are no questions to make benchmarks of.
    """
    if not SLUG.match(entry.slug):
        raise InputError(f"{entry.slug!r} is no slug", field="--as", fix="use small letters, digits and underscores")
    if entry.suite != "keep" and not entry.benchmarks:
        raise InputError("a plain table brings no questions", field="--suite", fix="use --suite keep")
    source = _source(entry, params_file)
    model = {"source": entry.slug, "name": entry.name, "results": dict(entry.results)}
    benchmarks = {slug: {"source": entry.slug, **values} for slug, values in entry.benchmarks.items()}

    def put_in(document: Any) -> None:
        sources = document.setdefault("sources", {})
        if sources.get(entry.slug, source).get("kind") != "path":
            raise InputError(f"sources.{entry.slug} is another source", file=params_file, field="--as", fix="choose another slug")
        put(sources, entry.slug, source)
        if entry.suite == "replace":
            put(document, "benchmarks", benchmarks)
            put(document, "models", {entry.slug: model})
            # No subject is left that could be asked a variant.
            put(document, "variants", {"enabled": False})
            return
        put(document["models"], entry.slug, model)
        if entry.suite == "add":
            document["benchmarks"].update({slug: value for slug, value in benchmarks.items() if slug not in document["benchmarks"]})

    return edited(text, put_in)


def _source(entry: Entry, params_file: Path) -> dict[str, Any]:
    path = entry.files.path
    # A relative path is one from where the pipeline runs, which is where params.yaml is.
    path = path if params_file.parent == Path() and not path.is_absolute() else path.resolve()
    source: dict[str, Any] = {"kind": "path", "licence": entry.licence, "path": path.as_posix(), "sha256": entry.files.sha256}
    return source | ({"include": entry.files.include} if entry.files.include else {})


def check_sizes(params: Params, n_items: Mapping[str, int], file: Path) -> None:
    """Refuse a benchmark that the items stage would stop at.

    Raises:
        InputError: a log's benchmark that is in the parameters has too few usable items.
    """
    least = params.items.min_items
    for slug, n in n_items.items():
        if slug in params.benchmarks and params.benchmarks[slug].format == "results" and n < least:
            fix = "gaps need hundreds; lower items.min_items if you mean it"
            raise InputError(f"{n} usable items, items.min_items is {least}", file=file, field=f"benchmarks.{slug}", fix=fix)
