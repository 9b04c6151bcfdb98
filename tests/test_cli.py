"""The `gapscope` command.

What must hold:
- ``--help`` comes in under a second and imports no heavy library;
- options and commands are understood with hyphens and with underscores; ``-h`` is ``--help``;
- exit 0 for success, 1 for bad input with one line on stderr and no traceback (one with ``--debug``), 2 for usage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from stages.cli import COMMANDS, STAGES, main

ROOT = Path(__file__).parent.parent


def gapscope(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "stages.cli", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_help_is_quick_and_light() -> None:
    code = "import sys; from click.testing import CliRunner; import stages.cli as c; print(CliRunner().invoke(c.main, ['-h']).output);"
    code += "print([m for m in ('torch','transformers','sae_lens','sklearn','scipy','numpy','pyarrow') if m in sys.modules])"
    # Seconds of processor, which a busy machine does not stretch as it does the clock's.
    before = os.times()
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    assert run.stdout.strip().endswith("[]")
    assert seconds < 1, f"{seconds:.2f} s"
    for name in (*STAGES, *COMMANDS):
        assert name in run.stdout


@pytest.mark.parametrize("name", [*STAGES, *COMMANDS])
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(main, [name, "-h"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_every_stage_of_the_dag_is_a_command() -> None:
    dag = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    assert set(dag["stages"]) <= set(STAGES)
    for name, stage in dag["stages"].items():
        body = stage.get("do", stage)
        script = f"stages/{name.replace('-', '_')}.py"
        assert script in body["deps"], f"{name}: the script itself must be a dependency"
        assert body["cmd"].startswith(f"python -m stages.{name.replace('-', '_')} --params params.yaml")
        assert body["desc"]
        for dependency in body["deps"]:
            assert dependency.startswith(("data/", "metrics/")) or (ROOT / dependency).exists(), f"{name}: {dependency} does not exist"


def test_underscores_and_hyphens() -> None:
    runner = CliRunner()
    assert runner.invoke(main, ["extract_activations", "--help"]).exit_code == 0
    both = [runner.invoke(main, ["preset", "use", "mmlu_pro", flag]) for flag in ("--dry-run", "--dry_run")]
    assert both[0].output == both[1].output
    assert both[0].exit_code == both[1].exit_code == 1  # the preset needs a path


def test_exit_codes(tmp_path: Path) -> None:
    assert gapscope("no-such-command").returncode == 2
    assert gapscope("coverage").returncode == 2
    empty = tmp_path / "activations"
    empty.mkdir()
    run = gapscope("coverage", "--activations", str(empty), "--output", str(tmp_path / "out"))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("gapscope coverage: ")
    assert not (tmp_path / "out").exists()
    loud = gapscope("coverage", "--debug", "--activations", str(empty), "--output", str(tmp_path / "out"))
    assert "Traceback" in loud.stderr


def test_doctor_finds_what_is_missing(tmp_path: Path) -> None:
    fine = gapscope("doctor", "--offline", "--json")
    found = json.loads(fine.stdout)
    assert found["missing"] == [], found["missing"]
    assert "cores" in found["machine"]
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    slug = next(iter(raw["sources"]))
    raw["sources"][slug] = {"kind": "path", "licence": "x", "path": str(tmp_path / "gone"), "sha256": "0" * 64}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    faulty = gapscope("doctor", "--offline", "--json", cwd=tmp_path)
    assert faulty.returncode == 1
    assert any(f"sources.{slug}: no such path" in line for line in json.loads(faulty.stdout)["missing"])
