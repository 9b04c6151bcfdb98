"""How answers become scores: text, numbers, several references, and battles; each with the score of a blind guess."""

from __future__ import annotations

import gzip
import json
import os
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapscope.errors import InputError
from gapscope.items import Item
from gapscope.params import Results
from gapscope.results.arena import read_arena
from gapscope.results.bring import items_of
from gapscope.results.plain import import_results
from gapscope.results.policies import BATTLE_CHANCE, apply_policy, battle_score, exact_match, extract_number, references_of
from gapscope.results.select import select
from gapscope.results.subject import detect, match
from gapscope.scores import summarise
from tests.results.made_logs import BATTLES, write_lines


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She sells 16 - 3 = 13 eggs.\n#### 26", "26"),
        ("#### 1,234.50", "1234.5"),
        ("#### 3\nNo, wrong.\n#### 4", "4"),
        ("#### $18 a day, for 2 days", "18"),
        (r"so \boxed{-7} of the 12", "-7"),
        ("The answer is 42. I am sure of it, at 99%.", "42"),
        ("Answer: 3/4 of a cup", "3/4"),
        ("first 5, then 12 in all.", "12"),
        ("about 1.5e3 metres", "1500"),
        ("minus: −5", "-5"),
        ("x2 and v1.2 are names", None),
        ("no number", None),
        ("#### none, but 8 before", "8"),
        ("１２", "12"),
        ("3/0", None),
    ],
)
def test_the_number_that_a_solution_ends_with(text: str, number: str | None) -> None:
    assert extract_number(text) == (None if number is None else Fraction(number))


@pytest.mark.parametrize(
    ("reply", "reference", "score"),
    [
        ("It is 1,000.0", "#### 1000", 1.0),
        ("0.5", "1/2", 1.0),
        ("0.33", "1/3", 0.0),
        ("five", "5", 0.0),
        ("5", "five", 0.0),
        ("-5", "5", 0.0),
    ],
)
def test_number_match(reply: str, reference: str, score: float) -> None:
    assert apply_policy("number", reply, [reference]) == score


@pytest.mark.parametrize(
    ("reply", "reference", "same"),
    [
        (" Paris.", "paris", True),
        ("“The  Hague”", "the hague", True),
        ("Ｐａｒｉｓ", "Paris", True),
        ("Paris, France", "Paris", False),
        ("", "x", False),
    ],
)
def test_exact_match(reply: str, reference: str, same: bool) -> None:
    assert exact_match(reply, reference) is same


def test_any_of_several_references_is_right() -> None:
    item = Item("i", "b", "i", "Capital?", target="The Hague", meta={"references": ["The Hague", "Den Haag"]})
    assert references_of(item) == ("The Hague", "Den Haag")
    assert apply_policy("exact", "den haag", references_of(item)) == 1.0
    assert apply_policy("exact", "Amsterdam", references_of(item)) == 0.0
    assert references_of(Item("i", "b", "i", "?", ("x", "y"), 1)) == ("y",)
    assert item.chance == 0.0


def test_a_column_of_solutions_against_the_targets(tmp_path: Path) -> None:
    items = [
        Item("1", "b", "1", "2 + 3?", target="5"),
        Item("2", "b", "2", "500 + 500?", target="1000"),
        Item("3", "b", "3", "1 + 1?", target="2"),
    ]
    file = write_lines(
        tmp_path / "r.jsonl", [{"id": 2, "reply": "#### 1,000"}, {"id": 1, "reply": "I have 5 of 6"}, {"id": 3, "reply": ""}]
    )
    results = Results(file="r.jsonl", prediction_column="reply", prediction_form="number", missing="wrong")
    scores, counts = import_results(file, items, results)
    assert [score.score for score in scores] == [0.0, 1.0, 0.0]
    assert (counts["n_missing"], counts["n_not_a_choice"]) == (1, 0)
    assert summarise(items, scores)["chance"]["macro"] == 0.0


@pytest.mark.parametrize(
    ("winner", "score"), [("a", 1.0), ("b", 0.0), ("tie", 0.5), ("tie (bothbad)", 0.5), ("Both_Bad", 0.5), ("c", None), ("", None)]
)
def test_one_side_of_a_battle(winner: str, score: float | None) -> None:
    assert battle_score(winner, "a", "b") == score
    other = battle_score(winner, "b", "a")
    assert other == (None if score is None else 1 - score)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_battles_of_one_side(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"battles{suffix}"
    match suffix:
        case ".jsonl":
            write_lines(file, BATTLES)
        case ".csv":
            file.write_text("".join(",".join(map(str, row)) + "\n" for row in [list(BATTLES[0]), *(row.values() for row in BATTLES)]))
        case _:
            pq.write_table(pa.Table.from_pylist(BATTLES), file)
    assert detect(file) == "arena"
    log = read_arena([file])
    with pytest.raises(InputError, match=r"battles has 3 metrics: ours \(0.5 over 3\), theirs \(0.375 over 4\), third \(1 over 1\)"):
        select(log, None, None)
    (task,) = select(log, "ours", None)
    assert (task.scores, task.recomputed) == ([1.0, 0.0, 0.5], 0.5)
    items, dropped = items_of(task.answers, "battles", "other")
    assert [(item.id, item.target) for item in items] == [("battles-b1", "ours"), ("battles-b2", "theirs"), ("battles-b3", "tie")]
    assert not dropped
    scores = match(log, [task], items).scores
    assert [score.chance for score in scores] == [BATTLE_CHANCE] * 3
    assert summarise(items, scores)["chance"]["macro"] == 0.5


def test_other_forms_of_battles_and_battles_without_a_result(tmp_path: Path) -> None:
    one_hot = {
        "id": 7,
        "model_a": "x",
        "model_b": "y",
        "winner_model_a": 0,
        "winner_model_b": 0,
        "winner_tie": 1,
        "prompt": '["Hello there", "Bye"]',
    }
    spoken = {"id": 8, "model_a": "x", "model_b": "y", "winner": "model_b", "conversation_a": [{"role": "user", "content": "Sing."}]}
    log = read_arena([write_lines(tmp_path / "b.jsonl", [one_hot])])
    assert (log.answers[0].scores, log.answers[0].text) == ({"x": 0.5, "y": 0.5}, "Hello there")
    odd = [spoken, spoken | {"id": 9, "winner": "nobody"}, spoken | {"id": 10, "model_b": "x"}]
    log = read_arena([write_lines(tmp_path / "c.jsonl", odd)])
    assert (log.answers[0].scores, log.answers[0].text) == ({"x": 0.0, "y": 1.0}, "Sing.")
    assert select(log, "x", None)[0].scores == [0.0, None]
    assert log.notes == ["c: 1 battles left unscored: both sides are one subject", "c: 1 battles left unscored: the winner is 'nobody'"]
    with pytest.raises(InputError, match=":1: is no battle"):
        read_arena([write_lines(tmp_path / "d.jsonl", [{"model_a": "x"}])])


SHARED = os.environ.get("GAPSCOPE_SHARED")


@pytest.mark.skipif(not SHARED, reason="GAPSCOPE_SHARED is not set")
def test_real_solutions_give_their_own_numbers() -> None:
    with gzip.open(Path(SHARED or "") / "benchmarks" / "gsm8k_test.jsonl.gz", "rt") as stream:
        rows = [json.loads(line) for line in stream]
    assert len(rows) == 1319
    numbers = [row["target"].rpartition("####")[2].strip().replace(",", "") for row in rows]
    assert [extract_number(row["target"]) for row in rows] == [Fraction(number) for number in numbers]
    assert all(apply_policy("number", f"The answer is ${number}.", [row["target"]]) for number, row in zip(numbers, rows, strict=True))
