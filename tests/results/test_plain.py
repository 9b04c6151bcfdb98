"""A table of results becomes a subject by id alone: whatever its format, order or extra rows, and never by a guess."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from gapscope.artifacts import SCORES
from gapscope.errors import InputError
from gapscope.items import Item, write_items
from gapscope.params import Results
from gapscope.results.plain import import_results
from gapscope.scores import summarise
from stages.score import main

ITEMS = [
    Item("m-1", "m", "m-1", "one?", ("red", "green", "blue"), 2),
    Item("m-2", "m", "m-2", "two?", ("red", "green"), 0),
    Item("m-3", "m", "m-3", "three?", ("yes", "no"), 1),
    Item("m-4", "m", "m-4", "four?", (), None, "forty"),
]
CHOICE_ITEMS = ITEMS[:3]


def results(**given: Any) -> Results:
    return Results(file="r", **{"id_prefix": "m-", **given})


LETTERS = results(prediction_column="answer", prediction_form="letter")
SCORED = results(score_column="right")


def file(path: Path, text: str, name: str = "r.csv") -> Path:
    (path / name).write_text(text, encoding="utf-8", newline="")
    return path / name


def scores_of(path: Path, how: Results, items: list[Item] = CHOICE_ITEMS) -> list[float | None]:
    return [score.score for score in import_results(path, items, how)[0]]


ROWS: list[dict[str, Any]] = [{"id": 3, "right": 0.25}, {"id": 1, "right": 1}, {"id": 2, "right": 0}, {"id": 9, "right": 1}]


def write_rows(path: Path, suffix: str) -> Path:
    target = path / f"r{suffix}"
    match suffix.removesuffix(".gz"):
        case ".csv":
            data = "".join(f"{row['id']},{row['right']}\n" for row in [{"id": "id", "right": "right"}, *ROWS]).encode()
        case ".jsonl":
            data = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
        case _:
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist([{**row, "right": float(row["right"])} for row in ROWS]), sink)
            data = sink.getvalue().to_pybytes()
    target.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    return target


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz", ".parquet.gz"])
def test_every_format_gives_the_same(tmp_path: Path, suffix: str) -> None:
    scores, counts = import_results(write_rows(tmp_path, suffix), ITEMS, SCORED)
    assert [(score.item_id, score.score, score.reason) for score in scores] == [
        ("m-1", 1.0, None),
        ("m-2", 0.0, None),
        ("m-3", 0.25, None),
        ("m-4", None, "no_result"),
    ]
    assert counts == {"n_without_result": 1, "n_without_item": 1, "n_missing": 0, "n_not_a_choice": 0}


def test_letters(tmp_path: Path) -> None:
    """m-1's gold is C; m-2 has no choice E, but E is an answer, and wrong."""
    scores, counts = import_results(file(tmp_path, "id,answer\r\n1,c\r\n2,E\r\n3,A\r\n"), CHOICE_ITEMS, LETTERS)
    assert [(score.score, score.prediction) for score in scores] == [(1.0, "2"), (0.0, "4"), (0.0, "0")]
    assert counts["n_not_a_choice"] == 1


@pytest.mark.parametrize(("form", "cells"), [("index", ["2", 1, 1.0]), ("text", ["blue", " green", "no"]), ("letter", ["C", "B", "B"])])
def test_forms_of_a_prediction(tmp_path: Path, form: str, cells: list[Any]) -> None:
    path = file(tmp_path, "".join(json.dumps({"id": k + 1, "p": cell}) + "\n" for k, cell in enumerate(cells)), "r.jsonl")
    scores, counts = import_results(path, CHOICE_ITEMS, results(prediction_column="p", prediction_form=form))
    assert [(score.score, score.prediction) for score in scores] == [(1.0, "2"), (0.0, "1"), (1.0, "1")]
    assert counts["n_not_a_choice"] == 0


def test_text_answers_of_free_form_items(tmp_path: Path) -> None:
    how = results(prediction_column="p", prediction_form="text")
    assert scores_of(file(tmp_path, "id,p\n4, forty \n3,maybe\n1,blue\n"), how, ITEMS) == [1.0, None, 0.0, 1.0]


def test_empty_cells_follow_the_stated_rule(tmp_path: Path) -> None:
    path = file(tmp_path, "id,answer\n1,C\n2,\n3,A\n")
    left_out, counts = import_results(path, CHOICE_ITEMS, LETTERS)
    assert [score.score for score in left_out] == [1.0, None, 0.0]
    assert counts["n_missing"] == 1
    assert summarise(CHOICE_ITEMS, left_out)["accuracy"]["micro"] == 1 / 2
    wrong, counts = import_results(path, CHOICE_ITEMS, LETTERS.model_copy(update={"missing": "wrong"}))
    assert [score.score for score in wrong] == [1.0, 0.0, 0.0]
    assert counts["n_missing"] == 1
    assert summarise(CHOICE_ITEMS, wrong)["accuracy"]["micro"] == 1 / 3


def test_nan_is_unscored_by_either_rule(tmp_path: Path) -> None:
    path = file(tmp_path, "id,right\n1,1\n2,nan\n3,True\n")
    for rule in ("unscored", "wrong"):
        scores, _ = import_results(path, CHOICE_ITEMS, SCORED.model_copy(update={"missing": rule}))
        assert [(score.score, score.reason) for score in scores] == [(1.0, None), (None, "not_finite"), (1.0, None)]


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        ("id,right\n1,1\n2,0\n1,1\n", SCORED, "r.csv:4: id: duplicate id 'm-1', first on line 2"),
        ("id,right\n1,1.5\n", SCORED, "r.csv:2: right: '1.5' is no score from 0 to 1"),
        ("id,right\n1,1\n2,-0.1\n", SCORED, "r.csv:3: right: '-0.1' is no score"),
        ("id,right\n1,inf\n", SCORED, "'inf' is no score"),
        ("id,right\n1,C\n", SCORED, "'C' is no score"),
        ("id,right\n ,1\n", SCORED, "r.csv:2: id: ' ' is no id"),
        ("key,right\n1,1\n", SCORED, "no column 'id'; there are 'key', 'right'"),
        ("id,acc\n1,1\n", SCORED, "no column 'right'"),
        ("id,answer\n1,C\n2,red\n", LETTERS, "r.csv:3: answer: 'red' is not one letter"),
        ("id,answer\n1,C\n4,A\n", LETTERS, "item 'm-4' has no choices"),
        ("id,answer\n1,1.5\n", results(prediction_column="answer", prediction_form="index"), "'1.5' is not an index from 0"),
        ("id,answer\n1,C\n2,A\n", results(prediction_column="answer", prediction_form="text"), "no prediction names a choice"),
        ("id,right\nm-1,1\n", SCORED, "no id is an item's: the file has 'm-m-1', the items have 'm-1', 'm-2', 'm-3', ..."),
        ("id,right\n1,1,1\n", SCORED, "r.csv:2"),
        ("id,right\n", SCORED, "holds no row"),
        ("", SCORED, "empty"),
        ("id,right\n1,1\n2,\x00\n", SCORED, "r.csv:3: holds a NUL byte"),
    ],
)
def test_what_is_at_fault_is_named(tmp_path: Path, text: str, how: Results, message: str) -> None:
    with pytest.raises(InputError) as caught:
        import_results(file(tmp_path, text), ITEMS, how)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_files(tmp_path: Path) -> None:
    whole = write_rows(tmp_path, ".csv.gz").read_bytes()
    (tmp_path / "r.csv.gz").write_bytes(whole[:-9])
    with pytest.raises(InputError, match="not a readable gzip file"):
        import_results(tmp_path / "r.csv.gz", ITEMS, SCORED)
    cut = write_rows(tmp_path, ".parquet")
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        import_results(cut, ITEMS, SCORED)
    with pytest.raises(InputError, match=r"r\.jsonl:2: not valid JSON"):
        import_results(file(tmp_path, '{"id": 1, "right": 1}\n{"id": 2, "ri', "r.jsonl"), ITEMS, SCORED)
    with pytest.raises(InputError, match=r"use \.jsonl"):
        import_results(file(tmp_path, "x", "r.xlsx"), ITEMS, SCORED)


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    assert scores_of(file(tmp_path, "\ufeffid,right\r\n1,1\r\n2,0\r\n3,0\r\n"), SCORED) == [1.0, 0.0, 0.0]


def test_a_partial_match_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import_results(file(tmp_path, "id,right\n1,1\n8,0\n9,0\n"), ITEMS, SCORED)
    assert "1 of 4 items have a result, 1 of 3 results have an item" in caplog.text


def test_command_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_items(tmp_path / "items.jsonl", ITEMS)
    file(tmp_path, "qid,model\n1,C\n2,\n3,B\n")
    options = "--results r.csv --items items.jsonl --id-column qid --id-prefix m- --prediction-column model --prediction-form letter"
    for name in ("one", "two"):
        done = CliRunner().invoke(main, [*options.split(), "--output", name, "--metrics", f"{name}.json", "--missing", "wrong"])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "one/scores.parquet").read_bytes() == (tmp_path / "two/scores.parquet").read_bytes()
    table = SCORES.read(tmp_path / "one/scores.parquet").to_pydict()
    assert table["score"] == [1.0, 0.0, 1.0, None]
    assert table["prediction"] == ["2", None, "1", None]
    metrics = json.loads((tmp_path / "one.json").read_text())
    assert metrics["accuracy"]["micro"] == pytest.approx(2 / 3)
    assert (metrics["n_missing"], metrics["n_without_result"], metrics["n_without_item"]) == (1, 1, 0)
    refused = CliRunner().invoke(main, ["--results", "r.csv", "--items", "items.jsonl", "--output", "no", "--prediction-column", "model"])
    assert refused.exit_code == 2
    assert "prediction_form" in refused.output
