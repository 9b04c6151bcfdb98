"""Logs of Inspect: ``.json``, and ``.eval``, a zip archive with one member a sample, packed in zstd or deflate.

A score's metric is its scorer's name, with a key after a dot where a scorer gives several values. C is 1, P is 0.5, I and
N are 0, truth values and numbers from 0 to 1 stay what they are; any other value leaves the sample unscored, and never 0.
"""

from __future__ import annotations

import string
from collections import Counter
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.results.answers import MOST_PROMPT, Answer, Key, Log
from gapscope.results.streams import ZIP, json_document, open_zip, opening, zip_json

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
CONVERT = "convert it with: inspect log convert --to json --output-dir DIR FILE"
ATTACHMENT = "attachment://"


def read_inspect(files: list[Path]) -> Log:
    """Read logs, each of one task.

    Raises:
        InputError: a file is damaged or no such log, holds no sample, or two files are of one task or of several models.
    """
    answers: list[Answer] = []
    stated: dict[Key, float] = {}
    notes: list[str] = []
    of_task: dict[str, Path] = {}
    models: set[str] = set()
    for file in files:
        packed = opening(file).startswith(ZIP)
        header, samples = _read_eval(file) if packed else json_document(file, "samples", _Sample)
        run = header.get("eval")
        if not isinstance(run, dict) or not isinstance(run.get("task"), str):
            raise InputError("is missing, or names no task", file=file, field="eval", fix="this is no log of Inspect")
        task = run["task"]
        if of_task.setdefault(task, file) != file:
            raise InputError(f"task {task} is also in {of_task[task].name}", file=file, fix="give the files of one run only")
        if not samples:
            raise InputError("holds no sample", file=file, fix="it may be a log of the header only; log with --log-samples")
        answers += [sample.answer(number, task, file) for number, sample in enumerate(samples, start=1)]
        stated |= _stated(header, task)
        notes += _notes(header, task, samples)
        models.add(str(run.get("model") or ""))
    if len(models) > 1:
        raise InputError(f"the files are of {len(models)} models: {', '.join(sorted(models))}", file=files[0], fix="import one at a time")
    understood = dict.fromkeys(of_task, "text input; choices choices; id id")
    return Log("inspect", files, next(iter(models)) or None, answers, stated, {}, understood, notes)


def _read_eval(file: Path) -> tuple[dict[str, Any], list[_Sample]]:
    with open_zip(file) as archive:
        names = list(dict.fromkeys(archive.namelist()))
        # A run that was killed has written how it began and the samples that were done, and no header.
        header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        if header is None:
            raise InputError("holds neither header.json nor _journal/start.json", file=file, fix="this is no log of Inspect")
        members = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
        samples = [_Sample(zip_json(archive, name, file, CONVERT)) for name in members]
        return zip_json(archive, header, file, CONVERT), samples


class _Sample:
    """What is kept of a logged sample; its events and messages are let go at once."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw if isinstance(raw, dict) else {}
        attachments = self.raw.get("attachments") or {}
        self.text = _input_text(self.raw.get("input"), attachments)
        self.reply = (self.raw.get("output") or {}).get("completion") if isinstance(self.raw.get("output"), dict) else None
        self.prompt = next((_content(m, attachments) for m in self.raw.get("messages") or [] if m.get("role") == "user"), "")
        kept = ("id", "epoch", "choices", "target", "scores", "error", "metadata", "invalidation")
        self.raw = {name: self.raw.get(name) for name in kept}
        self.values, self.unknown = _values(self.raw["scores"] or {})

    def answer(self, number: int, task: str, file: Path) -> Answer:
        raw = self.raw
        if isinstance(raw["id"], bool) or not isinstance(raw["id"], (str, int)):
            raise InputError("the sample has no id", file=file, line=number, field="samples.id")
        choices = tuple(str(choice).strip() for choice in raw["choices"] or ())
        targets = raw["target"] if isinstance(raw["target"], list) else [raw["target"]]
        texts = tuple(str(target).strip() for target in targets if target is not None and str(target).strip())
        letters = string.ascii_uppercase[: len(choices)]
        gold = letters.index(texts[0]) if choices and len(texts) == 1 and len(texts[0]) == 1 and texts[0] in letters else None
        fault = "error" if raw["error"] else "invalidated" if raw["invalidation"] else None
        answered = [score.get("answer") for score in (raw["scores"] or {}).values() if isinstance(score, dict)]
        chosen = answered[0] if answered and isinstance(answered[0], str) else None
        return Answer(
            line=number,
            task=task,
            text=self.text,
            name=str(raw["id"]),
            prompt=self.prompt[-MOST_PROMPT:],
            choices=choices,
            answer=gold,
            target=None if choices else next(iter(texts), None),
            references=() if choices else texts,
            scores=self.values,
            prediction=_chosen(chosen, letters) if choices else chosen or self.reply,
            fault=fault,
            repeat=raw["epoch"] if isinstance(raw["epoch"], int) else 1,
            meta={k: v for k, v in (raw["metadata"] or {}).items() if isinstance(v, (str, int)) and v != ""},
        )


def _chosen(answer: str | None, letters: str) -> str | None:
    return str(letters.index(answer)) if answer and len(answer) == 1 and answer in letters else None


def _input_text(value: Any, attachments: dict[str, Any]) -> str:
    """The question: the input as it is, or the last message of the user in it."""
    if isinstance(value, list):
        messages = [message for message in value if isinstance(message, dict)]
        asked = [message for message in messages if message.get("role") == "user"] or messages
        return _content(asked[-1], attachments) if asked else ""
    return _resolved(value, attachments).strip()


def _content(message: dict[str, Any], attachments: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "\n".join(_resolved(part, attachments) for part in parts if isinstance(part, str)).strip()
    return _resolved(content, attachments).strip()


def _resolved(text: Any, attachments: dict[str, Any]) -> str:
    """A long text may be kept apart, under its hash."""
    if isinstance(text, str) and text.startswith(ATTACHMENT):
        return str(attachments.get(text.removeprefix(ATTACHMENT), ""))
    return text if isinstance(text, str) else ""


def _values(scores: dict[str, Any]) -> tuple[dict[str, float | None], list[str]]:
    """Score by metric, None where the value is none of those known; and those values."""
    found: dict[str, float | None] = {}
    unknown: list[str] = []
    for scorer, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        parts = {f"{scorer}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {scorer: value}
        for metric, part in parts.items():
            found[metric] = _number(part)
            if found[metric] is None:
                unknown.append(f"{metric}={part!r}")
    return found, unknown


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return LETTERS.get(value)
    if isinstance(value, (bool, int, float)) and 0 <= value <= 1:
        return float(value)
    return None


def _stated(header: dict[str, Any], task: str) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for score in (header.get("results") or {}).get("scores") or []:
        metrics = score.get("metrics") or {}
        value = (metrics.get("accuracy") or metrics.get("mean") or {}).get("value")
        if isinstance(value, (int, float)):
            name, scorer = str(score.get("name")), str(score.get("scorer") or score.get("name"))
            found[task, name if name == scorer else f"{scorer}.{name}", ""] = float(value)
    return found


def _notes(header: dict[str, Any], task: str, samples: list[_Sample]) -> list[str]:
    notes = []
    if header.get("status") != "success":
        notes.append(f"{task}: the run is not whole (status {header.get('status', 'started')})")
    config = header["eval"].get("config") or {}
    if config.get("limit"):
        notes.append(f"{task}: the run was limited (--limit {config['limit']})")
    reducers = config.get("epochs_reducer") or []
    if reducers and reducers != ["mean"]:
        notes.append(f"{task}: the log's own accuracy reduces epochs by {', '.join(reducers)}; here it is always the mean")
    errors = sum(bool(sample.raw["error"]) for sample in samples)
    if errors:
        notes.append(f"{task}: {errors} samples ended in an error")
    unknown = Counter(value for sample in samples for value in sample.unknown)
    if unknown:
        shown = ", ".join(f"{value} ({n})" for value, n in unknown.most_common(3))
        notes.append(f"{task}: values that are no known score, left unscored: {shown}")
    return notes
