"""Battles of an arena: a prompt, two subjects and the preferred one, in JSON lines, CSV or Parquet.

The metric of a battle is a subject's name: 1 where it won, 0.5 where neither did, 0 where it lost. The winner stands in
``winner`` (model_a, model_b, a name, or a tie), or in ``winner_model_a``, ``winner_model_b`` and ``winner_tie`` as 0 and 1.
A subject's score depends on whom it met; battles do not replace a benchmark with gold answers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapscope.benchmarks.reading import Row, read_rows, table_suffix
from gapscope.errors import InputError
from gapscope.results.answers import Answer, Log
from gapscope.results.policies import BATTLE_CHANCE, battle_score
from gapscope.results.streams import json_objects

ONE_HOT = {"winner_model_a": "model_a", "winner_model_b": "model_b", "winner_tie": "tie"}
PROMPTS = ("prompt", "question", "instruction", "conversation_a", "conversation")
NAMES = ("question_id", "id", "conversation_id", "battle_id")
TIE = "tie"


def is_arena(columns: list[str]) -> bool:
    """Whether a table with these columns holds battles."""
    return {"model_a", "model_b"} <= set(columns) and ("winner" in columns or set(ONE_HOT) <= set(columns))


def read_arena(files: list[Path]) -> Log:
    """Read battles; a file is a task, under its name.

    Raises:
        InputError: a file is damaged, or lacks the columns of a battle.
    """
    answers: list[Answer] = []
    notes: list[str] = []
    understood: dict[str, str] = {}
    for file in files:
        task = file.name.split(".")[0]
        if task in understood:
            raise InputError(f"two files are named {task}", file=file, fix="give them different names")
        faults: Counter[str] = Counter()
        for line, row in _rows(file):
            if not is_arena(list(row)):
                raise InputError(f"is no battle; the columns are {', '.join(list(row)[:8])}", file=file, line=line, fix="check --format")
            answers.append(_answer(row, line, task, file, faults))
        notes += [f"{task}: {n} battles left unscored: {fault}" for fault, n in sorted(faults.items())]
        understood[task] = f"text the prompt; id one of {', '.join(NAMES)}; score 1 won, 0.5 tied, 0 lost"
    if not answers:
        raise InputError("holds no row", file=files[0])
    return Log("arena", files, None, answers, understood=understood, notes=notes)


def _rows(file: Path) -> Iterator[tuple[int, Row]]:
    return json_objects(file) if table_suffix(file) == ".jsonl" else read_rows(file)


def _answer(row: Row, line: int, task: str, file: Path, faults: Counter[str]) -> Answer:
    a, b = str(row["model_a"] or "").strip(), str(row["model_b"] or "").strip()
    if not a or not b:
        raise InputError("names no subject", file=file, line=line, field="model_b" if a else "model_a")
    winner = _winner(row)
    named = {"model_a": a, "model_b": b}.get(winner, winner)
    scores = {} if a == b else {a: battle_score(named, a, b), b: battle_score(named, b, a)}
    if a == b:
        faults["both sides are one subject"] += 1
    elif scores[a] is None:
        faults[f"the winner is {winner!r}"] += 1
    name = next((row[column] for column in NAMES if row.get(column) not in (None, "")), None)
    return Answer(
        line=line,
        task=task,
        text=next((text for column in PROMPTS if (text := _prompt(row.get(column)))), ""),
        name=None if name is None else str(name).strip(),
        target=named if scores and scores[a] in (0.0, 1.0) else TIE,
        scores=scores,
        chance=BATTLE_CHANCE,
        meta={key: row[key] for key in ("language", "category") if isinstance(row.get(key), str) and row[key]},
    )


def _winner(row: Row) -> str:
    if row.get("winner") not in (None, ""):
        return str(row["winner"]).strip()
    marked = [side for column, side in ONE_HOT.items() if str(row.get(column)).strip().lower() in ("1", "1.0", "true")]
    return marked[0] if len(marked) == 1 else ""


def _prompt(value: Any) -> str:
    """What the person asked first: text, a list of texts (in JSON), or a conversation."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value).strip()
    if isinstance(value, list) and value:
        asked = [part for part in value if not isinstance(part, dict) or part.get("role") == "user"]
        first = asked[0] if asked else ""
        value = first.get("content") if isinstance(first, dict) else first
    return str(value).strip() if isinstance(value, str) else ""
