"""Items out of a log: who has nothing but the results of a run has its questions too."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from gapscope.errors import InputError
from gapscope.items import Item, item_faults
from gapscope.params_data import ResultsBenchmark
from gapscope.results.answers import Answer, Log, content_key
from gapscope.results.subject import read_log

UNCLEAR_GOLD = "unclear_gold"
"""The target names no choice, or several."""


def slug_of(name: str) -> str:
    """A name as a slug: small letters, digits and single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "log"


def groups_of(log: Log) -> list[tuple[str, list[str]]]:
    """Benchmarks by slug, each with its tasks: the log's own groups where it holds them whole, else a task each.

    Raises:
        InputError: two names have one slug.
    """
    tasks = log.tasks
    groups = [(slug_of(name), parts) for name, parts in log.groups.items() if len(parts) > 1 and set(parts) <= set(tasks)]
    grouped = {task for _name, parts in groups for task in parts}
    found = groups + [(slug_of(task), [task]) for task in tasks if task not in grouped]
    for slug, n in Counter(slug for slug, _tasks in found).items():
        if n > 1:
            raise InputError(f"two tasks have the slug {slug}", file=log.files[0], fix="import them one at a time")
    return found


def bring_benchmark(slug: str, benchmark: ResultsBenchmark, files: list[Path]) -> tuple[list[Item], Counter[str], int]:
    """The items of a benchmark that is a log: one a question that was asked, how many were left out and why, and of how many.

    Raises:
        InputError: a file is damaged or of another format, or its metric is none of the log's.
    """
    answers = read_log(files, benchmark.log).answers
    if benchmark.metric is not None:
        answers = [answer for answer in answers if benchmark.metric in answer.scores]
        if not answers:
            raise InputError(f"no row has the metric {benchmark.metric!r}", file=files[0], field=f"benchmarks.{slug}.metric")
    items, dropped = items_of(answers, slug, benchmark.kind)
    return items, dropped, len(items) + dropped.total()


def items_of(answers: Iterable[Answer], benchmark: str, kind: str) -> tuple[list[Item], Counter[str]]:
    """The items that answers are of, one for each row of the data set, and how many were left out and why.

    Filters and repetitions ask a row several times; it counts once. An item's id is the benchmark's slug and the log's own
    id of it; without one, or where the log uses it for several questions, a hash of its text and choices.
    """
    asked: dict[tuple[object, ...], Answer] = {}
    contents: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for answer in answers:
        asked.setdefault((answer.task, answer.name, answer.position, answer.text, answer.choices), answer)
        if answer.name is not None:
            contents[answer.name].add(content_key(answer.text, answer.choices))
    items: list[Item] = []
    dropped: Counter[str] = Counter()
    several = len({answer.task for answer in asked.values()}) > 1
    for answer in asked.values():
        item = _item(answer, benchmark, kind, own_id=len(contents.get(answer.name or "", ())) == 1, several=several)
        unclear = answer.choices and answer.answer is None
        reasons = [UNCLEAR_GOLD] if unclear else [reason for reason, _why in item_faults(item)]
        if reasons:
            dropped[reasons[0]] += 1
        else:
            items.append(item)
    return items, dropped


def _item(answer: Answer, benchmark: str, kind: str, *, own_id: bool, several: bool) -> Item:
    key = "\x1f".join(content_key(answer.text, answer.choices))
    name = answer.name if own_id else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    meta = dict(answer.meta)
    if answer.doc_hash:
        meta["doc_hash"] = answer.doc_hash
    if several:
        meta["task"] = answer.task
    if len(answer.references) > 1:
        meta["references"] = list(answer.references)
    item_id = f"{benchmark}-{name}"
    return Item(item_id, benchmark, item_id, answer.text, answer.choices, answer.answer, answer.target, kind, meta)
