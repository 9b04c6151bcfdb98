"""Seeds: the committed ones are sound, and the check finds what it is there to find.

What must hold: at least 100 families with all seven types valid, at least 700 valid and 700 invalid variants, every
dimension failing on every type; gold positions in equal counts and shortcuts near chance; a damaged or unlabelled line
is refused with its number; an invalid seed may repeat a choice, a valid one may not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapscope.errors import InputError
from gapscope.items import Item
from gapscope.variants.seed_import import read_hellaswag_pro
from gapscope.variants.seeds import DIMENSIONS, check_seeds, read_seeds
from gapscope.variants.shortcuts import SHORTCUTS, credit, shortcut_accuracy
from gapscope.variants.types import TYPES

SEEDS = sorted((Path(__file__).parents[2] / "data/seeds").glob("*.jsonl"))


def test_committed_seeds_are_sound() -> None:
    report = check_seeds(read_seeds(SEEDS))
    assert report.faults == []
    assert report.counts["families"] >= 100
    assert report.counts["valid_variants"] >= 700
    assert report.counts["invalid_variants"] >= 700
    assert all(report.counts["invalid"][slug][name] >= 10 for slug in TYPES for name in DIMENSIONS)


def row(**changes: Any) -> dict[str, Any]:
    verdict = {"tc": True, "lc": True, "au": True, "valid": True}
    base = {
        "id": "a-original",
        "family": "a",
        "text": "Which?",
        "choices": ["x", "yy"],
        "answer": 0,
        "meta": {"type": "original", "verdict": verdict},
    }
    return base | changes


def write(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    file = tmp_path / "seeds.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in rows))
    return file


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"meta": {"type": "haiku", "verdict": {}}}, r"seeds\.jsonl:1: meta\.type: is 'haiku'"),
        ({"meta": {"type": ["original"], "verdict": {}}}, r"seeds\.jsonl:1: meta\.type: is \['original'\]"),
        ({"meta": {"type": "original"}}, r"meta\.verdict: needs tc, lc, au and valid"),
        ({"meta": {"type": "original", "verdict": {"tc": True, "lc": False, "au": True, "valid": True}}}, "exactly when tc, lc and au are"),
        ({"choices": ["x", "x"]}, "two choices are the same"),
        ({"answer": 2}, "answer 2 with 2 choices"),
        ({"meta": None}, "meta: must be an object"),
    ],
)
def test_damaged_seeds_are_refused(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read_seeds([write(tmp_path, row(**changes))])


def test_an_invalid_seed_needs_choices_of_text_all_the_same(tmp_path: Path) -> None:
    verdict = {"tc": True, "lc": True, "au": False, "valid": False}
    with pytest.raises(InputError, match=r"seeds\.jsonl:1: choices: must be a list of strings"):
        read_seeds([write(tmp_path, row(choices=[1, 2], meta={"type": "causal_inference", "verdict": verdict}))])


@pytest.mark.parametrize("kind", [["scene_transition"], {"a": 1}, 7, "haiku"])
def test_imported_seeds_of_no_known_type_are_refused(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(InputError, match=r"seeds\.jsonl:1: perturbation_type: is .*one of: problem_reparagraphing"):
        read_hellaswag_pro([write(tmp_path, {"id": 1, "perturbation_type": kind})])


def test_duplicate_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"duplicate id 'a-original', first in seeds\.jsonl:1"):
        read_seeds([write(tmp_path, row(), row())])


def test_an_invalid_seed_may_repeat_a_choice(tmp_path: Path) -> None:
    verdict = {"tc": True, "lc": True, "au": False, "valid": False}
    seeds = read_seeds([write(tmp_path, row(choices=["x", "x"], meta={"type": "causal_inference", "verdict": verdict}))])
    assert seeds[0].item.choices == ("x", "x")
    assert not seeds[0].valid


def test_the_check_finds_missing_types_and_skewed_positions(tmp_path: Path) -> None:
    rows = [row(id=f"{name}-original", family=name) for name in "abc"]
    faults = check_seeds(read_seeds([write(tmp_path, *rows)])).faults
    assert "a: no valid sentence_ordering" in faults
    assert "original: gold positions [3, 0] are not in equal counts" in faults
    assert "critical_testing: no invalid seed fails lc" in faults
    assert "original: the shortest choice is right in 100.0%, chance is 50.0%" in faults


def test_none_of_the_above_is_left_out_of_the_shortcuts() -> None:
    right = Item("a", "t", "a", "Which?", ("long enough", "short", "None of the above"), 0)
    nota = Item("b", "t", "b", "Which?", ("long enough", "short", "None of the above"), 2)
    assert shortcut_accuracy([right, nota]) == {"longest": 1.0, "shortest": 0.0, "overlap": 0.5, "chance": 0.5}
    assert shortcut_accuracy([nota]) == {}


def test_ties_share_the_credit() -> None:
    item = Item("a", "t", "a", "Red or blue?", ("red", "tan", "blue"), 0)
    assert credit(item, SHORTCUTS["shortest"]) == 0.5
    assert credit(item, SHORTCUTS["longest"]) == 0
    assert credit(item, SHORTCUTS["overlap"]) == 0.5
    assert shortcut_accuracy([item])["chance"] == pytest.approx(1 / 3)
