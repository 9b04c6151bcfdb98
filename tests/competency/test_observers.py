from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from safetensors.numpy import save_file

from gapscope.competency.performance import read_suite, write_performance
from gapscope.files import write_csr, write_json
from gapscope.items import Item, write_items
from gapscope.params import PerformanceParams
from stages.commands.match import main
from tests.competency.made_activations import random_saliency, write_activations, write_scores

N, C = 300, 20
PARAMS = PerformanceParams(min_n_eff=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Observer `two` has the concepts of `one` in another order; a subject is wrong where concept 3 of `one` fires."""
    root = tmp_path_factory.mktemp("data")
    saliency = random_saliency(3, N, C, share=0.25)
    order = np.random.default_rng(5).permutation(C)
    ids = [f"i{k:04d}" for k in range(N)]
    write_items(root / "items" / "items.jsonl", [Item(i, "a", i, f"q {i}", ("x", "y"), 0) for i in ids])
    scores = np.where(saliency[:, 3] > 0, 0, np.random.default_rng(1).random(N) < 0.7).astype(float)
    write_scores(root / "scores" / "sub", dict(zip(ids, scores.tolist(), strict=True)), chance=0.5)
    for name, matrix in (("one", saliency), ("two", saliency[:, order])):
        directory = write_activations(root / "activations" / name, matrix, ["a"] * N, ids=ids)
        write_csr(directory / "control_random.npz", sp.csr_matrix(random_saliency(9, N, C, share=0.25)))
        meta = json.loads((directory / "meta.json").read_text())
        write_json(directory / "meta.json", {**meta, "controls": ["random"], "observer": {"name": "m"}, "sae": {"hook_name": "blocks.1"}})
        suite = read_suite(directory, root / "items" / "items.jsonl", None, PARAMS.strata)
        write_performance(suite, root / "scores" / "sub" / "scores.parquet", root / "performance" / name / "sub.parquet", PARAMS)
    directions = np.random.default_rng(2).normal(size=(C, 8)).astype(np.float32)
    for name, weights in (("one", directions), ("two", directions[order])):
        (root / "sae" / name).mkdir(parents=True)
        save_file({"W_dec": np.ascontiguousarray(weights)}, root / "sae" / name / "sae_weights.safetensors")
    return root


def run(data, *arguments: str):
    return CliRunner().invoke(main, [*arguments, "--data", str(data), "--params", "absent.yaml"])


def test_the_same_concepts_in_another_order(data):
    found = json.loads(run(data, "one", "two", "--json").stdout)
    assert found["basis"] == "decoder"
    for basis in ("saliency", "decoder"):
        assert found["matches"][basis] == {"n_compared": C, "n_mutual": C, "n_alike": C, "median_likeness": pytest.approx(1, abs=1e-4)}
    for null in ("permuted", "random"):
        assert found["matches"][null]["median_likeness"] < 0.3
    agreed = found["subjects"]["sub"]
    assert agreed["concepts"] == {"n": C, "rank_correlation": pytest.approx(1)}
    assert agreed["mutual"]["n"] == C
    assert abs(agreed["random"]["rank_correlation"]) < 0.8


def test_lines(data):
    result = run(data, "one", "two")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "one and two: 300 items read by both; effects compared by decoder"
    assert "rank correlation of adjusted effects: concepts +1.00 (n 20)" in result.stdout


def test_another_suite_is_refused(data, tmp_path):
    write_activations(data / "activations" / "other", random_saliency(3, 10, C), ["a"] * 10)
    result = run(data, "one", "other")
    assert (result.exit_code, "have not read the same items" in result.stderr) == (1, True)
    assert run(data, "one", "gone").exit_code == 1
