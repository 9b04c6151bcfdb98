from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from made_activations import random_saliency, write_activations, write_contexts, write_scores
from safetensors.numpy import save_file

from gapscope.artifacts import CLUSTERS, PERFORMANCE, SUITE
from gapscope.competency.cluster import Inputs, distances, group, performance_files, read_decoder, write_clusters
from gapscope.competency.coverage import write_coverage
from gapscope.competency.performance import read_suite, write_performances
from gapscope.competency.selection import select_coverage, select_subject
from gapscope.errors import InputError
from gapscope.files import sha256_file
from gapscope.params import ClusterParams, CoverageParams, PerformanceParams, StrataParams
from stages.cluster import main

N_ITEMS, N_CONCEPTS = 160, 24


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A whole run: concepts 0 to 3 are planted gaps, 20 to 23 fire in the corpus and never here."""
    path = tmp_path_factory.mktemp("run")
    saliency = random_saliency(11, N_ITEMS, N_CONCEPTS)
    saliency[:, 20:] = 0
    saliency[:, 1:3] = saliency[:, [0]] * np.array([1.1, 0.9])
    benchmarks = [f"b{k % 2}" for k in range(N_ITEMS)]
    write_activations(path / "activations", saliency, benchmarks, reference=(1600, [60] * 24))
    generator = np.random.default_rng(5)
    right = (generator.random(N_ITEMS) < 0.6) & (saliency[:, 0] == 0) & (saliency[:, 3] == 0)
    for subject in ("one", "two"):
        write_scores(path / "scores" / subject, {f"i{k:04d}": float(value) for k, value in enumerate(right)})
    pieces = ["about", " alpha", " beta", " gamma", " delta"]
    windows = []
    for concept in range(20):
        items = np.flatnonzero(saliency[:, concept])[:9]
        fired = 1 if concept < 3 else 2 + concept % 3
        strengths = [3.0 if k == fired else 0.0 for k in range(5)]
        windows += [(concept, f"i{item:04d}", pieces, strengths, "top") for item in items]
    write_contexts(path / "activations", windows)
    directions = generator.normal(size=(N_CONCEPTS, 8)).astype(np.float32)
    directions[:3] = directions[0] + 0.05 * generator.normal(size=(3, 8))
    directions[3] = -directions[0]
    (path / "sae").mkdir()
    save_file({"W_dec": directions}, path / "sae" / "sae_weights.safetensors")
    write_coverage(path / "activations", path / "coverage", CoverageParams())
    params = PerformanceParams(min_n_eff=8.0)
    suite = read_suite(path / "activations", None, path / "coverage", StrataParams(length_bins=1))
    files = {subject: path / "scores" / subject / "scores.parquet" for subject in ("one", "two")}
    write_performances(suite, files, path / "performance", params)
    return path


def arguments(run: Path, **changes: Path) -> list[str]:
    paths = {
        "coverage": run / "coverage",
        "performance": run / "performance",
        "activations": run / "activations",
        "sae": run / "sae",
    } | changes
    return [part for name, path in paths.items() for part in (f"--{name}", str(path))]


def test_a_run_is_selected_labelled_grouped_and_named(run, tmp_path):
    inputs = (run / "coverage", run / "performance", run / "activations", run / "sae")
    metrics = write_clusters(Inputs(*inputs), tmp_path / "c.parquet", ClusterParams(extremes=6))
    rows = CLUSTERS.read(tmp_path / "c.parquet").to_pylist()
    gaps = {row["concept"]: row for row in rows if row["subject"] == "one" and row["cluster"].startswith("gap")}
    assert set(gaps) == {0, 1, 2, 3}
    # 0, 1 and 2 point the same way and fire on the same word: one cluster, the largest, so it comes first.
    assert [gaps[concept]["cluster"] for concept in range(4)] == ["gap_001", "gap_001", "gap_001", "gap_002"]
    assert gaps[0]["label"].startswith("alpha")
    assert gaps[0]["interpretation"].startswith("alpha")
    missing = {row["concept"] for row in rows if row["subject"] is None}
    assert missing >= {20, 21, 22, 23}
    assert {row["label_source"] for row in rows if row["concept"] >= 20} == {"none"}
    assert {row["cluster"].split("_")[0] for row in rows if row["subject"] == "two"} >= {"gap", "lowest", "highest"}
    counts = metrics["subjects"]["one"]["gap"]
    assert counts == {"n_concepts": 4, "n_clusters": 2, "n_left_out": 0}
    assert metrics["n_without_context"] == 4
    assert metrics["coverage"]["n_concepts"] == len(missing)


def test_command_writes_the_same_bytes_on_any_number_of_threads(run, tmp_path):
    digests = set()
    for threads in ("1", "2"):
        output = tmp_path / f"{threads}.parquet"
        command = [sys.executable, "-m", "stages.cluster", *arguments(run), "--output", str(output)]
        environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[2])
        digests.add(sha256_file(output))
    assert len(digests) == 1


def test_order_of_rows_of_the_inputs_does_not_matter(run, tmp_path):
    outputs = []
    for name in ("straight", "mixed"):
        performance = tmp_path / name / "performance"
        for subject in ("one", "two"):
            table = PERFORMANCE.read(run / "performance" / f"{subject}.parquet")
            order = np.random.default_rng(3).permutation(table.num_rows) if name == "mixed" else np.arange(table.num_rows)
            PERFORMANCE.write(performance / f"{subject}.parquet", table.take(order))
        output = tmp_path / f"{name}.parquet"
        write_clusters(Inputs(run / "coverage", performance, run / "activations", run / "sae"), output, ClusterParams())
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]


def write_suite_rows(path: Path, chi: list[float | None], status: list[str], p: list[float | None] | None = None) -> Path:
    n = len(chi)
    data = {"concept": range(n), "benchmark": [SUITE] * n, "chi_model": chi, "n": [9] * n, "n_eff": [9.0] * n, "status": status, "p": p}
    PERFORMANCE.write(path, data)
    return path


def test_selection_keeps_flags_apart_from_the_ends_of_the_ranking(tmp_path):
    status = ["gap", "typical", "strength", "typical", "unsupported", "undefined", "gap", "typical"]
    path = write_suite_rows(
        tmp_path / "s.parquet", [0.1, 0.2, 0.9, 0.8, 0.0, None, 0.3, 0.5], status, [0.001, 1, 0.01, 1, 1, None, 0.02, 1]
    )
    chosen = {one.kind: one for one in select_subject(path, "s", structural=set(), extremes=2, limit=5)}
    assert {kind: one.concepts for kind, one in chosen.items()} == {"gap": [0, 6], "strength": [2], "lowest": [1], "highest": [3]}
    first = select_subject(path, "s", structural=set(), extremes=2, limit=1)[0]
    assert (first.concepts, first.n_left_out) == ([0], 1)
    assert select_subject(path, "s", structural={0}, extremes=2, limit=5)[0].concepts == [6]


def test_ends_of_a_short_ranking_do_not_meet(tmp_path):
    path = write_suite_rows(tmp_path / "s.parquet", [0.1, 0.5, 0.9], ["typical"] * 3)
    kinds = {one.kind: one.concepts for one in select_subject(path, "s", set(), extremes=10, limit=10)}
    assert (kinds["lowest"], kinds["highest"]) == ([0], [2])


def test_the_surest_are_chosen_too_and_no_concept_twice(tmp_path):
    data = {"concept": range(6), "benchmark": [SUITE] * 6, "n": [9] * 6, "n_eff": [9.0] * 6, "status": ["typical"] * 6}
    data |= {"chi_model": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "p": [0.9, 0.9, 0.1, 0.1, 0.2, 0.2]}
    PERFORMANCE.write(tmp_path / "s.parquet", {**data, "adjusted": [0.9, 0.0, -0.4, 0.4, -0.9, 0.1]})
    kinds = {one.kind: one.concepts for one in select_subject(tmp_path / "s.parquet", "s", set(), extremes=2, limit=10)}
    assert (kinds["lowest"], kinds["highest"]) == ([0, 1, 2, 4], [3, 5])


def test_coverage_gaps_with_and_without_a_reference(tmp_path):
    saliency = np.zeros((40, 5))
    saliency[:, 0], saliency[:, 1], saliency[:10, 2], saliency[0, 4] = 3, 2, 1, 0.1
    for name, counts in (("plain", {}), ("reference", {"reference": (400, [40, 40, 40, 40, 1]), "template": (2, [2, 0, 0, 0, 0])})):
        write_activations(tmp_path / name, saliency, ["a"] * 40, **counts)
        write_coverage(tmp_path / name, tmp_path / f"{name}_coverage", CoverageParams(under_quantile=0.3))
    plain, structural = select_coverage(tmp_path / "plain_coverage" / "coverage.parquet", 10)
    assert (plain.concepts, structural) == ([3, 4], set())
    against, structural = select_coverage(tmp_path / "reference_coverage" / "coverage.parquet", 10)
    assert (against.concepts, structural) == ([2, 3], {0})
    assert select_coverage(tmp_path / "reference_coverage" / "coverage.parquet", 1)[0].concepts == [3]


def test_distance_by_hand():
    directions = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    words = [{"a": 2.0}, {"a": 1.0, "b": 1.0}, {}]
    found = distances(directions, words, 0.25)
    assert found[0, 1] == pytest.approx(1 - 0.75 * 0.6 - 0.25 / np.sqrt(2), abs=1e-6)
    assert found[1, 2] == pytest.approx(1 - 0.75 * 0.8, abs=1e-6)
    assert (found == found.T).all()


def test_groups_are_cut_by_distance_and_by_size():
    places = np.array([0, 1, 2, 3, 50, 51, 99.0])
    distance = np.abs(places[:, None] - places) / 100
    assert group(distance, 0.1, 12) == [[0, 1, 2, 3], [4, 5], [6]]
    assert group(distance, 0.1, 2) == [[0, 1], [2, 3], [4, 5], [6]]
    assert group(distance, 1.0, 12) == [[0, 1, 2, 3, 4, 5, 6]]
    assert group(distance, 0.0, 12) == [[k] for k in range(7)]
    assert group(distance[:1, :1], 0.1, 12) == [[0]]
    assert group(distance[:0, :0], 0.1, 12) == []


def test_decoder_rows_are_unit_directions_of_the_named_concepts(tmp_path):
    save_file({"W_dec": np.array([[3, 4], [0, 0], [0, 2]], dtype=np.float32)}, tmp_path / "sae_weights.safetensors")
    assert read_decoder(tmp_path, [0, 1, 2]).tolist() == pytest.approx(np.array([[0.6, 0.8], [0, 0], [0, 1]]))
    assert read_decoder(tmp_path, []).shape == (0, 2)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"W_dec": np.zeros((3, 8), dtype=np.float32)}, "has 3 latents, concept"),
        ({"decoder": np.zeros((24, 8), dtype=np.float32)}, "has no W_dec"),
        (None, "no such file"),
        (b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ", "has no W_dec"),
        (b"nothing of the kind", "not readable"),
    ],
)
def test_a_wrong_sae_is_one_line_and_leaves_nothing_behind(run, tmp_path, weights, words):
    (tmp_path / "sae").mkdir()
    file = tmp_path / "sae" / "sae_weights.safetensors"
    if isinstance(weights, bytes):
        file.write_bytes(weights)
    elif weights is not None:
        save_file(weights, file)
    result = CliRunner().invoke(main, [*arguments(run, sae=tmp_path / "sae"), "--output", str(tmp_path / "c.parquet")])
    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1
    assert words in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sae"]


def test_inputs_of_another_run_are_refused(run, tmp_path):
    write_activations(tmp_path / "narrow", random_saliency(1, 5, 3), ["a"] * 5)
    result = CliRunner().invoke(main, [*arguments(run, activations=tmp_path / "narrow"), "--output", str(tmp_path / "c.parquet")])
    assert (result.exit_code, "has 3 concepts, the tables have" in result.output) == (1, True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no performance table"):
        performance_files(tmp_path / "empty")


def test_one_subject_may_be_a_file(run):
    assert performance_files(run / "performance" / "one.parquet") == {"one": run / "performance" / "one.parquet"}
    assert sorted(performance_files(run / "performance")) == ["one", "two"]
