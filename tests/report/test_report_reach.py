"""What the report and the summary say of the reach of the variants.

What must hold: every number stands beside what it is held against; what is undefined is a dash; a half that is off, a set without
variants, a subject without gaps and one that was not asked each say so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapscope.files import write_json
from gapscope.report.reach import reach_section
from gapscope.report.summary_rest import reach_line
from gapscope.variants.off import write_off

NONE = {"mean": None, "low": None, "high": None, "at_least": None}
SOME = {"mean": 40.4, "low": 30.0, "high": 50.0, "at_least": 0.9}


def told(variants: int = 8) -> dict[str, Any]:
    row = {"n": 100, "variants": 30, "originals": 25, "new": 9, "random_items": SOME, "random_tokens": SOME | {"mean": 35.0}}
    empty = {"n": 0, "variants": 0, "originals": 0, "new": 0, "random_items": NONE, "random_tokens": NONE}
    held = {"n": 12, "n_eff": 21.5, "difference": -0.2, "low": -0.3, "high": -0.1, "status": "holds"}
    return {
        "n": {"originals": 4, "variants": variants},
        "reached": {"under": row, "coverage": row, "unexercised": empty, "model": empty},
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
    assert "| the suite under-exercises | 100 | 30 | 25 | 9 | 40 (30 to 50) | 35 (30 to 50) |" in text
    assert "| no item exercises | 0 | 0 | 0 | 0 | — | — |" in text
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
    line = reach_line(told())
    assert line == (
        "variants fire on 30 of 100 concepts that the suite under-exercises; their originals on 25, "
        "as much text of random items on 35 (30 to 50)"
    )
    metrics = told()
    del metrics["reached"]["coverage"]["random_tokens"]
    assert (reach_line(metrics) or "").endswith("their originals on 25")
    assert reach_line({"off": 1}) is None
    assert reach_line(told(variants=0)) is None
