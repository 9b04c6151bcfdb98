"""What the report and the summary say of the reach of the variants.

What must hold: every number stands beside what it is held against; what is undefined is a dash; a half that is off, a set without
variants, a subject without gaps and one that was not asked each say so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapscope.errors import InputError
from gapscope.files import write_json
from gapscope.report.reach import reach_section
from gapscope.report.summary_rest import reach_line, read_rest
from gapscope.report.told import Reach
from gapscope.variants.off import write_off

NONE = {"mean": None, "low": None, "high": None, "at_least": None}
SOME = {"mean": 40.4, "low": 30.0, "high": 50.0, "at_least": 0.9}


def told(variants: int = 8) -> dict[str, Any]:
    counts = {"n": 100, "variants": 30, "originals": 25, "new": 9}
    row = counts | {"random_items": SOME, "random_tokens": SOME | {"mean": 35.0}, "random_rewritten": SOME | {"mean": 33.3}}
    none = dict.fromkeys(counts, 0)
    empty = none | dict.fromkeys(("random_items", "random_tokens", "random_rewritten"), NONE)
    held = {"n": 12, "n_eff": 21.5, "difference": -0.2, "low": -0.3, "high": -0.1, "status": "holds"}
    return {
        "n": {"originals": 4, "variants": variants},
        "reached": {"under": row, "coverage": counts, "unexercised": none, "model": empty},
        "rate": {"suite": 900.0, "originals": 700.4, "variants": 650.0, "reference": None},
        "change": {"originals": -0.1, "originals_low": -0.4, "originals_high": 0.2},
        "model": {
            "a": {"n_concepts": 3, "variants": held},
            "b": {"n_concepts": 0, "variants": held},
            "c": {"n_concepts": 2, "variants": {"status": "not_asked"}},
        },
    }


def section(directory: Path, report: dict[str, Any]) -> str:
    write_json(directory / "report.json", report)
    return "\n".join(reach_section(directory, {"a": "Model *A*"}))


def test_the_section_names_what_each_number_is_held_against(tmp_path: Path) -> None:
    text = section(tmp_path, told())
    assert "| the suite under-exercises | 100 | 30 | 25 | 9 | 40 (30 to 50) | 35 (30 to 50) | 33 (30 to 50) |" in text
    assert "| no item exercises | 0 | 0 | 0 | 0 | — | — | — |" in text
    assert "| a subject does worse on | 0 | 0 | 0 | 0 | — | — | — |" in text
    assert (
        "650 times per 1,000 tokens of variants, 700 of originals, 900 of the suite; log2 of variants over originals −0.10 (−0.40 to +0.20)."
        in text
    )
    assert "- Model \\*A\\*: 3 gap concepts; on the variants the gap is there (−0.20 (−0.30 to −0.10), n 12, n_eff 22)." in text
    assert "- b: no gap to look for." in text
    assert "- c: 2 gap concepts; on the variants not asked: its results were imported." in text


def test_nothing_to_show_says_why(tmp_path: Path) -> None:
    assert "no variant was accepted" in section(tmp_path / "empty", told(variants=0))
    write_off(tmp_path / "off")
    assert "variants.enabled" in "\n".join(reach_section(tmp_path / "off", {}))


def test_the_summary_s_line() -> None:
    line = reach_line(Reach.model_validate(told()))
    assert line == (
        "variants fire on 30 of 100 concepts that the suite under-exercises; their originals on 25, "
        "as much text of random items of the same benchmarks on 33 (30 to 50)"
    )
    metrics = told()
    del metrics["reached"]["under"]["random_rewritten"]
    assert (reach_line(Reach.model_validate(metrics)) or "").endswith("their originals on 25")
    assert reach_line(Reach.model_validate({"off": 1})) is None
    assert reach_line(Reach.model_validate(told(variants=0))) is None


def damaged(path: str, value: Any) -> dict[str, Any]:
    """A report in which a field is of another kind, or missing (None)."""
    found = told()
    *places, last = path.split(".")
    inner = found
    for place in places:
        inner = inner[place]
    del inner[last]
    if value is not None:
        inner[last] = value
    return found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", None),
        ("n.variants", "eight"),
        ("reached.model", None),
        ("reached.under.originals", None),
        ("reached.under.random_items", [1]),
        ("rate.suite", None),
        ("change", 3),
        ("model.a.variants.status", "surely"),
        ("model.a.variants", None),
    ],
)
def test_a_damaged_report_is_one_line_with_its_field(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        section(tmp_path, damaged(field, value))
    assert (caught.value.file, caught.value.field) == (tmp_path / "report.json", field)
    write_json(tmp_path / "report.json", [1])
    with pytest.raises(InputError, match="not what reach writes"):
        reach_section(tmp_path, {})


@pytest.mark.parametrize(
    ("stage", "content", "field"),
    [
        ("reach", {"n": 3}, "n"),
        ("reach", {"reached": {"under": {"n": 5}}}, "reached.under.variants"),
        ("validity", {"controls": {"obs": 1}}, "controls.obs"),
        ("validity", {"controls": {"obs": {"concepts": {"r": "high"}}}}, "controls.obs.concepts.r"),
        ("evaluate", {"subjects": {"a": {"oa": []}}}, "subjects.a.oa"),
        ("filter", {"n_candidates": 3, "accepted": 3}, "accepted"),
        ("sft", {"heldout": {"balanced_accuracy": "0.9"}}, "heldout.balanced_accuracy"),
        ("grpo", 3, None),
    ],
)
def test_a_damaged_metrics_file_is_one_line_with_its_field(tmp_path: Path, stage: str, content: Any, field: str | None) -> None:
    write_json(tmp_path / f"{stage}.json", content)
    with pytest.raises(InputError, match=f"run {stage} again") as caught:
        read_rest(tmp_path, tmp_path)
    assert (caught.value.file, caught.value.field) == (tmp_path / f"{stage}.json", field)
