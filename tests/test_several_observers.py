"""The same suite through two SAEs: dvc.yaml makes every observer's stages from params.yaml, and keeps them apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml
from dvc.repo import Repo

from gapscope.params import parse_params
from gapscope.presets import apply_preset, load_presets

ROOT = Path(__file__).parent.parent
STAGES = ("train-sae", "extract-activations", "coverage", "performance", "cluster")


def test_every_observer_has_its_own_stages(tmp_path: Path) -> None:
    presets = load_presets(ROOT / "presets")
    text = (ROOT / "params.yaml").read_text()
    for name in ("paper_suite", "gemma2_2b"):
        text = apply_preset(text, presets[name], {})
    raw = yaml.safe_load(text)
    wide = raw["observers"]["gemma2_2b"]
    # Another layer and width of the same model, and a model of another kind whose SAE is trained here.
    raw["observers"]["gemma2_2b_12"] = wide | {"layer": 12, "sae": wide["sae"] | {"id": "layer_12/width_65k/canonical"}}
    raw["observers"]["small"] = {"source": "smollm2_135m", "name": "small", "layer": 15, "sae": {"kind": "train"}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
    params = parse_params((tmp_path / "params.yaml").read_text(), tmp_path / "params.yaml")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)

    stages = {stage.name: stage for stage in Repo.init(str(tmp_path), no_scm=True).index.stages}
    made = {name.partition("@")[2] for name in stages if name.startswith("train-sae@")}
    assert made == set(params.observers) == {"gemma2_2b", "gemma2_2b_12", "small"}
    for stage in STAGES:
        for slug, observer in params.observers.items():
            found = stages[f"{stage}@{slug}"]
            inputs = {str(dep) for dep in found.deps}
            others = set(params.observers) - {slug}
            assert all(Path(str(out)).stem == slug for out in found.outs)
            assert not {path for path in inputs if Path(path).name in others - {observer.source}}
            if stage in STAGES[:2]:
                assert f"data/raw/{observer.source}" in inputs
                assert f"observers.{slug}" in found.params[0].params
                assert f"--observer {slug} " in found.cmd
    assert {f"fetch@{source}" for source in params.sources} <= set(stages)
