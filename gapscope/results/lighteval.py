"""Details of lighteval: one Parquet file a task, ``details_<task>_<date>.parquet``, with ``results_<date>.json`` near it.

Releases up to 0.10 give a column to each part (example, full_prompt, choices, gold_index, predictions, metrics), some of
them as Python text; later ones nest them (doc, model_response, metric). ``doc.id`` is the row's number, so items are
known by their text. Columns of tokens, by far the largest, are never read.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gapscope.errors import InputError
from gapscope.files import read_json
from gapscope.results.answers import MOST_PROMPT, Answer, Key, Log, split_scores

NAME = re.compile(r"^details_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.:-]+)\.parquet$")
FLAT = (
    *("example", "instruction", "full_prompt", "choices", "gold", "gold_index", "predictions", "pred_logits", "metrics"),
    *("num_effective_few_shots", "num_asked_few_shots"),
)
NESTED = (
    *("doc.query", "doc.choices", "doc.gold_index", "doc.instruction", "doc.original_query", "doc.task_name"),
    *("model_response.input", "model_response.text", "model_response.logprobs", "metric"),
)
NAN = re.compile(r"([\[(,:]\s*)-?(?:nan|inf)\b")
BATCH = 1000


def read_lighteval(files: list[Path]) -> Log:
    """Read details files, each of one task.

    Raises:
        InputError: a file is damaged or holds no details, or two files are of one task.
    """
    answers: list[Answer] = []
    stated: dict[Key, float] = {}
    not_scores: dict[tuple[str, str], str] = {}
    notes: list[str] = []
    of_task: dict[str, Path] = {}
    models: set[str] = set()
    for file in files:
        read = [_answer(row, number, _task_of(file), not_scores) for number, row in enumerate(_rows(file), start=1)]
        if not read:
            raise InputError("holds no row", file=file)
        task = read[0].task
        if of_task.setdefault(task, file) != file:
            raise InputError(f"task {task} is also in {of_task[task].name}", file=file, fix="give the files of one run only")
        answers += read
        results = _results_of(file)
        stated |= _stated(results, task)
        limit = _general(results).get("max_samples")
        notes += [f"{task}: the run was limited (--max-samples {limit})"] if limit else []
        models |= {name for name in [_model(results, file)] if name}
    if len(models) > 1:
        raise InputError(f"the files are of {len(models)} models: {', '.join(sorted(models))}", file=files[0], fix="import one at a time")
    understood = dict.fromkeys(of_task, "text query; choices choices; id a hash of the content")
    return Log("lighteval", files, next(iter(models), None), answers, stated, not_scores, understood, notes)


def columns_of(file: Path) -> list[str]:
    """Names of the columns of a Parquet file, dotted where nested.

    Raises:
        InputError: not a readable Parquet file.
    """
    try:
        schema = pq.ParquetFile(file).schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"not a readable Parquet file: {str(error).splitlines()[0]}", file=file, fix="it may be cut short") from error

    def names(field: pa.Field, before: str = "") -> Iterator[str]:
        yield before + field.name
        if pa.types.is_struct(field.type):
            for inner in field.type:
                yield from names(inner, f"{before}{field.name}.")

    return [name for field in schema for name in names(field)]


def is_details(columns: list[str]) -> bool:
    """Whether a Parquet file with these columns holds details, of either field set."""
    return {"doc", "metric", "model_response"} <= set(columns) or {"full_prompt", "metrics", "gold_index"} <= set(columns)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    present = columns_of(file)
    if not is_details(present):
        raise InputError(f"holds no details; its columns are {', '.join(present[:8])}", file=file, fix="check --format")
    wanted = [name for name in (NESTED if "doc" in present else FLAT) if name in present]
    try:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=BATCH, columns=wanted):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"not a readable Parquet file: {str(error).splitlines()[0]}", file=file, fix="it may be cut short") from error


def _task_of(file: Path) -> str:
    match = NAME.match(file.name)
    return match["task"] if match else file.stem


def _answer(row: dict[str, Any], number: int, task: str, not_scores: dict[tuple[str, str], str]) -> Answer:
    doc, response = row.get("doc"), row.get("model_response") or {}
    if isinstance(doc, dict):
        query, prompt = doc.get("original_query") or doc.get("query"), response.get("input")
        instruction, choices, gold = doc.get("instruction"), doc.get("choices"), doc.get("gold_index")
        replies, logprobs, metrics = response.get("text") or [], response.get("logprobs") or [], row.get("metric")
        task = doc.get("task_name") or task
    else:
        query, prompt, instruction = row.get("example"), row.get("full_prompt"), row.get("instruction")
        choices, gold, metrics = (_parsed(row.get(name)) for name in ("choices", "gold_index", "metrics"))
        predictions = _flat(_parsed(row.get("predictions")))
        replies = [part for part in predictions if isinstance(part, str)]
        logprobs = _flat(_parsed(row.get("pred_logits"))) or [part for part in predictions if not isinstance(part, str)]
    options = tuple(str(choice).strip() for choice in choices or ())
    golds = [index for index in _flat(gold) if isinstance(index, int) and 0 <= index < len(options)]
    values = [float(value) for value in _flat(logprobs) if isinstance(value, (int, float)) and not isinstance(value, bool)]
    # What a generation may say stands under choices too; only a question whose choices were weighed is multiple choice.
    weighed = not replies and len(options) > 1
    scored = tuple(values) if weighed and len(values) == len(options) else None
    return Answer(
        line=number,
        task=task,
        text=str(query or "").removeprefix(str(instruction or "\0")).strip(),
        prompt=_prompt(prompt)[-MOST_PROMPT:],
        choices=options if weighed else (),
        answer=golds[0] if weighed and len(set(golds)) == 1 else None,
        target=options[golds[0]] if golds and not weighed else None,
        references=() if weighed else tuple(dict.fromkeys(options[index] for index in golds)),
        scores=split_scores(metrics if isinstance(metrics, dict) else {}, task, number, not_scores),
        prediction=str(max(range(len(scored)), key=scored.__getitem__)) if scored and all(map(math.isfinite, scored)) else _first(replies),
        logprobs=scored,
        fault="not_finite" if scored and not all(map(math.isfinite, scored)) else None,
    )


def _parsed(value: Any) -> Any:
    """A column as it was: some releases write lists and dicts as their Python text."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        # Python's text of a NaN is no Python: among metrics it becomes null, among log-probabilities another infinity.
        known = NAN.sub(r"\g<1>None" if value.startswith("{") else r"\g<1>1e999", value)
        for text in (value, known):
            with suppress(ValueError, SyntaxError):
                return ast.literal_eval(text)
        return None
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _flat(value: Any) -> list[Any]:
    """The leaves of nested lists; of a pair (log-probability, is greedy) the first only."""
    if not isinstance(value, (list, tuple)):
        return [] if value is None else [value]
    if len(value) == 2 and isinstance(value[1], bool) and not isinstance(value[0], bool):
        return [value[0]]
    return [leaf for part in value for leaf in _flat(part)]


def _prompt(value: Any) -> str:
    if isinstance(value, list) and value:
        last = value[-1]
        return str(last.get("content") or "") if isinstance(last, dict) else str(last)
    return value if isinstance(value, str) else ""


def _first(replies: list[Any]) -> str | None:
    return next((reply for reply in replies if isinstance(reply, str)), None)


def companion(file: Path) -> Path | None:
    """The results file of the run: beside the details, above them, or in the tree ``results/`` that mirrors ``details/``."""
    match = NAME.match(file.name)
    name = f"results_{match['date']}.json" if match else "results.json"
    places = [file.parent / name, file.parent.parent / name]
    trees = [above for above in file.parents if above.name == "details"]
    places += [above.parent / "results" / file.parent.parent.relative_to(above) / name for above in trees]
    return next((place for place in places if place.is_file()), None)


def _results_of(file: Path) -> dict[str, Any]:
    found = companion(file)
    results = {} if found is None else read_json(found)
    return results if isinstance(results, dict) else {}


def _general(results: dict[str, Any]) -> dict[str, Any]:
    general = results.get("config_general")
    return general if isinstance(general, dict) else {}


def _model(results: dict[str, Any], file: Path) -> str | None:
    general = _general(results)
    nested = general.get("model_config")
    name = general.get("model_name") or (nested.get("model_name") if isinstance(nested, dict) else None)
    if name:
        return str(name)
    above = next((parent for parent in file.parents if parent.name == "details"), None)
    return None if above is None else file.parent.parent.relative_to(above).as_posix()


def _stated(results: dict[str, Any], task: str) -> dict[Key, float]:
    """The run's own means; the signs in a task's name differ between the results, the details and the file's name."""
    plain = re.sub(r"\W+", "_", task)
    for name, entries in (results.get("results") or {}).items():
        if re.sub(r"\W+", "_", name) == plain and isinstance(entries, dict):
            numbers = {m: v for m, v in entries.items() if isinstance(v, (int, float)) and not m.endswith("_stderr")}
            return {(task, metric, ""): float(value) for metric, value in numbers.items()}
    return {}
