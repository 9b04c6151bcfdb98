"""The item schema: what is refused, what stays as it is, and that writing is stable.

What must hold:
- each fault of section "bad input" is named with file, line and field, on one line;
- special-token strings, CJK and right-to-left text survive unchanged;
- a file written, read and written again has the same bytes, whatever the order of the items.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapscope.errors import InputError
from gapscope.items import Item, item_faults, read_items, write_items

SOUND: dict[str, Any] = {"id": "a", "benchmark": "b", "text": "Which?", "choices": ["x", "y"], "answer": 1}


def refusal(tmp_path: Path, *rows: Any) -> str:
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    with pytest.raises(InputError) as caught:
        read_items(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": 7}, "id: must be a string"),
        ({"id": "  "}, "id is empty"),
        ({"text": None}, "text: must be a string"),
        ({"text": " \n\t"}, "text is empty"),
        ({"choices": "x, y"}, "choices: must be a list of strings"),
        ({"choices": ["x", 2]}, "choices: must be a list of strings"),
        ({"choices": ["x"], "answer": 0}, "only one choice"),
        ({"choices": ["x", " x "]}, "two choices are the same text"),
        ({"choices": ["x", " "]}, "a choice is empty"),
        ({"answer": 2}, "answer 2 with 2 choices"),
        ({"answer": -1}, "answer -1 with 2 choices"),
        ({"answer": None}, "choices but no answer"),
        ({"answer": "B"}, "answer: must be the index"),
        ({"answer": True}, "answer: must be the index"),
        ({"answer": 1.0}, "answer: must be the index"),
        ({"choices": [], "answer": None}, "neither choices nor a target"),
        ({"target": 4}, "target: must be a string"),
        ({"meta": []}, "meta: must be an object"),
        ({"family": 3}, "family: must be a string"),
        ({"id": "a\nb"}, ":2: id: id holds a line break"),
        ({"benchmark": "a\tb"}, "benchmark holds a line break or another control character"),
        ({"family": "a\u2028b"}, "family holds a line break"),
        ({"benchmark": "__suite__"}, "benchmark is __suite__, the name of the whole suite"),
        ({"text": "half a pair \ud83d"}, "UTF-8 cannot encode"),
        ({"text": "a\x00b"}, "or NUL"),
        ({"meta": {"subject": "\udc00"}}, "UTF-8 cannot encode"),
    ],
)
def test_each_fault_is_named_with_its_line(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    message = refusal(tmp_path, SOUND, SOUND | {"id": "z"} | change)
    assert "items.jsonl:2: " in message
    assert words in message


def test_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    message = refusal(tmp_path, SOUND, SOUND | {"id": "b"}, "", SOUND)
    assert "items.jsonl:4: id: duplicate id 'a', first on line 1" in message


def test_empty_file_blank_file_and_cut_line(tmp_path: Path) -> None:
    assert "the file is empty" in refusal(tmp_path)
    assert "holds no item" in refusal(tmp_path, "", " ", "")
    assert "cut short" in refusal(tmp_path, SOUND, json.dumps(SOUND)[:-3])


def test_text_is_text(tmp_path: Path) -> None:
    texts = ["<|im_start|>user\n</s>[INST]<bos>", "日本語の質問?", "ما هو؟ \u202bעברית\u202c", "e\u0301 \u2028 🙂"]
    items = [Item(f"i{n}", "b", f"i{n}", text, (text, "other"), 0) for n, text in enumerate(texts)]
    write_items(tmp_path / "items.jsonl", items)
    assert read_items(tmp_path / "items.jsonl") == items


def test_bytes_do_not_depend_on_order(tmp_path: Path) -> None:
    items = [Item(f"i{n}", "b", "f", f"text {n}", ("x", "y"), n % 2, meta={"z": 1, "a": n}) for n in range(12)]
    write_items(tmp_path / "one.jsonl", items)
    write_items(tmp_path / "two.jsonl", reversed(read_items(tmp_path / "one.jsonl")))
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_defaults_and_chance(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a", "text": "t", "choices": ["x", "y", "z"], "answer": 0}\n{"id": "b", "text": "t", "target": "4"}\n')
    first, second = read_items(path)
    assert (first.family, first.benchmark, first.kind, first.meta) == ("a", "items", "knowledge", {})
    assert first.chance == pytest.approx(1 / 3)
    assert second.chance == 0.0


def test_every_fault_of_an_item_is_listed() -> None:
    reasons = [reason for reason, _text in item_faults(Item("", "b", "f", "", ("x", "x"), 5))]
    assert reasons == ["no_id", "no_text", "duplicate_choice", "answer_out_of_range"]
