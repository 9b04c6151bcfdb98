"""Lettered options: what is parsed, what is not, and which option a gold names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_sources import jsonl, read

from gapscope.benchmarks.lettered import gold_index, split_options
from gapscope.benchmarks.question import UnusableRowError


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("A. one\nB. two", ["one", "two"]),
        ("\nA. one\nB. two\n", ["one", "two"]),
        ("A. one \r\nB.  two\t", ["one", "two"]),
        ("(A) one\n(B) two\n(C) three", ["one", "two", "three"]),
        ("A) one\nB) two", ["one", "two"]),
        ("A: one\nB: two", ["one", "two"]),
        # Options over several lines, code among them, and lines that bear a letter which is not the next one.
        ("A. x = 1\n  y = 2\n\nB. x = 2\n  A. not an option\nC. z", ["x = 1\n  y = 2", "x = 2\n  A. not an option", "z"]),
        ("A. A. Milne\nB. B. Russell", ["A. Milne", "B. Russell"]),
        ("A.\nB. two", ["", "two"]),
        ("A. 日本\nB. عربي", ["日本", "عربي"]),
        ("\n".join(f"{chr(65 + n)}. o{n}" for n in range(26)) + "\n[. more", [f"o{n}" for n in range(25)] + ["o25\n[. more"]),
    ],
)
def test_options_are_split(text: str, options: list[str]) -> None:
    assert split_options(text.replace("\r\n", "\n")) == options


@pytest.mark.parametrize("text", ["", "  \n", "B. one\nC. two", ".\nA. one\nB. two", "one\ntwo", "A one\nB two"])
def test_what_does_not_begin_with_option_a_is_not_parsed(text: str) -> None:
    with pytest.raises(UnusableRowError) as caught:
        split_options(text)
    assert caught.value.reason == "unparsable_options"


@pytest.mark.parametrize(
    ("gold", "options", "index"),
    [
        ("B. two", ["one", "two"], 1),
        ("two", ["one", "two"], 1),
        (" TWO\n", ["one", "Two "], 1),
        ("B", ["one", "two"], 1),
        ("B.", ["one", "two"], 1),
        ("(B) two", ["one", "two"], 1),
        # A text that looks like a letter is a text first.
        ("B", ["B", "A"], 0),
        ("A. Milne", ["B. Russell", "A. Milne"], 1),
        ("A. x\n y", ["x\n  y", "z"], 0),
    ],
)
def test_gold_names_one_option(gold: str, options: list[str], index: int) -> None:
    assert gold_index(gold, options) == index


@pytest.mark.parametrize(
    ("gold", "options", "reason"),
    [
        ("three", ["one", "two"], "no_gold"),
        ("A. two", ["one", "two"], "no_gold"),
        ("C. three", ["one", "two"], "no_gold"),
        ("C", ["one", "two"], "no_gold"),
        ("one", ["one", "One"], "several_golds"),
    ],
)
def test_gold_that_names_none_or_two(gold: str, options: list[str], reason: str) -> None:
    with pytest.raises(UnusableRowError) as caught:
        gold_index(gold, options)
    assert caught.value.reason == reason


def row(**change: Any) -> dict[str, Any]:
    return {"question": "Which?", "options": "A. x\nB. y", "answer": "A. x"} | change


def test_rows_are_kept_or_counted_by_reason(tmp_path: Path) -> None:
    rows = [
        row(),
        row(question="Gold in a list?", answer=["y"]),
        row(question="Two golds?", answer=["x", "y"]),
        row(question="No gold?", answer=[]),
        row(question="Null gold?", answer=None),
        row(question=" ", answer="x"),
        row(question="One option?", options="A. x"),
        row(question="Same options?", options="A. x\nB. x\nC. y", answer="y"),
        row(question="Empty option?", options="A. x\nB. \nC. y"),
        row(question="Not options?", options=None),
        row(question="Options of another type?", options=["x", "y"]),
    ]
    result = read(jsonl(tmp_path / "t.jsonl", rows).parent, "lettered")
    assert [item.text for item in sorted(result.items, key=lambda item: item.text)] == ["Gold in a list?", "Which?"]
    assert result.n_rows == len(rows)
    assert result.dropped == {
        "duplicate_choice": 1,
        "empty_choice": 1,
        "no_gold": 2,
        "no_text": 1,
        "not_text": 1,
        "several_golds": 1,
        "single_choice": 1,
        "unparsable_options": 1,
    }


def test_passage_stays_before_the_question_and_removed_text_goes(tmp_path: Path) -> None:
    rows = [row(passage=" Context (1): First.\nContext (2): Second. ", question="Which?\nPlease choose ")]
    jsonl(tmp_path / "t.jsonl", rows)
    (item,) = read(tmp_path, "lettered", passage="passage", remove=[r"^Context \(\d+\): ", "^Please choose *$"]).items
    assert item.text == "First.\nSecond.\nWhich?"
    assert item.choices == ("x", "y")
    assert item.answer == 0
    # A row whose passage is null is its question alone.
    jsonl(tmp_path / "t.jsonl", [row(passage=None)])
    assert read(tmp_path, "lettered", passage="passage").items[0].text == "Which?"


def test_file_name_as_subject(tmp_path: Path) -> None:
    for name in ("Skin.jsonl", "Eye.jsonl.gz"):
        jsonl(tmp_path / name, [row(question=f"About {name}?")])
    subjects = {item.meta["subject"] for item in read(tmp_path, "lettered", file_as="subject").items}
    assert subjects == {"Skin", "Eye"}
