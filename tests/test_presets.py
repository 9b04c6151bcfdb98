"""Presets change params.yaml as a readable diff, and never leave it invalid.

What must hold: every preset of the repository gives valid parameters; comments of params.yaml survive; a path that is
missing, unknown or absent is refused by name; using a preset twice changes nothing more.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from gapscope.errors import InputError
from gapscope.files import sha256_file
from gapscope.params import load_params, parse_params
from gapscope.presets import Preset, apply_preset, diff, edited, load_presets
from stages.cli import main

ROOT = Path(__file__).parent.parent
PRESETS = load_presets(ROOT / "presets")


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    files = {}
    for name in {name for preset in PRESETS.values() for name in preset.paths}:
        files[name] = tmp_path / f"{name}.jsonl.gz"
        files[name].write_bytes(name.encode())
    return files


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_gives_valid_parameters(name: str, paths: dict[str, Path]) -> None:
    preset = PRESETS[name]
    text = (ROOT / "params.yaml").read_text()
    given = {key: paths[key] for key in preset.paths}
    changed = apply_preset(text, preset, given)
    parse_params(changed, Path("params.yaml"))
    assert apply_preset(changed, preset, given) == changed
    assert diff(text, changed, "params.yaml")
    kept = [line for line in text.splitlines() if line.startswith("#")]
    assert [line for line in changed.splitlines() if line in kept] == kept


def test_what_is_not_changed_stays_as_it_is_written() -> None:
    text = (ROOT / "params.yaml").read_text()
    assert edited(text, lambda document: None) == text


def test_mmlu_pro_names_the_files_and_their_hashes(paths: dict[str, Path]) -> None:
    text = apply_preset((ROOT / "params.yaml").read_text(), PRESETS["mmlu_pro"], {key: paths[key] for key in PRESETS["mmlu_pro"].paths})
    params = parse_params(text, Path("params.yaml"))
    assert params.sources["mmlu_pro"].sha256 == sha256_file(paths["benchmark"])
    assert params.benchmarks["mmlu_pro"].files == ["benchmark.jsonl.gz"]
    assert params.benchmarks["mmlu_pro"].limit == 4000
    assert len(params.models) == 9
    assert all(model.results is not None and model.source == "mmlu_pro_results" for model in params.models.values())


def test_paths_are_checked(tmp_path: Path) -> None:
    preset = Preset(description="", memory="", time="", licence="", paths={"items": "the items"})
    with pytest.raises(InputError, match="needs a path: the items"):
        apply_preset("seed: 1\n", preset, {})
    with pytest.raises(InputError, match="takes no path named 'other'"):
        apply_preset("seed: 1\n", preset, {"other": tmp_path})
    with pytest.raises(InputError, match="no such file"):
        apply_preset("seed: 1\n", preset, {"items": tmp_path / "gone"})


def test_use_writes_the_file_and_prints_the_diff(tmp_path: Path, paths: dict[str, Path]) -> None:
    file = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", file)
    before = file.read_bytes()
    pairs = [part for key in PRESETS["mmlu_pro"].paths for part in ("--path", f"{key}={paths[key]}")]
    runner = CliRunner()
    dry = runner.invoke(main, ["preset", "use", "mmlu_pro", "--params", str(file), "--dry-run", *pairs])
    assert dry.exit_code == 0, dry.output
    assert "+  mmlu_pro:" in dry.output
    assert file.read_bytes() == before
    done = runner.invoke(main, ["preset", "use", "mmlu_pro", "--params", str(file), *pairs])
    assert done.exit_code == 0, done.output
    assert "mmlu_pro" in load_params(file).benchmarks


def test_unknown_preset_and_malformed_preset(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["preset", "show", "nothing"])
    assert result.exit_code == 1
    assert "no preset 'nothing' (known: " in result.output
    (tmp_path / "bad.yaml").write_text("description: x\nmemroy: y\n")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        load_presets(tmp_path)


def test_the_variants_preset_trains_its_own_model_and_samples_in_whole_groups() -> None:
    params = parse_params(apply_preset((ROOT / "params.yaml").read_text(), PRESETS["sage_qwen3_06b"], {}), Path("params.yaml"))
    assert params.sft.source == "qwen3_06b" and params.sources["qwen3_06b"].repo == "Qwen/Qwen3-0.6B"
    assert params.grpo.vllm and params.grpo.batch_size % params.grpo.num_generations == 0
    assert params.sft.generator.trained_layers is None and params.sft.embedder == "minilm"


def test_editing_leaves_yaml_as_it_was() -> None:
    def written() -> str:
        stream = io.StringIO()
        YAML().dump({"small": 1e-05, "nothing": None}, stream)
        return stream.getvalue()

    before = written()
    edited("a: 1.0\n", lambda document: document.update(b=1e-05))
    assert written() == before
