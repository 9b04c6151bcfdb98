"""Seeds, sft and grpo as commands: seeds are split and counted; switched off, each says so fast and loads nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml
from click.testing import CliRunner

from gapscope.variants.off import REASON, off_reason
from gapscope.variants.seed_sets import read_split
from gapscope.variants.tables import CURVES
from stages.cli import main

ROOT = Path(__file__).parents[2]


def params(tmp_path: Path) -> Path:
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["variants"]["enabled"] = False
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(raw))
    return file


def test_seeds_are_split_by_family(tmp_path: Path) -> None:
    output, metrics = tmp_path / "split", tmp_path / "seeds.json"
    done = CliRunner().invoke(
        main, ["seeds", "split", "--seeds", str(ROOT / "data/seeds"), "--output", str(output), "--metrics", str(metrics)]
    )
    assert done.exit_code == 0, done.output
    counts = json.loads(metrics.read_text())
    assert sum(part["n_families"] for part in counts.values()) == 104
    families = [set(read_split(output, name)[1]) for name in counts]
    assert not families[0] & families[1] and not families[0] & families[2] and not families[1] & families[2]


def test_off_is_said_and_nothing_is_loaded(tmp_path: Path) -> None:
    file, here = params(tmp_path), str(ROOT)
    out = {name: tmp_path / name for name in ("seeds_split", "verifier", "generator_sft", "generator", "plots_sft", "plots_grpo")}
    needs = {
        "seeds": {"seeds": ROOT / "data/seeds", "output": out["seeds_split"]},
        "sft": {"seeds": here, "model": here, "embedder": here}
        | {"verifier-output": out["verifier"], "generator-output": out["generator_sft"], "plots": out["plots_sft"]},
        "grpo": dict.fromkeys(("seeds", "generator", "verifier", "model", "embedder"), here)
        | {"output": out["generator"], "plots": out["plots_grpo"]},
    }
    for name, options in needs.items():
        words = ["--params", str(file), *(word for key, value in options.items() for word in (f"--{key}", str(value)))]
        code = f"import sys; from stages.{name} import main; main({words!r}, standalone_mode=False); assert 'torch' not in sys.modules"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert {off_reason(out[name]) for name in ("seeds_split", "verifier", "generator_sft", "generator")} == {REASON}
    for file in [
        *(out["plots_sft"] / f"{name}.json" for name in ("verifiers", "calibration")),
        *(out["plots_grpo"] / f"{n}.json" for n in CURVES),
    ]:
        assert len(json.loads(file.read_text())) == 1
