"""Logs of Inspect, as JSON and as archives, whole and damaged.

What must hold: C, I, P, N, truth values and numbers from 0 to 1 are scores, all else is unscored and told; epochs are
reduced by the mean; an archive gives what the JSON gives, in deflate and in zstd.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gapscope.errors import InputError
from gapscope.results.answers import Log
from gapscope.results.inspect import read_inspect
from gapscope.results.select import select
from gapscope.results.subject import detect
from tests.results.made_logs import QUESTIONS, inspect_log, inspect_sample, write_eval, write_json

WHOLE = inspect_log([inspect_sample(k, value) for k, value in enumerate("CIIC")], 0.5)


def read(path: Path, log: dict[str, Any]) -> Log:
    return read_inspect([write_json(path / "log.json", log)])


def scores(log: Log, metric: str | None = None) -> list[float | None]:
    return select(log, metric, None)[0].scores


def test_a_whole_log(tmp_path: Path) -> None:
    file = write_json(tmp_path / "log.json", WHOLE)
    assert detect(file) == "inspect"
    log = read_inspect([file])
    (task,) = select(log, None, None)
    assert (log.model, log.tasks, log.notes) == ("some/model", ["colours"], [])
    assert (task.metric, task.stated, task.recomputed, task.equal) == ("choice", 0.5, 0.5, True)
    assert task.scores == [1.0, 0.0, 0.0, 1.0]
    first = task.answers[0]
    assert (first.name, first.text, first.answer, first.prediction) == ("q-1", QUESTIONS[0]["question"], 0, "0")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93])
def test_an_archive_gives_the_same(tmp_path: Path, method: int) -> None:
    file = write_eval(tmp_path / "log.eval", WHOLE, method=method)
    assert {member.compress_type for member in zipfile.ZipFile(file).infolist()} == {method}
    assert detect(file) == "inspect"
    plain, packed = read(tmp_path, WHOLE), read_inspect([file])
    assert packed.answers == plain.answers
    assert packed.stated == plain.stated


def test_a_way_of_packing_that_is_not_known_names_the_conversion(tmp_path: Path) -> None:
    file = write_eval(tmp_path / "log.eval", WHOLE, method=93)
    with patch("gapscope.results.streams.ZSTD", -1), pytest.raises(InputError, match="inspect log convert --to json"):
        read_inspect([file])


def test_a_log_of_a_run_that_was_killed(tmp_path: Path) -> None:
    log = read_inspect([write_eval(tmp_path / "log.eval", WHOLE, finished=False)])
    assert log.notes == ["colours: the run is not whole (status started)"]
    assert (scores(log), log.stated) == ([1.0, 0.0, 0.0, 1.0], {})


@pytest.mark.parametrize(
    ("value", "score"),
    [
        *(("C", 1.0), ("I", 0.0), ("P", 0.5), ("N", 0.0), (True, 1.0), (False, 0.0), (0.25, 0.25), (1, 1.0)),
        *(("c", None), ("yes", None), ("0.5", None), ("E", None), (7, None), (-1, None), (None, None), ([1, 0], None)),
    ],
)
def test_values(tmp_path: Path, value: Any, score: float | None) -> None:
    """Inspect itself takes every letter that it does not know for 0."""
    log = read(tmp_path, inspect_log([inspect_sample(0, value), inspect_sample(1, "C")]))
    assert scores(log) == [score, 1.0]
    assert len(log.notes) == (score is None)


def test_unknown_values_are_told_with_their_number(tmp_path: Path) -> None:
    log = read(tmp_path, inspect_log([inspect_sample(0, "X"), inspect_sample(1, "X"), inspect_sample(2, "Y"), inspect_sample(3, "C")]))
    assert log.notes == ["colours: values that are no known score, left unscored: choice='X' (2), choice='Y' (1)"]


def test_epochs_are_reduced_by_the_mean(tmp_path: Path) -> None:
    rows = [inspect_sample(k, value, epoch) for epoch, values in ((1, "CI"), (2, "CC"), (3, "IC")) for k, value in enumerate(values)]
    rows[1]["scores"]["choice"]["value"] = "?"
    log = read(tmp_path, inspect_log(rows, (2 / 3 + 1) / 2, eval={"task": "colours", "model": "m", "config": {"epochs": 3}}))
    (task,) = select(log, None, None)
    assert task.scores == [2 / 3, 1.0]  # the epoch that has no score is left out of the mean
    assert (task.n_rows, task.equal) == (6, True)


def test_another_reducer_is_told(tmp_path: Path) -> None:
    config = {"epochs": 3, "epochs_reducer": ["at_least_2"], "limit": 10}
    log = read(tmp_path, inspect_log([inspect_sample(0, "C")], 1.0, eval={"task": "colours", "model": "m", "config": config}))
    assert log.notes == [
        "colours: the run was limited (--limit 10)",
        "colours: the log's own accuracy reduces epochs by at_least_2; here it is always the mean",
    ]


def test_a_sample_twice_in_one_epoch(tmp_path: Path) -> None:
    log = read(tmp_path, inspect_log([inspect_sample(0, "C"), inspect_sample(1, "C"), inspect_sample(0, "I")]))
    with pytest.raises(InputError, match="item 'q-1' is in row 1 already"):
        select(log, None, None)


def test_several_scorers_and_scores_with_keys(tmp_path: Path) -> None:
    both = {"choice": {"value": "C"}, "graded": {"value": {"style": 0.5, "fact": "I"}}}
    log = read(tmp_path, inspect_log([inspect_sample(0, "C", scores=both)]))
    with pytest.raises(InputError, match=r"3 metrics: choice .*, graded\.style .*, graded\.fact"):
        select(log, None, None)
    assert [scores(log, name) for name in ("choice", "graded.style", "graded.fact")] == [[1.0], [0.5], [0.0]]


def test_a_sample_that_ended_in_an_error_is_unscored(tmp_path: Path) -> None:
    failed = inspect_sample(1, "I", scores=None, error={"message": "boom"})
    log = read(tmp_path, inspect_log([inspect_sample(0, "C"), failed], 1.0))
    (task,) = select(log, None, None)
    assert (task.scores, task.answers[1].fault, task.equal) == ([1.0, None], "error", True)
    assert log.notes == ["colours: 1 samples ended in an error"]


def test_chat_input_attachments_and_several_targets(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "attachment://abc"}]}]
    changes = {"input": chat, "attachments": {"abc": "Name a prime."}, "choices": None, "target": ["two", "three"]}
    (answer,) = read(tmp_path, inspect_log([inspect_sample(0, "C", **changes)])).answers
    assert (answer.text, answer.choices, answer.target, answer.references) == ("Name a prime.", (), "two", ("two", "three"))


def test_damaged_logs_are_named(tmp_path: Path) -> None:
    text = json.dumps(WHOLE, indent=2)
    cases = {
        text[: len(text) // 2]: "the file may be cut short",
        "{": "not valid JSON",
        '{"eval": {},\n "samples": [{"id": 1,\n "epoch": 1,\n "id": 2}]}': "log.json:4: id: the key occurs twice in one object",
        '{"eval": ' + "[" * 100_000: "JSON that cannot be read",
        '{"eval": 3}': "eval: is missing, or names no task",
        json.dumps({**WHOLE, "samples": []}): "holds no sample",
        json.dumps(inspect_log([inspect_sample(0, "C", id=None)])): "the sample has no id",
    }
    for data, expected in cases.items():
        file = tmp_path / "log.json"
        file.write_text(data)
        with pytest.raises(InputError) as caught:
            read_inspect([file])
        assert expected in str(caught.value)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, 93])
def test_a_damaged_archive_is_named(tmp_path: Path, method: int) -> None:
    file = write_eval(tmp_path / "log.eval", WHOLE, method=method)
    data = bytearray(file.read_bytes())
    member = zipfile.ZipFile(file).getinfo("samples/q-2_epoch_1.json")
    data[member.header_offset + 80] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"samples/q-2_epoch_1\.json: damaged"):
        read_inspect([file])
    file.write_bytes(bytes(data[:-40]))
    with pytest.raises(InputError, match="not a readable zip archive"):
        read_inspect([file])
