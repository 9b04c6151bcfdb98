"""Where an SAE comes from: the train-sae command.

What must hold:
- without --layer the middle block is read; the metrics hold the held-out figures; only finite numbers are in them;
- a directory with an SAE is pinned as it is, after checks, and a second time with the same bytes;
- no corpus, an unknown observer, an SAE of another layer: one line, nothing written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner, Result

from gapscope.errors import InputError
from gapscope.files import dump_json, read_json, sha256_tree
from gapscope.params import TrainSaeParams
from gapscope.params_observers import PathSae
from gapscope.sae import load_sae
from gapscope.sae_source import make_sae
from stages.cli import main

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    f"The {a} saw the {b} near the river, number {i}." for i in range(30) for a in ("dog", "cat", "owl") for b in ("saw", "wall", "tree")
]
HOW: dict[str, Any] = {"seed": 1, "dtype": "float32", "device": "cpu", "threads": 1, "name": "tiny"}


@pytest.fixture
def params_file(tmp_path: Path) -> Path:
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["train_sae"] |= {
        "d_sae": 64,
        "k": 4,
        "context_size": 24,
        "train_tokens": 800,
        "heldout_tokens": 400,
        "steps": 10,
        "batch_tokens": 128,
    }
    slug = next(iter(raw["observers"]))
    raw["observers"] = {"tiny": raw["observers"][slug] | {"name": "tiny", "layer": 2, "dtype": "float32"}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    (tmp_path / "corpus.jsonl").write_text("".join(dump_json({"text": text}) + "\n" for text in DOCUMENTS))
    return tmp_path / "params.yaml"


def train(params_file: Path, model: Path, *options: str) -> Result:
    corpus = str(params_file.parent / "corpus.jsonl")
    return CliRunner().invoke(main, ["train-sae", "--model", str(model), "--params", str(params_file), "--corpus", corpus, *options])


def test_trains_the_middle_block_or_the_observer_s(
    params_file: Path, tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(params_file, tiny_lm_dir, "--output", "a", "--metrics", "a.json").exit_code == 0
    result = train(params_file, tiny_lm_dir, "--output", "b", "--observer", "tiny", "--metrics", "b.json")
    assert result.exit_code == 0
    assert (load_sae(Path("a")).layer, load_sae(Path("b")).layer) == (1, 2)
    metrics = read_json(Path("b.json"))
    assert {"fvu", "l0", "dead_share", "n_tokens"} <= set(metrics["heldout"])
    assert (metrics["layer"], metrics["d_sae"], metrics["train"]["n_tokens"]) == (2, 64, 800)
    assert "fvu" in result.stderr
    assert not list(Path(".work").rglob("*.bf16")), "cached activations go when the SAE is published"


def test_bad_options_are_one_line(params_file: Path, tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["train-sae", "--model", str(tiny_lm_dir), "--output", "a"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "a corpus is needed" in result.stderr
    assert train(params_file, tiny_lm_dir, "--output", "a", "--observer", "other").exit_code == 2
    result = train(params_file, tiny_lm_dir, "--output", "a", "--layer", "9")
    assert (result.exit_code, "layer 9 is out of range" in result.stderr) == (1, True)
    assert not Path("a").exists()


def test_a_directory_is_pinned(tiny_lm_dir: Path, tiny_sae_dir: Path, tmp_path: Path) -> None:
    source = PathSae(kind="path", source="x", pin="0" * 64, directory=tiny_sae_dir.name)
    shared: dict[str, Any] = {"source": source, "sae_dir": tiny_sae_dir.parent, "corpus": None} | HOW
    for name in ("a", "b"):
        metrics = make_sae(tiny_lm_dir, tmp_path / name, TrainSaeParams(), tmp_path / "w", layer=1, **shared)
    assert sha256_tree(tmp_path / "a") == sha256_tree(tmp_path / "b")
    assert metrics["canary"]["n_tokens"] > 100
    x = torch.randn((9, 32), generator=torch.Generator().manual_seed(0))
    assert torch.equal(load_sae(tmp_path / "a").encode(x), load_sae(tiny_sae_dir).encode(x))
    with pytest.raises(InputError, match="observer's layer is 2"):
        make_sae(tiny_lm_dir, tmp_path / "c", TrainSaeParams(), tmp_path / "w", layer=2, **shared)
    assert not (tmp_path / "c").exists()
