"""Every stage of dvc.yaml depends on the code that it runs, and on no other room's.

What must hold: a stage's dependencies hold its own script and every gapscope module that the script imports, directly
or through others, the kernel aside; and they name no module that it does not import. The kernel (errors, files, schema,
parameters, progress) is left out because its changes either change no result or raise an artifact's version.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DAG = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
KERNEL = {
    "errors",
    "files",
    "artifacts",
    "table",
    "params",
    "params_compare",
    "params_labels",
    "params_data",
    "params_faults",
    "params_observers",
    "params_robustness",
    "params_types",
    "params_validity",
    "params_variants",
    "progress",
    "provenance",
    "work",
}


def module_file(name: str) -> Path | None:
    base = ROOT / name.replace(".", "/")
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.exists():
            return file
    return None


@cache
def imported(file: Path) -> frozenset[Path]:
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gapscope"):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {module for name in names if (module := module_file(name)) is not None}
    return frozenset(found)


def reached(script: Path) -> set[Path]:
    """Every gapscope module that a script imports, the kernel and empty packages aside."""
    seen: set[Path] = set()
    waiting = [script]
    while waiting:
        for module in imported(waiting.pop()):
            if module.stem not in KERNEL and module not in seen:
                seen.add(module)
                waiting.append(module)
    return {module for module in seen if module.name != "__init__.py" or imported(module)}


@pytest.mark.parametrize("name", DAG)
def test_code_dependencies(name: str) -> None:
    body = DAG[name].get("do", DAG[name])
    script = ROOT / "stages" / f"{name.replace('-', '_')}.py"
    declared = {ROOT / dependency for dependency in body["deps"] if not dependency.startswith(("data/", "metrics/"))} - {script}
    used = reached(script)
    missing = {str(module.relative_to(ROOT)) for module in used if module not in declared and not declared & set(module.parents)}
    needless = {str(path.relative_to(ROOT)) for path in declared if path not in used and not any(path in module.parents for module in used)}
    assert not missing, f"{name} runs these without depending on them"
    assert not needless, f"{name} depends on these without running them"
