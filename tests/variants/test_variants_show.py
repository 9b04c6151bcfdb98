"""`gapscope variants show` prints the first variants of each type by id, beside their originals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_families import original, variant

from gapscope.items import write_items
from gapscope.variants.off import write_off
from stages.commands.variants import main


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_items(tmp_path / "items.jsonl", [original(k) for k in range(4)])
    made = [variant(k, slug) for k in range(4) for slug in ("problem_restatement", "causal_inference")]
    made[0].meta["verdict"] = {"tc": True, "lc": True, "au": True, "valid": True, "p": 0.871}
    (tmp_path / "v").mkdir()
    write_items(tmp_path / "v/variants.jsonl", made)
    return tmp_path


def run(place: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["show", str(place / "v"), "--items", str(place / "items.jsonl"), *options])
    return done.exit_code, done.output


def test_text(place: Path) -> None:
    code, text = run(place, "--sample", "2", "--type", "problem_restatement")
    assert code == 0
    assert text.splitlines() == [
        "== problem_restatement: 2 of 4. Say the context and the gold choice in other words; it stays right.",
        "",
        "o0-problem_restatement  (the verifier's p 0.87)",
        "  original  What did animal 0 say to the dog?",
        "            * a dog",
        "              a wall",
        "              a saw",
        "              a cloud",
        "  variant   Now problem_restatement 0: what was said?",
        "            * a stone",
        "              a wall",
        "              a saw",
        "",
        "o1-problem_restatement",
        "  original  What did animal 1 say to the cat?",
        "            * a cat",
        "              a wall",
        "              a saw",
        "              a cloud",
        "  variant   Now problem_restatement 1: what was said?",
        "            * a stone",
        "              a wall",
        "              a saw",
    ]


def test_json_holds_the_first_by_id_of_every_type(place: Path) -> None:
    rows = json.loads(run(place, "--sample", "3", "--json")[1])
    assert [row["id"] for row in rows] == [f"o{k}-{slug}" for slug in ("problem_restatement", "causal_inference") for k in range(3)]
    assert rows[0]["variant"]["gold"] == "a stone"
    assert rows[0]["original"]["gold"] == "a dog"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [(("--type", "odd"), 2, "no type 'odd'"), (("--items", "gone.jsonl"), 1, "gone.jsonl: no such file")],
)
def test_faults_are_one_line(place: Path, options: tuple[str, ...], code: int, said: str) -> None:
    found, text = run(place, *options)
    assert found == code
    assert said in text


def test_off_is_said(tmp_path: Path) -> None:
    write_off(tmp_path / "v")
    assert "variants.enabled is false" in run(tmp_path)[1]


def test_control_characters_do_not_reach_a_terminal(place: Path) -> None:
    odd = variant(0, "causal_inference")
    write_items(place / "v/variants.jsonl", [replace(odd, text=f"\x1b[31m{odd.text}\u202e\x07")])
    code, text = run(place)
    assert code == 0
    assert odd.text.split()[0] in text
    assert not {"\x1b", "\u202e", "\x07"} & set(text)
