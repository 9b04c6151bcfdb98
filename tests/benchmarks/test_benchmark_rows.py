"""Tables with named columns: hub layouts, answers of every form, and what is dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_sources import benchmark, jsonl, read
from pydantic import ValidationError

from gapscope.benchmarks import BenchmarkItems
from gapscope.errors import InputError


def only(result: BenchmarkItems) -> tuple[str, tuple[str, ...], int | None]:
    (item,) = result.items
    return item.text, item.choices, item.answer


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        # cais/mmlu
        (
            {"question": "Q", "subject": "law", "choices": ["a", "b"], "answer": 1},
            {"choices": "choices", "answer": "answer"},
            ("Q", ("a", "b"), 1),
        ),
        # allenai/ai2_arc, whose labels are letters or digits
        (
            {"question": "Q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
            {"choices": "choices.text", "labels": "choices.label", "answer": "answerKey", "answer_is": "label"},
            ("Q", ("a", "b"), 1),
        ),
        # winogrande, social_i_qa: one column a choice, counted from 1
        (
            {"sentence": "Q", "option1": "a", "option2": "b", "answer": "2"},
            {"question": "sentence", "choices": ["option1", "option2"], "answer": "answer", "answer_is": "index_from_1"},
            ("Q", ("a", "b"), 1),
        ),
        # TIGER-Lab/MMLU-Pro
        (
            {"question": "Q", "options": ["a", "b", "c"], "answer": "C"},
            {"choices": "options", "answer": "answer", "answer_is": "letter"},
            ("Q", ("a", "b", "c"), 2),
        ),
        # truthful_qa, multiple choice with one truth
        (
            {"question": "Q", "mc1_targets": {"choices": ["a", "b"], "labels": [0, 1]}},
            {"choices": "mc1_targets.choices", "answer": "mc1_targets.labels", "answer_is": "one_hot"},
            ("Q", ("a", "b"), 1),
        ),
        # A choices column of JSON text, numbers for choices, the gold as text
        (
            {"question": "Q", "passage": "P", "choices": "[1, 2.5]", "answer": "2.5"},
            {"passage": "passage", "choices": "choices", "answer": "answer", "answer_is": "text"},
            ("P\nQ", ("1", "2.5"), 1),
        ),
        # A column whose name holds a dot; choices that end early
        (
            {"q.text": "Q", "c1": "a", "c2": "b", "c3": None, "gold": 0.0},
            {"question": "q.text", "choices": ["c1", "c2", "c3"], "answer": "gold"},
            ("Q", ("a", "b"), 0),
        ),
    ],
)
def test_common_layouts(tmp_path: Path, row: dict[str, Any], options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    jsonl(tmp_path / "t.jsonl", [row])
    assert only(read(tmp_path, "rows", **options)) == expected


@pytest.mark.parametrize(
    ("value", "form", "reason"),
    [
        (2, "index", "answer_out_of_range"),
        (-1, "index", "answer_out_of_range"),
        (0, "index_from_1", "answer_out_of_range"),
        (3, "index_from_1", "answer_out_of_range"),
        ("x", "index", "no_gold"),
        (0.5, "index", "no_gold"),
        ("nan", "index", "no_gold"),
        (True, "index", "no_gold"),
        (None, "index", "no_gold"),
        ([0, 1], "index", "several_golds"),
        ("C", "letter", "answer_out_of_range"),
        ("é", "letter", "no_gold"),
        ("c", "text", "no_gold"),
        ([0, 0], "one_hot", "no_gold"),
        ([1, 1], "one_hot", "several_golds"),
    ],
)
def test_golds_that_are_none(tmp_path: Path, value: Any, form: str, reason: str) -> None:
    rows = [{"question": "Q", "choices": ["a", "b"], "gold": value}]
    jsonl(tmp_path / "t.jsonl", rows)
    result = read(tmp_path, "rows", choices="choices", answer="gold", answer_is=form)
    assert result.items == []
    assert result.dropped == {reason: 1}


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ([], "no_choices"),
        (None, "no_choices"),
        ("a, b", "unparsable_options"),
        ({"a": 1}, "unparsable_options"),
        (["a"], "single_choice"),
        (["a", ""], "empty_choice"),
        (["a", " a"], "duplicate_choice"),
        (["a", ["b"]], "not_text"),
        (["a", "\ud800"], "not_text"),
    ],
)
def test_choices_that_are_none(tmp_path: Path, choices: Any, reason: str) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"question": "Q", "choices": choices, "answer": 0}))
    result = read(tmp_path, "rows", choices="choices", answer="answer")
    assert result.dropped == {reason: 1}


def test_free_form_target(tmp_path: Path) -> None:
    rows = [
        {"question": "2+3?", "answer": "We add.\n#### 1\nNo: #### 5 "},
        {"question": "No mark?", "answer": "5"},
        {"question": "Nothing after it?", "answer": "#### "},
    ]
    jsonl(tmp_path / "t.jsonl", rows)
    result = read(tmp_path, "rows", target="answer", target_after="####")
    assert [(item.text, item.choices, item.answer, item.target) for item in result.items] == [("2+3?", (), None, "5")]
    assert result.dropped == {"no_gold": 2}


ROWS: list[dict[str, Any]] = [
    {"id": "007", "question": "ما هو؟", "choices": '["٧", "日本"]', "answer": 0, "subject": None},
    {"id": "1e5", "question": '<|im_start|>user </s> comma, "quote"\nline?', "choices": '["a", "b"]', "answer": 1, "subject": "x"},
    {"id": "12", "question": "Plain?", "choices": '["a", "b", "c"]', "answer": 2, "subject": "y"},
]
OPTIONS: dict[str, Any] = {"id": "id", "keep_id": True, "choices": "choices", "answer": "answer", "meta": {"subject": "subject"}}


def write_csv(path: Path, delimiter: str) -> None:
    def cell(value: Any) -> str:
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    lines = [delimiter.join(ROWS[0]), *(delimiter.join(cell(value) for value in row.values()) for row in ROWS)]
    # A byte order mark and CRLF, as spreadsheets write.
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")


def test_the_same_table_in_every_form_gives_the_same_items(tmp_path: Path) -> None:
    """Ids that look like numbers stay text, and a column that begins with null keeps its type."""
    jsonl(tmp_path / "t.jsonl", ROWS)
    jsonl(tmp_path / "t.jsonl.gz", ROWS)
    write_csv(tmp_path / "t.csv", ",")
    write_csv(tmp_path / "t.tsv", "\t")
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "t.parquet")
    expected = read(tmp_path, "rows", "t.jsonl", **OPTIONS).items
    assert [(item.id, item.answer, item.text) for item in expected] == [
        ("007", 0, ROWS[0]["question"]),
        ("12", 2, "Plain?"),
        ("1e5", 1, ROWS[1]["question"]),
    ]
    for name in ("t.jsonl.gz", "t.parquet"):
        assert read(tmp_path, "rows", name, **OPTIONS).items == expected
    for name in ("t.csv", "t.tsv"):
        found = read(tmp_path, "rows", name, **OPTIONS).items
        assert [(item.id, item.text, item.choices, item.answer) for item in found] == [
            (item.id, item.text, item.choices, item.answer) for item in expected
        ]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("t.csv", b"question,choices,answer\nQ,a\n", ":2: 2 fields, the header has 3"),
        ("t.csv", b'question,choices,answer\nQ,a,0\nR,"a', "t.csv:3: not valid CSV"),
        ("t.csv", b"question,question,answer\nQ,a,0\n", ":1: two columns have the same name"),
        ("t.csv", b"question,choices,answer\n", "holds no row"),
        ("t.csv", b"question,ch\x00oices,answer\n", ":1: holds a NUL byte"),
        ("t.csv", b"question,choices,answer\nQ,\xff,0\n", ":2: not UTF-8"),
        ("t.csv", b"", "the file is empty"),
        ("t.jsonl", b"\n\n", "holds no row"),
        ("t.jsonl", b'{"question": "Q", "choices": ["a"', ":1: not valid JSON"),
        ("t.parquet", b"PAR1 and nothing", "not a readable Parquet file"),
        ("t.xlsx", b"PK", "cannot read .xlsx"),
        ("t", b"x", "cannot read a file without a suffix"),
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        read(tmp_path, "rows", name, choices="choices", answer="answer")
    assert words in str(caught.value)
    assert name in str(caught.value)


def test_column_that_no_row_has_is_an_error_and_null_is_not(tmp_path: Path) -> None:
    jsonl(tmp_path / "t.jsonl", [{"question": "Q", "passage": None, "choices": ["a", "b"], "answer": 0}])
    assert len(read(tmp_path, "rows", choices="choices", answer="answer", passage="passage").items) == 1
    with pytest.raises(InputError, match=r"gold: no row has this column \(it has answer, choices, passage, question"):
        read(tmp_path, "rows", choices="choices", answer="gold")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"choices": "c"},
        {"choices": "c", "answer": "a", "target": "t"},
        {"target": "t", "answer": "a"},
        {"choices": "c", "answer": "a", "answer_is": "label"},
        {"choices": "c", "answer": "a", "keep_id": True},
        {"choices": "c", "answer": "a", "remove": ["("]},
        {"choices": "c", "answer": "a", "choice": "c"},
    ],
)
def test_options_that_do_not_fit_are_refused_before_reading(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        benchmark("rows", options=options)
