"""Seeds, sft and grpo as commands: seeds are split and counted; switched off, each says so fast and loads nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gapscope.files import write_json
from gapscope.variants.off import REASON, off_reason, write_off
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


def test_what_was_written_off_is_refused_where_the_parameters_say_on(tmp_path: Path) -> None:
    here, off, out = str(ROOT), tmp_path / "off", str(tmp_path / "out")
    write_off(off)
    models, items = {"model": here, "embedder": here}, {"items": str(ROOT / "params.yaml")}
    needs = {
        "sft": ({"seeds": "seeds"}, models | {"verifier-output": out, "generator-output": out, "plots": out}),
        "grpo": ({"seeds": "seeds", "generator": "sft", "verifier": "sft"}, models | {"output": out, "plots": out}),
        "generate": (
            {"generator": "grpo", "before": "sft", "verifier": "sft", "sources": "sources"},
            models | items | {"output": out},
        ),
        "filter": ({"candidates": "generate", "verifier": "sft"}, models | items | {"output": out}),
        "evaluate": ({"variants": "filter", "verifier": "sft"}, items | {"raw": here, "output": out, "plot": str(tmp_path / "plot.json")}),
    }
    for name, (written, rest) in needs.items():
        for wrong, stage in written.items():
            options = dict.fromkeys(written, here) | {wrong: str(off)} | rest
            words = [name, "--params", str(ROOT / "params.yaml"), *(word for key, value in options.items() for word in (f"--{key}", value))]
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 1, done.output
            said = f"{off}: was written with the second half switched off, and the parameters have it on (run {stage} again"
            assert said in done.output.replace("\n", " "), done.output
    assert not Path(out).exists()


@pytest.mark.parametrize(("told", "reason"), [({"off": "for a reason"}, "for a reason"), ({"off": None}, None), ([1], None), (None, None)])
def test_the_reason_is_read_from_the_report_alone(tmp_path: Path, told: object, reason: str | None) -> None:
    write_json(tmp_path / "report.json", told)
    assert off_reason(tmp_path) == reason
