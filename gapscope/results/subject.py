"""A log as a subject: found out what it is, read, one metric and filter chosen, and joined with items."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gapscope.benchmarks import matching_files
from gapscope.errors import InputError
from gapscope.items import Item
from gapscope.params import Results
from gapscope.params_data import LogResults
from gapscope.params_types import LogFormat
from gapscope.results.answers import Answer, Log, mean, shorten
from gapscope.results.arena import is_arena, read_arena
from gapscope.results.inspect import read_inspect
from gapscope.results.join import Joined, Way, join
from gapscope.results.lighteval import columns_of, is_details, read_lighteval
from gapscope.results.lm_eval import read_lm_eval
from gapscope.results.plain import import_results
from gapscope.results.select import TaskScores, score_of, select
from gapscope.results.streams import ZIP, json_objects, opening
from gapscope.scores import ItemScore

logger = logging.getLogger(__name__)

READERS = {"lm_eval": read_lm_eval, "inspect": read_inspect, "lighteval": read_lighteval, "arena": read_arena}


@dataclass(frozen=True)
class Matched:
    """Scores of a log for some items.

    Attributes:
        scores: one an item, in the order of the items.
        joined: which answers are of which item, and which are of none.
    """

    scores: list[ItemScore]
    joined: Joined

    @property
    def counts(self) -> dict[str, int]:
        """What was matched and how, and what was not."""
        found = {f"n_by_{way}": n for way, n in sorted(self.joined.ways.items())}
        without = sum(score.reason == "no_result" for score in self.scores)
        rest = {"n_without_result": without, "n_without_item": len(self.joined.unmatched), "n_ambiguous": len(self.joined.ambiguous)}
        return found | rest


def read_log(files: Sequence[Path], log_format: LogFormat) -> Log:
    """Read files of a format.

    Raises:
        InputError: a file is damaged, or of another format.
    """
    return READERS[log_format](list(files))


def detect(file: Path) -> LogFormat | None:
    """What a file is, by its content; None for a plain table.

    Raises:
        InputError: the file is empty or damaged.
    """
    start = opening(file)
    if start.startswith(ZIP):
        return "inspect"
    if start.startswith(b"PAR1"):
        columns = columns_of(file)
        return "lighteval" if is_details(columns) else "arena" if is_arena(columns) else None
    if not start.startswith((b"{", b"[")):
        header = start.decode(errors="replace").splitlines()[:1]
        return "arena" if header and is_arena([name.strip('" ') for name in header[0].replace("\t", ",").split(",")]) else None
    if start.startswith(b"{") and b'"eval"' in start and (b'"status"' in start or b'"version"' in start):
        return "inspect"
    if start.split(b"\n", 1)[0].strip() == b"{":
        raise InputError("is a JSON document of no known log", file=file, fix="of lm-eval, give samples_*.jsonl, not results_*.json")
    _number, row = next(json_objects(file), (0, {}))
    if "doc" in row and "arguments" in row:
        return "lm_eval"
    return "arena" if is_arena(list(row)) else None


def import_subject(source: Path, items: Sequence[Item], results: Results | LogResults) -> tuple[list[ItemScore], dict[str, int]]:
    """A subject's results in its source's directory: a score each, in the order of the items, and counts of what did not fit.

    Raises:
        InputError: as :func:`gapscope.results.plain.import_results`, or for a log as :func:`read_log`,
            :func:`gapscope.results.select.select` and :func:`match`.
    """
    if isinstance(results, Results):
        return import_results(source / results.file, list(items), results)
    log = read_log(matching_files(source, results.files), results.format)
    for note in log.notes:
        logger.warning("%s", note)
    matched = match(log, select(log, results.metric, results.filter), items, results.join, results.id_prefix)
    return matched.scores, matched.counts


def match(log: Log, tasks: Sequence[TaskScores], items: Sequence[Item], way: Way = "auto", id_prefix: str = "") -> Matched:
    """The score of every item: that of its answer, or the mean where a data set holds a question twice.

    An item that the log does not hold, or holds without a usable score, is unscored, never wrong.

    Raises:
        InputError: no answer is of an item, or an id is of another question.
    """
    files = dict(zip(log.tasks, log.files, strict=True))
    whole = Joined()
    metric_of: dict[str, str] = {}
    for task in tasks:
        joined = join(task.answers, items, way, id_prefix, files[task.task])
        for item_id, answers in joined.by_item.items():
            whole.by_item[item_id] += answers
        whole.ways += joined.ways
        whole.unmatched += joined.unmatched
        whole.ambiguous += joined.ambiguous
        metric_of[task.task] = task.metric
    if items and not whole.by_item:
        answer = (whole.unmatched or whole.ambiguous)[0]
        message = f"no answer is of an item: the log has {shorten(answer.text, 100)!r}, the items have {shorten(items[0].text, 100)!r}"
        raise InputError(message, file=log.files[0], fix="give the items that the run had, or bring them from the log")
    return Matched([_score(item, whole.by_item.get(item.id, []), metric_of) for item in items], whole)


def _score(item: Item, answers: Sequence[Answer], metric_of: dict[str, str]) -> ItemScore:
    if not answers:
        return ItemScore(item.id, reason="no_result")
    usable = [(answer, score) for answer in answers if (score := score_of(answer, metric_of[answer.task])) is not None]
    if not usable:
        return ItemScore(item.id, reason=answers[0].fault or "no_score")
    answer = usable[0][0]
    value = mean(score for _answer, score in usable)
    predictions = {other.prediction for other, _score in usable}
    prediction = answer.prediction if len(predictions) == 1 else None
    return ItemScore(item.id, value, prediction, answer.logprobs if len(usable) == 1 else None, chance=answer.chance)
