"""Sample logs of lm-evaluation-harness: one file a task, ``samples_<task>_<date>.jsonl``, and ``results_<date>.json`` beside it.

Both field sets are read: that of 0.4.0 to 0.4.2 (a JSON list, arguments as lists, numbers as numbers) and that of later
releases (JSON lines, named arguments, numbers as text, hashes, the filter and the metrics named). A document's place in
the log (``doc_id``) is never used to find an item: it is wrong in logs of runs with chosen samples.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.errors import InputError
from gapscope.files import dump_json, read_json
from gapscope.results.answers import MOST_PROMPT, Answer, Key, Log, common_start, split_scores
from gapscope.results.lm_eval_docs import META_FIELDS, Fields, continuations, find_fields, gold_index, leaves, requests
from gapscope.results.lm_eval_run import gold_notes, groups_of, limit_notes, model_of, stated_of
from gapscope.results.streams import json_objects

NAME = re.compile(r"^samples_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.:-]+)\.jsonl(\.gz)?$")
NOT_METRICS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash", "schema_version"),
}
FIRST_ROWS = 200


def read_lm_eval(files: list[Path]) -> Log:
    """Read sample logs, each with the results file of its run where there is one.

    Raises:
        InputError: a file is damaged or no sample log, or two files are of one task.
    """
    answers: list[Answer] = []
    stated: dict[Key, float] = {}
    not_scores: dict[tuple[str, str], str] = {}
    understood: dict[str, str] = {}
    notes: list[str] = []
    groups: dict[str, list[str]] = {}
    models: set[str] = set()
    of_task: dict[str, Path] = {}
    for file in files:
        results = _results_of(file)
        task = task_of(file, results)
        if of_task.setdefault(task, file) != file:
            raise InputError(f"task {task} is also in {of_task[task].name}", file=file, fix="give the files of one run only")
        read, found = _read_file(file, task, not_scores)
        answers += read
        understood[task] = found
        stated |= stated_of(results, task)
        notes += limit_notes(results, task) + gold_notes(read, task)
        groups |= groups_of(results)
        models |= {name for name in [model_of(results)] if name}
    if len(models) > 1:
        raise InputError(f"the files are of {len(models)} models: {', '.join(sorted(models))}", file=files[0], fix="import one at a time")
    return Log("lm_eval", files, next(iter(models), None), answers, stated, not_scores, understood, notes, groups)


def companion(file: Path) -> Path | None:
    """The results file of the run that a sample log is of: the same date in its name, in the same directory."""
    match = NAME.match(file.name)
    beside = file.with_name(f"results_{match['date']}.json" if match else "results.json")
    return beside if beside.is_file() else None


def _results_of(file: Path) -> dict[str, Any]:
    beside = companion(file)
    results = {} if beside is None else read_json(beside)
    return results if isinstance(results, dict) else {}


def task_of(file: Path, results: dict[str, Any]) -> str:
    """The task that a file is of, by its name; older names hold the model's arguments too, and the results tell them apart."""
    match = NAME.match(file.name)
    if match:
        return match["task"]
    stem = re.sub(r"\.jsonl?(\.gz)?$", "", file.name)
    known = [task for task in results.get("results", {}) if stem == task or stem.endswith(f"_{task}")]
    return max(known, key=len, default=stem)


def _read_file(file: Path, task: str, not_scores: dict[tuple[str, str], str]) -> tuple[list[Answer], str]:
    rows = _checked(file)
    first = list(islice(rows, FIRST_ROWS))
    if not first:
        raise InputError("holds no row", file=file)
    fields = find_fields([row for _line, row in first])
    answers = [_answer(row, line, task, fields, not_scores) for line, row in chain(first, rows)]
    text = ", ".join(f"doc.{name}" for name in fields.text) or "the prompt"
    choices = f"doc.{fields.choices}" if fields.choices else "the continuations" if continuations(first[0][1]) else "none"
    name = f"doc.{fields.name}" if fields.name else "a hash of the content"
    return answers, f"text {text}; choices {choices}; id {name}"


def _checked(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, row in json_objects(file):
        for name, kind in (("doc", dict), ("arguments", (dict, list))):
            if not isinstance(row.get(name), kind):
                fix = "this is no sample log; it comes from lm-eval's --log_samples"
                raise InputError("is missing, or of another type", file=file, line=line, field=name, fix=fix)
        yield line, row


def _answer(row: dict[str, Any], line: int, task: str, fields: Fields, not_scores: dict[tuple[str, str], str]) -> Answer:
    doc = dict(leaves(row["doc"]))
    asked, endings = requests(row), continuations(row)
    prompt = asked[0][0] if asked else ""
    choices = _choices(doc, fields, [text for text, _ in asked], endings)
    values = {name: value for name, value in row.items() if name not in NOT_METRICS and name in row.get("metrics", [name])}
    logprobs = _logprobs(row, len(endings))
    target = _literal(row.get("target"))
    golds = target if isinstance(target, list) else [target]
    answer = gold_index(golds[0], choices, free=not endings) if choices and len(golds) == 1 else None
    references = tuple(str(gold).strip() for gold in golds if str(gold if gold is not None else "").strip())
    name = doc.get(fields.name) if fields.name else None
    return Answer(
        line=line,
        task=task,
        text=_text(doc, fields, prompt, [text for text, _ in asked], endings),
        name=None if name is None else str(name).strip(),
        position=str(row.get("doc_id")),
        doc_hash=str(row["doc_hash"]) if row.get("doc_hash") else hashlib.sha256(dump_json(row["doc"]).encode()).hexdigest(),
        prompt=prompt[-MOST_PROMPT:],
        choices=choices,
        answer=answer,
        target=None if choices else next(iter(references), None),
        references=() if choices else references,
        scores=split_scores(values, task, line, not_scores),
        filter=str(row.get("filter") or ""),
        prediction=_prediction(row, endings, logprobs),
        logprobs=logprobs,
        fault="not_finite" if logprobs and not all(map(math.isfinite, logprobs)) else None,
        meta={name: doc[name] for name in META_FIELDS if isinstance(doc.get(name), (str, int)) and doc.get(name) != ""},
    )


def _text(doc: dict[str, Any], fields: Fields, prompt: str, contexts: list[str], endings: list[str]) -> str:
    if fields.text:
        return "\n".join(str(doc[name]).strip() for name in fields.text if isinstance(doc.get(name), str) and doc[name].strip())
    if _contexts_differ(contexts, endings):
        before, after = _around(contexts)
        return f"{before}_{after}{endings[0]}".strip()
    return prompt.removeprefix(fields.shared).strip()


def _choices(doc: dict[str, Any], fields: Fields, contexts: list[str], endings: list[str]) -> tuple[str, ...]:
    listed = doc.get(fields.choices) if fields.choices else None
    if isinstance(listed, list) and (len(listed) == len(endings) or not endings):
        return tuple(str(choice).strip() for choice in listed)
    if _contexts_differ(contexts, endings):
        before, after = _around(contexts)
        return tuple(text[len(before) : len(text) - len(after)].strip() for text in contexts[: len(endings)])
    return tuple(ending.strip() for ending in endings)


def _contexts_differ(contexts: list[str], endings: list[str]) -> bool:
    """Whether the choices stand inside the contexts, before one and the same continuation (as Winogrande asks)."""
    return len(endings) > 1 and len(set(endings)) == 1 and len(set(contexts)) == len(contexts)


def _around(contexts: list[str]) -> tuple[str, str]:
    before = common_start(contexts)
    before = before[: before.rfind(" ") + 1]
    after = common_start([text[len(before) :][::-1] for text in contexts])[::-1]
    return before, after[after.find(" ") :] if " " in after else ""


def _literal(target: Any) -> Any:
    """A target as it was: later releases write lists as their Python text."""
    if isinstance(target, str) and target.startswith("[") and target.endswith("]"):
        try:
            value = ast.literal_eval(target)
        except (ValueError, SyntaxError):
            return target
        return value if isinstance(value, list) and value else target
    return target


def _logprobs(row: dict[str, Any], n: int) -> tuple[float, ...] | None:
    """The log-probability of each continuation: ``[value, is_greedy]``, once more in a list where it was not filtered."""
    values = []
    for entry in (row.get("filtered_resps") or row.get("resps") or [])[:n]:
        while isinstance(entry, list) and entry:
            entry = entry[0]
        try:
            values.append(float(entry))
        except (TypeError, ValueError):
            return None
    return tuple(values) if n and len(values) == n else None


def _prediction(row: dict[str, Any], endings: list[str], logprobs: tuple[float, ...] | None) -> str | None:
    if endings:
        return None if logprobs is None or not all(map(math.isfinite, logprobs)) else str(int(np.argmax(logprobs)))
    reply: Any = row.get("filtered_resps")
    while isinstance(reply, list) and reply:
        reply = reply[0]
    return reply if isinstance(reply, str) else None
