"""The validity stage from files to files.

What must hold:
- every check writes its table, metrics are finite and nested, plots hold uniform rows; twice the same bytes;
- without encoder and second SAE these controls are absent and the checks say n: 0; another observer of the same model is used;
- a second SAE is trained on the observer's own layer and reads the items under the recorded token policy;
- labels from two halves of the contexts agree where words tell the concept.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
from click.testing import CliRunner
from made_activations import random_saliency, write_activations, write_contexts, write_scores
from safetensors.numpy import save_file

from gapscope.artifacts import VALIDITY
from gapscope.competency.cluster import Inputs, write_clusters
from gapscope.competency.coverage import write_coverage
from gapscope.competency.performance import read_suite, write_performances
from gapscope.competency.second_sae import Machine, read_with_second_sae
from gapscope.competency.stability import stability
from gapscope.files import sha256_tree, write_csr, write_json, write_jsonl
from gapscope.items import Item, read_items, write_items
from gapscope.params import ClusterParams, CoverageParams, PerformanceParams, StrataParams, TrainSaeParams
from stages.commands.power import main as power
from stages.validity import main

N_ITEMS, N_CONCEPTS = 240, 20
CHECKS = {"held_out", "planted", "null", "subsampling", "ablation", "other_sae", "stability", "redundancy", "controls"}
VALIDITY_PARAMS = {
    "splits": 1,
    "ends": 3,
    "null_draws": 10,
    "planted_draws": 2,
    "planted_concepts": 2,
    "resamples": 10,
    "stability_draws": 2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A whole run of two subjects: concept 0 halves the chance of both to be right."""
    path = tmp_path_factory.mktemp("run")
    saliency = random_saliency(3, N_ITEMS, N_CONCEPTS)
    benchmarks = [f"b{k % 3}" for k in range(N_ITEMS)]
    activations = write_activations(path / "activations" / "seen", saliency, benchmarks, reference=(2400, [60] * N_CONCEPTS))
    write_csr(activations / "control_random.npz", sp.csr_matrix(random_saliency(4, N_ITEMS, N_CONCEPTS)))
    texts = [" ".join(f"word{concept}" for concept in np.flatnonzero(row)) or "none" for row in saliency]
    items = [
        Item(f"i{k:04d}", benchmarks[k], f"i{k:04d}", texts[k], ("a", "b", "c", "d"), 0, meta={"subject": f"s{k % 2}"})
        for k in range(N_ITEMS)
    ]
    write_items(path / "items.jsonl", items)
    generator = np.random.default_rng(5)
    for subject in ("one", "two"):
        right = (generator.random(N_ITEMS) < 0.7) & ((saliency[:, 0] == 0) | (generator.random(N_ITEMS) < 0.3))
        write_scores(path / "scores" / subject, {f"i{k:04d}": float(value) for k, value in enumerate(right)})
    windows = [
        (concept, f"i{item:04d}", ["so", f" word{concept}", " then"], [0.0, 2.0, 0.0], "top")
        for concept in range(N_CONCEPTS)
        for item in np.flatnonzero(saliency[:, concept])[:12]
    ]
    write_contexts(activations, windows)
    (path / "sae" / "seen").mkdir(parents=True)
    save_file({"W_dec": generator.normal(size=(N_CONCEPTS, 8)).astype(np.float32)}, path / "sae" / "seen" / "sae_weights.safetensors")
    write_coverage(activations, path / "coverage" / "seen", CoverageParams())
    suite = read_suite(activations, path / "items.jsonl", path / "coverage" / "seen", StrataParams(length_bins=1))
    files = {subject: path / "scores" / subject / "scores.parquet" for subject in ("one", "two")}
    write_performances(suite, files, path / "performance" / "seen", PerformanceParams(min_n_eff=8.0))
    inputs = Inputs(path / "coverage" / "seen", path / "performance" / "seen", activations, path / "sae" / "seen")
    write_clusters(inputs, path / "clusters" / "seen.parquet", ClusterParams(extremes=6))
    (path / "raw").mkdir()
    return path


def params(path: Path, observers: tuple[str, ...] = ("seen",)) -> Path:
    source = {"kind": "path", "licence": "none", "path": "nowhere", "sha256": "0" * 64}
    benchmark = {"source": "s", "files": ["f"], "format": "rows", "kind": "knowledge", "licence": "none"}
    benchmark["options"] = {"question": "q", "choices": ["a", "b"], "answer": "g", "answer_is": "letter"}
    observer = {"source": "s", "name": "Seen", "layer": 1, "sae": {"kind": "registry", "release": "r", "id": "i"}}
    raw = {
        "sources": {"s": source},
        "benchmarks": {"b0": benchmark},
        "observers": dict.fromkeys(observers, observer),
        "models": {name: {"source": "s", "name": name} for name in ("one", "two")},
        "variants": {"enabled": False},
        "performance": {"min_n_eff": 8.0, "strata": {"length_bins": 1}},
        "validity": VALIDITY_PARAMS,
    }
    file = path / "params.yaml"
    file.write_text(yaml.safe_dump(raw, default_flow_style=False))
    return file


def validity(run: Path, out: Path, file: Path) -> dict:
    options = {name: run / name for name in ("activations", "coverage", "clusters", "scores", "sae", "raw")}
    options |= {"items": run / "items.jsonl", "params": file, "output": out / "validity", "plots": out / "plots", "metrics": out / "m.json"}
    result = CliRunner().invoke(main, [part for name, value in options.items() for part in (f"--{name}", str(value))])
    assert result.exit_code == 0, result.output
    return json.loads((out / "m.json").read_text())


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        assert all("." not in key for key in value)
        return [number for part in value.values() for number in numbers(part)]
    assert isinstance(value, (int, float)), value
    return [float(value)]


def test_every_check_is_written_and_twice_the_same(run, tmp_path):
    metrics = validity(run, tmp_path / "first", params(tmp_path))
    assert set(metrics) == CHECKS
    assert np.isfinite(numbers(metrics)).all()
    tables = {file.stem: VALIDITY.read(file).to_pylist() for file in (tmp_path / "first" / "validity" / "seen").glob("*.parquet")}
    assert set(tables) == CHECKS
    assert {row["features"] for row in tables["controls"]} == {"concepts", "random", "words", "metadata"}
    assert {row["subject"] for row in tables["null"]} == {"one", "two"}
    assert metrics["controls"]["seen"]["concepts"]["n_tested"] > 10
    assert metrics["controls"]["seen"]["words"]["label_score"] > 0.9
    assert (
        metrics["held_out"]["seen"]["calibrated"]["lowest"]["adjusted"]["value"]
        < metrics["held_out"]["seen"]["calibrated"]["highest"]["adjusted"]["value"]
    )
    assert metrics["redundancy"]["seen"] == {"pairs": {"agreement": {"n": 0}, "agreement_p": {"n": 0}}}
    assert "another" not in metrics["other_sae"]["seen"]["calibrated"]
    for file in (tmp_path / "first" / "plots").glob("*.json"):
        rows = json.loads(file.read_text())
        assert rows
        assert all(row.keys() == rows[0].keys() for row in rows)
    validity(run, tmp_path / "second", params(tmp_path))
    assert sha256_tree(tmp_path / "first") == sha256_tree(tmp_path / "second")


def test_an_observer_of_the_same_model_is_the_other_sae(run, tmp_path):
    for name in ("activations", "coverage", "sae"):
        (run / name / "again").exists() or (run / name / "again").symlink_to(run / name / "seen")
    again = run / "clusters" / "again.parquet"
    again.exists() or again.symlink_to(run / "clusters" / "seen.parquet")
    metrics = validity(run, tmp_path, params(tmp_path, ("again", "seen")))
    found = metrics["other_sae"]["seen"]["calibrated"]
    assert found["another"]["rank_correlation"]["value"] == pytest.approx(1.0)
    assert found["random"]["rank_correlation"]["value"] < 0.9


def test_items_of_another_run_are_refused_in_one_line(run, tmp_path):
    file, items = params(tmp_path), read_items(run / "items.jsonl")
    write_items(tmp_path / "items.jsonl", items[:-1])
    options = {name: run / name for name in ("activations", "coverage", "clusters", "scores", "sae", "raw")}
    options |= {"items": tmp_path / "items.jsonl", "params": file, "output": tmp_path / "out", "plots": tmp_path / "plots"}
    result = CliRunner().invoke(main, [part for name, value in options.items() for part in (f"--{name}", str(value))])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "i0239" in result.output
    assert not (tmp_path / "out").exists()


def test_labels_of_two_halves_agree(run):
    activations = run / "activations" / "seen"
    ids = [f"i{k:04d}" for k in range(N_ITEMS)]
    firing = sp.csr_matrix((random_saliency(3, N_ITEMS, N_CONCEPTS) > 0).astype(np.int32))
    inputs = (activations, run / "clusters" / "seen.parquet", run / "sae" / "seen", firing, ids, ClusterParams())
    found = {one.quantity: one for one in stability(*inputs, 3, 1)}
    assert found["keywords_same"].value > 0.6 > 0.4 > found["keywords_others"].value
    assert 0 <= found["clusters"].value <= 1
    assert [one.n for one in stability(*inputs, 0, 1)] == [0, 0, 0]


def test_a_second_sae_reads_the_items(tiny_lm_dir, tmp_path):
    words = ["dog", "cat", "river", "bridge", "hammer", "bread", "owl", "tree"]
    documents = [f"The {a} saw the {b} near the {c}, and then ran away from a {a}." for a in words for b in words for c in words]
    write_jsonl(tmp_path / "corpus.jsonl", [{"text": text} for text in documents])
    items = [Item(f"i{k}", "b", f"i{k}", documents[-k - 1], ("a", "b"), 0) for k in range(12)]
    write_activations(tmp_path / "activations", random_saliency(1, 12, 4), ["b"] * 12, ids=[item.id for item in items])
    policy = {"text": "text", "prepend_bos": True, "max_tokens": 24, "max_norm": None}
    write_json(tmp_path / "activations" / "meta.json", {"policy": policy, "sae": {"layer": 1}})
    settings = TrainSaeParams(d_sae=64, k=6, context_size=24, train_tokens=3000, heldout_tokens=1000, steps=30, batch_tokens=256)

    def read(folder: str):
        return read_with_second_sae(
            tiny_lm_dir, tmp_path / "corpus.jsonl", tmp_path / "activations", items, settings, 256, tmp_path / folder,
            seed=1, machine=Machine("float32", "cpu", 1),
        )  # fmt: skip

    first = read("work")
    assert first.features.matrix.shape == (12, 64)
    assert first.features.matrix.nnz > 12
    assert 0 < first.quality["fvu"] < 1
    assert not list((tmp_path / "work" / "validity").iterdir())
    assert (read("other").features.matrix != first.features.matrix).nnz == 0


def test_power_says_what_a_suite_can_show(run):
    arguments = ["--activations", str(run / "activations" / "seen"), "--items", str(run / "items.jsonl"), "--accuracy", "0.7"]
    result = CliRunner().invoke(power, [*arguments, "--json", "--gap", "0.5", "--discoveries", "2"])
    assert result.exit_code == 0, result.output
    table = json.loads(result.output)
    assert (table["n_items"], table["chance"], table["n_tested"]) == (N_ITEMS, 0.25, N_CONCEPTS)
    assert table["level"] == pytest.approx(0.05 * 2 / N_CONCEPTS)
    rows = [row for _size, row in sorted(table["by_support"].items(), key=lambda entry: int(entry[0]))]
    gaps = [row["smallest_gap"] for row in rows if "smallest_gap" in row]
    assert gaps == sorted(gaps, reverse=True)
    words = CliRunner().invoke(power, arguments).output
    assert "240 items" in words
    assert "items more" in words
    low = CliRunner().invoke(power, [*arguments[:-1], "0.2"])
    assert low.exit_code == 1
    assert "nothing to fall from" in low.output
