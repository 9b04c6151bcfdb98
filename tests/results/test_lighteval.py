"""Details of lighteval, of every field set, whole and damaged.

What must hold: the releases' field sets give the same; ``doc.id``, a row's number, is no id; the results file is found
where the releases put it; text columns with Python literals are read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapscope.errors import InputError
from gapscope.results.lighteval import read_lighteval
from gapscope.results.select import select
from gapscope.results.subject import detect
from tests.results.made_logs import ACC, DATE, LOGPROBS, QUESTIONS, lighteval_flat, lighteval_nested, write_details

ALL = range(len(QUESTIONS))
NAME = f"details_leaderboard|colours|0_{DATE}.parquet"


def as_text(row: dict[str, Any]) -> dict[str, Any]:
    """The row as some releases wrote it where a table could not hold its values."""
    pairs = [(logprob, False) for logprob, _ in row["predictions"]]
    return {key: str(value) for key, value in (row | {"predictions": pairs}).items()}


FORMS = {
    "text without logits": [as_text(lighteval_flat(k)) | {"pred_logits": "[]"} for k in ALL],
    "flat": [lighteval_flat(k) for k in ALL],
    "text": [as_text(lighteval_flat(k)) for k in ALL],
    "nested": [lighteval_nested(k) for k in ALL],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_field_set_gives_the_same(tmp_path: Path, form: str) -> None:
    file = write_details(tmp_path / "details" / "some" / "model" / DATE / NAME, FORMS[form])
    beside = tmp_path / "results" / "some" / "model" / f"results_{DATE}.json"
    beside.parent.mkdir(parents=True)
    entries = {"leaderboard:colours:0": {"acc": 0.75, "acc_stderr": 0.1, "acc_norm": 0.75}, "all": {"acc": 0.1}}
    beside.write_text(json.dumps({"config_general": {"model_name": "some/model"}, "results": entries}))
    assert detect(file) == "lighteval"
    log = read_lighteval([file])
    (task,) = select(log, "acc", None)
    assert (log.model, task.task, task.equal, task.scores) == ("some/model", "leaderboard|colours|0", True, ACC)
    for k, answer in enumerate(task.answers):
        assert answer.text == f"Question: {QUESTIONS[k]['question']}\nAnswer:"
        assert (answer.choices, answer.answer) == (tuple(QUESTIONS[k]["choices"]), QUESTIONS[k]["answer"])
        assert (answer.name, answer.logprobs) == (None, tuple(LOGPROBS[k]))


def test_a_generation_has_references_instead_of_choices(tmp_path: Path) -> None:
    row = lighteval_nested(0)
    row["doc"] |= {"query": "Name a prime.", "choices": ["two", "three"], "gold_index": [0, 1]}
    row["model_response"] |= {"text": ["three"], "logprobs": [-0.5, -0.25]}
    row["metric"] = {"em": 1.0}
    (answer,) = read_lighteval([write_details(tmp_path / NAME, [row])]).answers
    assert (answer.choices, answer.target, answer.references, answer.prediction) == ((), "two", ("two", "three"), "three")


def test_the_instruction_is_no_part_of_the_question(tmp_path: Path) -> None:
    row = lighteval_flat(0) | {"instruction": "About colours.\n\n", "example": "About colours.\n\nWhich is warm?"}
    (answer,) = read_lighteval([write_details(tmp_path / NAME, [row])]).answers
    assert answer.text == "Which is warm?"


def test_log_probabilities_that_are_not_finite(tmp_path: Path) -> None:
    rows = [lighteval_flat(k) | {"pred_logits": str(LOGPROBS[k]), "predictions": "[]"} for k in ALL]
    rows[1]["pred_logits"] = "[nan, -2.5, -inf]"
    (task,) = select(read_lighteval([write_details(tmp_path / NAME, rows)]), "acc", None)
    assert (task.scores, task.answers[1].fault) == ([1.0, None, 1.0, 1.0], "not_finite")


def test_a_metric_without_a_number(tmp_path: Path) -> None:
    rows = [as_text(lighteval_flat(k) | {"metrics": {"acc": float("nan") if k == 0 else 1.0}}) for k in ALL]
    (task,) = select(read_lighteval([write_details(tmp_path / NAME, rows)]), None, None)
    assert task.scores == [None, 1.0, 1.0, 1.0]


def test_damaged_details_are_named(tmp_path: Path) -> None:
    file = write_details(tmp_path / NAME, FORMS["nested"])
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_lighteval([file])
    other = write_details(tmp_path / "other.parquet", [{"id": 1, "right": True}])
    assert detect(other) is None
    with pytest.raises(InputError, match="holds no details; its columns are id, right"):
        read_lighteval([other])


def test_a_limited_run_is_told(tmp_path: Path) -> None:
    file = write_details(tmp_path / NAME, FORMS["nested"])
    (tmp_path / f"results_{DATE}.json").write_text(json.dumps({"config_general": {"max_samples": 4, "model_config": {"model_name": "m"}}}))
    log = read_lighteval([file])
    assert (log.model, log.notes) == ("m", ["leaderboard|colours|0: the run was limited (--max-samples 4)"])
