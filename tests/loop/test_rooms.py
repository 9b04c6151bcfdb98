"""The two halves do not know of each other: what joins them is in ``gapscope.loop``, which neither of them uses."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("room", "others"), [("competency", ("variants", "loop")), ("variants", ("competency", "loop"))])
def test_no_module_of_one_half_imports_the_other(room: str, others: tuple[str, ...]) -> None:
    files = sorted((ROOT / "gapscope" / room).rglob("*.py"))
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for name in names:
                assert not name.startswith(tuple(f"gapscope.{other}" for other in others)), f"{file.relative_to(ROOT)} imports {name}"
