"""What holds of every format: ids, duplicates, sampling, and independence of the order of rows and files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from made_sources import benchmark, jsonl, read
from pydantic import ValidationError

from gapscope.benchmarks import read_benchmark, sample
from gapscope.errors import InputError

OPTIONS: dict[str, Any] = {"choices": "choices", "answer": "answer"}


def rows(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{n}", "question": f"Question {n}?", "choices": ["a", "b", f"c{n}"], "answer": n % 3} for n in range(count)]


def test_ids_come_from_the_source_or_from_the_content(tmp_path: Path) -> None:
    jsonl(tmp_path / "t.jsonl", rows(2))
    assert [item.id for item in read(tmp_path, "rows", **OPTIONS, id="key").items] == ["b-k0", "b-k1"]
    assert [item.id for item in read(tmp_path, "rows", **OPTIONS, id="key", keep_id=True).items] == ["k0", "k1"]
    by_content = {item.text: item.id for item in read(tmp_path, "rows", **OPTIONS).items}
    # sha256 of "question 0?", "a", "b", "c0" joined by U+001F.
    assert by_content["Question 0?"] == "b-33ae7c812e1d"


def test_content_id_ignores_case_spacing_and_order_of_choices(tmp_path: Path) -> None:
    first = {"question": "Which  one?", "choices": ["Alpha", "beta"], "answer": 0}
    second = {"question": "which one?", "choices": ["BETA", "alpha "], "answer": 1}
    for name, row in (("one", first), ("two", second)):
        jsonl(tmp_path / f"{name}.jsonl", [row])
    one, two = (read(tmp_path, "rows", f"{name}.jsonl", **OPTIONS).items[0] for name in ("one", "two"))
    assert one.id == two.id
    both = read(tmp_path, "rows", **OPTIONS)
    assert both.dropped == {"duplicate": 1}
    assert both.items == [one]


def test_same_question_with_two_golds_is_dropped_whole(tmp_path: Path) -> None:
    row = {"question": "Which?", "choices": ["a", "b"], "answer": 0}
    jsonl(tmp_path / "t.jsonl", [row, row | {"answer": 1}, row, *rows(3)])
    result = read(tmp_path, "rows", **OPTIONS)
    assert result.dropped == {"contradictory_golds": 3}
    assert len(result.items) == 3
    # The same gold in another position is no contradiction.
    jsonl(tmp_path / "t.jsonl", [row, row | {"choices": ["b", "a"], "answer": 1}])
    assert read(tmp_path, "rows", **OPTIONS).dropped == {"duplicate": 1}


def test_duplicate_id_is_an_error_unless_the_question_is_the_same(tmp_path: Path) -> None:
    given = rows(3)
    jsonl(tmp_path / "t.jsonl", [*given, given[1]])
    assert read(tmp_path, "rows", **OPTIONS, id="key").dropped == {"duplicate": 1}
    jsonl(tmp_path / "t.jsonl", [*given, given[1] | {"question": "Another?"}])
    with pytest.raises(InputError, match=r"t\.jsonl:4: key: id 'b-k1' was another question's before"):
        read(tmp_path, "rows", **OPTIONS, id="key")


def test_row_without_its_id_is_counted(tmp_path: Path) -> None:
    given = rows(3)
    given[1]["key"] = None
    jsonl(tmp_path / "t.jsonl", given)
    result = read(tmp_path, "rows", **OPTIONS, id="key")
    assert result.dropped == {"no_id": 1}
    assert result.n_rows == 3


def test_order_of_rows_and_files_does_not_matter(tmp_path: Path) -> None:
    given = [*rows(30), *rows(4), {"question": "QUESTION 3?", "choices": ["C3", "b", "a"], "answer": 2}]
    jsonl(tmp_path / "one" / "t.jsonl", given)
    shuffled = random.Random(4).sample(given, len(given))
    jsonl(tmp_path / "two" / "z.jsonl", shuffled[:11])
    jsonl(tmp_path / "two" / "a.jsonl", shuffled[11:])
    one, two = (read(tmp_path / name, "rows", **OPTIONS) for name in ("one", "two"))
    assert one == two
    assert one.dropped == {"duplicate": 5}


def test_a_higher_limit_only_adds_and_another_item_moves_no_other(tmp_path: Path) -> None:
    jsonl(tmp_path / "t.jsonl", rows(60))
    items = read(tmp_path, "rows", **OPTIONS, id="key").items
    previous: set[str] = set()
    for limit in (1, 7, 20, 59, 60, 100):
        chosen = {item.id for item in sample(items, limit, seed=20)}
        assert len(chosen) == min(limit, 60)
        assert previous <= chosen
        previous = chosen
    few = {item.id for item in sample(items, 20, seed=20)}
    removed = next(item for item in items if item.id not in few)
    assert {item.id for item in sample([item for item in items if item != removed], 20, seed=20)} == few
    gone = next(item for item in items if item.id in few)
    without = {item.id for item in sample([item for item in items if item != gone], 20, seed=20)}
    assert few - {gone.id} < without
    assert {item.id for item in sample(items, 20, seed=21)} != few
    assert sample(items, None, seed=20) == items


def test_family_column(tmp_path: Path) -> None:
    given = [row | {"group": "g1" if n < 2 else None} for n, row in enumerate(rows(3))]
    jsonl(tmp_path / "t.jsonl", given)
    families = {item.id: item.family for item in read(tmp_path, "rows", **OPTIONS, id="key", family="group").items}
    assert families == {"b-k0": "b-g1", "b-k1": "b-g1", "b-k2": "b-k2"}


def test_files_outside_the_source_and_files_that_are_not_there(tmp_path: Path) -> None:
    jsonl(tmp_path / "t.jsonl", rows(1))
    with pytest.raises(InputError, match=r"no file matches 'u\.jsonl'"):
        read(tmp_path, "rows", ["t.jsonl", "u.jsonl"], **OPTIONS)
    for pattern in ("../t.jsonl", "/etc/passwd", ""):
        with pytest.raises(ValidationError):
            benchmark("rows", pattern, options=OPTIONS)


@pytest.mark.parametrize(
    ("answer", "choices", "index"),
    [
        ("Yes", ["Yes", "No"], 0),
        (" no ", ["Yes", "No"], 1),
        ("True", ["Yes", "No"], 0),
        (False, ["Yes", "No"], 1),
        (1, ["Yes", "No"], 0),
        (["yes"], ["No", "Yes"], 1),
        ("maybe", ["yes", "no", "maybe"], 2),
        ("True", ["True", "False"], 0),
    ],
)
def test_yes_and_no(tmp_path: Path, answer: Any, choices: list[str], index: int) -> None:
    jsonl(tmp_path / "t.jsonl", [{"passage": "P", "question": "is it", "answer": answer}])
    (item,) = read(tmp_path, "yes_no", passage="passage", choices=choices).items
    assert (item.text, item.choices, item.answer) == ("P\nis it", tuple(choices), index)


@pytest.mark.parametrize(
    ("answer", "reason"), [("perhaps", "no_gold"), (None, "no_gold"), (2, "no_gold"), (["yes", "no"], "several_golds")]
)
def test_yes_and_no_without_a_gold(tmp_path: Path, answer: Any, reason: str) -> None:
    jsonl(tmp_path / "t.jsonl", [{"question": "is it", "answer": answer}])
    assert read(tmp_path, "yes_no").dropped == {reason: 1}


def test_item_schema_passes_through(tmp_path: Path) -> None:
    row = {"id": "x/1", "family": "x", "text": "T", "choices": ["a", "b"], "answer": 1, "kind": "social", "meta": {"type": "t"}}
    jsonl(tmp_path / "t.jsonl.gz", [row])
    (item,) = read_benchmark("b", benchmark("items"), tmp_path).items
    assert (item.id, item.benchmark, item.family, item.kind, item.meta) == ("x/1", "b", "x", "social", {"type": "t"})
    jsonl(tmp_path / "u.jsonl", [row | {"answer": 2}])
    with pytest.raises(InputError, match=r"u\.jsonl:1: .*answer 2 with 2 choices"):
        read_benchmark("b", benchmark("items"), tmp_path)
    with pytest.raises(InputError, match="the item schema is JSON lines"):
        (tmp_path / "t.csv").write_text("id\n1\n")
        read_benchmark("b", benchmark("items", "t.csv"), tmp_path)
