"""An exported set loads in `datasets` and runs in lm-evaluation-harness with gapscope's own accuracy.

What must hold: every part loads, typed, with the rows that went in; the harness's acc, acc_norm and acc_bytes of every
task on a tiny model equal what gapscope's scorer gives with the normaliser of that name, item by item in sum; the
folder may lie anywhere; the same input gives the same bytes; an empty set still has a card.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_families import nota, original, variant

from gapscope.files import sha256_tree
from gapscope.items import Item
from gapscope.lm import load_lm
from gapscope.params import ScoreParams
from gapscope.scores import ItemScore
from gapscope.scoring import score_items
from gapscope.variants.cards import Provenance
from gapscope.variants.export import METRICS, parts, write_export
from gapscope.variants.presentation import presented
from gapscope.work import WorkDirectory

PARAMS = ScoreParams()
PROVENANCE = Provenance({"made": "CC0-1.0"}, {"n_candidates": 30, "n_accepted": 12, "reasons": {"lc": 3}}, {"balanced_accuracy": 0.8}, {})
ORIGINALS = {f"o{k}": presented(original(k), 1) for k in range(6)}
VARIANTS = [
    presented(item, 1)
    for k in range(6)
    for item in (variant(k, "problem_restatement", choices=(f"the {k} dogs there", "one", "a long wall")), nota(k, right=k % 2 == 0))
]


def export(directory: Path, score: ScoreParams = PARAMS) -> Path:
    write_export(directory, ORIGINALS, VARIANTS, score, PROVENANCE)
    return directory


def test_datasets_loads_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    folder = export(tmp_path / "x") / "datasets"
    for name, group in parts(ORIGINALS, VARIANTS).items():
        loaded = datasets.load_dataset(str(folder), name, split="test", cache_dir=str(tmp_path / "cache"))
        assert loaded["id"] == [item.id for item in group]
        assert [row["choices"][row["answer"]] for row in loaded] == [item.choices[item.answer or 0] for item in group]
        assert set(loaded["type"]) == {name}
        assert str(loaded.features["p_valid"].dtype) == "float64"
    card = (folder / "README.md").read_text()
    for said in ("accepted: 12", "lc 3", "balanced accuracy 0.80", "CC0-1.0", "| critical_testing | 6 |"):
        assert said in card


def test_an_originals_own_meta_is_not_taken_for_a_variants(tmp_path: Path) -> None:
    meta = {"original": "first edition", "type": ["odd"], "verdict": "sound", "bloom": 3}
    odd = {name: replace(item, meta=meta) for name, item in ORIGINALS.items()}
    silent = [replace(item, meta={**item.meta, "verdict": None}) for item in VARIANTS]
    write_export(tmp_path / "odd", odd, silent, PARAMS, PROVENANCE)
    write_export(tmp_path / "plain", ORIGINALS, VARIANTS, PARAMS, PROVENANCE)
    assert sha256_tree(tmp_path / "odd") == sha256_tree(tmp_path / "plain")


def own_accuracy(model: Path, items: list[Item], normaliser: str, work: Path) -> float:
    params = PARAMS.model_copy(update={"normaliser": normaliser})
    scores: list[ItemScore] = score_items(load_lm(model, device="cpu"), items, params, WorkDirectory(work, "score", normaliser))
    return float(np.mean([score.score for score in scores]))


def test_the_harness_gets_the_same_accuracy(tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = pytest.importorskip("lm_eval.evaluator")
    manager = pytest.importorskip("lm_eval.tasks").TaskManager
    hflm = pytest.importorskip("lm_eval.models.huggingface").HFLM
    folder = export(tmp_path / "x") / "lm_eval"
    monkeypatch.chdir(tmp_path)
    model = hflm(pretrained=str(tiny_lm_dir), device="cpu", dtype="float32", batch_size=8, max_length=512)
    tasks = manager(include_path=str(folder), include_defaults=False)
    done = evaluator.simple_evaluate(
        model, tasks=["gapscope_robustness", "gapscope_robustness_original"], task_manager=tasks, bootstrap_iters=0
    )
    groups = parts(ORIGINALS, VARIANTS)
    for normaliser, metric in METRICS.items():
        for name, group in groups.items():
            theirs = done["results"][f"gapscope_robustness_{name}"][f"{metric},none"]
            assert theirs == pytest.approx(own_accuracy(tiny_lm_dir, group, normaliser, tmp_path / name)), (name, metric)
    byte = [own_accuracy(tiny_lm_dir, groups[name], "byte", tmp_path / f"g{name}") for name in groups if name != "original"]
    assert done["groups"]["gapscope_robustness"]["acc_bytes,none"] == pytest.approx(np.mean(byte))  # six items each


def test_same_bytes_twice(tmp_path: Path) -> None:
    assert sha256_tree(export(tmp_path / "a")) == sha256_tree(export(tmp_path / "b"))


def test_prompt_that_looks_like_a_template_is_kept(tmp_path: Path) -> None:
    jinja2 = pytest.importorskip("jinja2")
    yaml = pytest.importorskip("yaml")
    folder = export(tmp_path / "x", PARAMS.model_copy(update={"prompt": "{{a}} {text} b'{% c\nAgain: {text}"}))
    text = (folder / "lm_eval/gapscope_robustness_original.yaml").read_text().replace("!function", "")
    template = yaml.safe_load(text)["doc_to_text"]
    assert jinja2.Template(template).render(text="T") == "{{a}} T b'{% c\nAgain: T"


def test_nothing_accepted_leaves_a_card(tmp_path: Path) -> None:
    write_export(tmp_path, {}, [], PARAMS, Provenance({}, {}, {}, {}))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["README.md"]
