from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from made_activations import random_saliency, write_activations, write_scores

from gapscope.artifacts import PERFORMANCE, SCORES, SUITE
from gapscope.competency.coverage import write_coverage
from gapscope.competency.performance import read_suite, write_performance
from gapscope.errors import InputError
from gapscope.files import read_json, sha256_tree, write_csr
from gapscope.items import Item, write_items
from gapscope.params import CoverageParams, PerformanceParams, StrataParams
from stages.performance import main

# Benchmark "a" holds items 0 to 2, "b" items 3 and 4. Concept 2 fires on an unscored item only, concept 3 never.
SALIENCY = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [0, 2, 5, 0], [4, 0, 0, 0], [4, 1, 0, 0]], dtype=float)
BENCHMARKS = ["a", "a", "a", "b", "b"]
SCORES_BY_ID = {"i0000": 1.0, "i0001": 0.0, "i0002": None, "i0003": 1.0, "i0004": 0.5}


def rows_of(path: Path) -> dict[tuple[str, int], dict[str, object]]:
    return {(row["benchmark"], row["concept"]): row for row in PERFORMANCE.read(path).to_pylist()}


def perform(tmp_path: Path, saliency: np.ndarray, benchmarks: list[str], scores: dict[str, float | None], **kwargs) -> dict:
    """Write a run, compute performance and return its rows."""
    items, coverage = kwargs.pop("items", None), kwargs.pop("coverage", None)
    strata = kwargs.pop("strata", StrataParams(length_bins=1))
    write_activations(tmp_path / "activations", saliency, benchmarks, **kwargs)
    write_scores(tmp_path / "scores", scores)
    suite = read_suite(tmp_path / "activations", items, coverage, strata)
    params = PerformanceParams(min_n_eff=5.0, strata=strata)
    write_performance(suite, tmp_path / "scores" / "scores.parquet", tmp_path / "out.parquet", params)
    return rows_of(tmp_path / "out.parquet")


def random_run(seed: int, n_items: int = 60, n_concepts: int = 30) -> tuple[np.ndarray, list[str], dict[str, float | None]]:
    generator = np.random.default_rng(seed)
    benchmarks = [f"b{k % 3}" for k in range(n_items)]
    return random_saliency(seed, n_items, n_concepts), benchmarks, {f"i{k:04d}": float(generator.random() < 0.5) for k in range(n_items)}


def test_reference_columns_by_hand(tmp_path):
    rows = perform(tmp_path, SALIENCY, BENCHMARKS, SCORES_BY_ID)
    assert rows["a", 0]["chi_model"] == (1 * 1 + 3 * 0) / 4
    assert (rows["a", 0]["n"], rows["a", 0]["n_eff"]) == (2, pytest.approx(16 / 10))
    assert rows["b", 0]["chi_model"] == 0.75
    assert rows[SUITE, 0]["chi_model"] == (0.25 + 0.75) / 2
    assert (rows[SUITE, 0]["n"], rows[SUITE, 0]["n_eff"]) == (4, pytest.approx(16 / 10 + 2))
    # Concept 1 fires on items 0 and 2 of "a", but item 2 is unscored.
    assert (rows["a", 1]["chi_model"], rows["a", 1]["n"]) == (1, 1)
    assert rows["a", 0]["ci_low"] < 0.25 < rows["a", 0]["ci_high"]


def test_undefined_is_null_with_no_items(tmp_path):
    rows = perform(tmp_path, SALIENCY, BENCHMARKS, SCORES_BY_ID)
    for key in (("a", 2), (SUITE, 2), (SUITE, 3), ("b", 3)):
        assert (rows[key]["n"], rows[key]["n_eff"], rows[key]["status"]) == (0, 0, "undefined")
        for name in ("chi_model", "ci_low", "ci_high", "adjusted", "adjusted_low", "adjusted_high", "shrunk", "p", "q", "finding"):
            assert rows[key][name] is None
    # Undefined in "a": the suite's mean is over "b" alone.
    assert rows[SUITE, 1]["chi_model"] == (1 + 0.5) / 2


def test_chi_model_in_plain_numpy(tmp_path):
    saliency, benchmarks, scores = random_run(3)
    stored = perform(tmp_path, saliency, benchmarks, scores)

    loaded = sp.load_npz(tmp_path / "activations" / "saliency.npz").toarray()
    table = SCORES.read(tmp_path / "scores" / "scores.parquet").to_pylist()
    right = np.array([row["score"] for row in table])
    chi = {}
    for name in sorted(set(benchmarks)):
        mine = np.array(benchmarks) == name
        with np.errstate(invalid="ignore"):
            chi[name] = right[mine] @ loaded[mine] / loaded[mine].sum(axis=0)
    chi[SUITE] = np.nanmean(list(chi.values()), axis=0)
    for name, values in chi.items():
        expected = [None if np.isnan(value) else pytest.approx(value, rel=1e-5) for value in values]
        assert [stored[name, c]["chi_model"] for c in range(30)] == expected


def test_scores_are_joined_on_the_id(tmp_path):
    saliency, benchmarks, scores = random_run(4)
    straight = perform(tmp_path / "straight", saliency, benchmarks, scores)
    order = np.random.default_rng(1).permutation(60)
    ids = [f"i{k:04d}" for k in range(60)]
    others = {"not_read_1": 1.0, **scores, "not_read_2": 0.0}
    mixed = perform(tmp_path / "mixed", saliency[order], [benchmarks[k] for k in order], others, ids=[ids[k] for k in order])
    for key, row in straight.items():
        # Sums run in another order, so that the seventh digit may differ.
        assert {name: pytest.approx(value, rel=1e-5) if isinstance(value, float) else value for name, value in row.items()} == mixed[key]


def test_an_item_without_any_concept_changes_no_reference_column(tmp_path):
    saliency, benchmarks, scores = random_run(5)
    before = perform(tmp_path / "before", saliency, benchmarks, scores)
    added = {**scores, "i0060": 1.0}
    after = perform(tmp_path / "after", np.vstack([saliency, np.zeros(30)]), [*benchmarks, "b0"], added)
    for key, row in before.items():
        assert [after[key][name] for name in ("chi_model", "n", "n_eff")] == [row[name] for name in ("chi_model", "n", "n_eff")]


def test_doubled_items_of_the_same_families_are_no_more_evidence(tmp_path):
    saliency, benchmarks, scores = random_run(6)
    ids = [f"i{k:04d}" for k in range(60)]
    twins = [f"j{k:04d}" for k in range(60)]
    doubled = {**scores, **{twin: scores[item] for item, twin in zip(ids, twins, strict=True)}}
    items = [Item(name, benchmarks[k % 60], ids[k % 60], "text", target="x") for k, name in enumerate(ids + twins)]
    write_items(tmp_path / "items.jsonl", items)
    once = perform(tmp_path / "once", saliency, benchmarks, scores)
    both = np.vstack([saliency, saliency])
    twice = perform(tmp_path / "twice", both, benchmarks * 2, doubled, ids=ids + twins, items=tmp_path / "items.jsonl")
    for key, row in once.items():
        for name in ("chi_model", "ci_low", "ci_high", "adjusted", "p", "q", "status", "finding"):
            assert twice[key][name] == (pytest.approx(row[name], rel=1e-5) if isinstance(row[name], float) else row[name])
        assert twice[key]["n"] == 2 * row["n"]


def planted(tmp_path: Path, **kwargs) -> dict:
    """200 items; the subject fails wherever concept 0 fires, and is right half of the time elsewhere."""
    saliency = random_saliency(8, 200, 20)
    generator = np.random.default_rng(8)
    right = (generator.random(200) < 0.5) & (saliency[:, 0] == 0)
    return perform(tmp_path, saliency, ["a"] * 200, {f"i{k:04d}": float(value) for k, value in enumerate(right)}, **kwargs)


def test_a_planted_gap_is_found_and_named(tmp_path):
    rows = planted(tmp_path)
    found = rows[SUITE, 0]
    assert (found["status"], found["finding"], found["chi_model"]) == ("gap", "0", 0)
    assert found["adjusted"] < found["shrunk"] < 0
    assert found["adjusted_high"] < 0
    assert found["p"] <= found["q"] < 0.001
    assert [rows[SUITE, c]["status"] for c in range(1, 20)].count("typical") >= 18


def test_dead_and_structural_concepts_are_not_tested(tmp_path):
    saliency = random_saliency(8, 200, 20)
    write_activations(tmp_path / "a", saliency, ["a"] * 200, reference=(100, [5] * 20), template=(3, [3] + [0] * 19))
    write_coverage(tmp_path / "a", tmp_path / "coverage", CoverageParams())
    rows = planted(tmp_path, coverage=tmp_path / "coverage")
    assert (rows[SUITE, 0]["status"], rows[SUITE, 0]["q"], rows[SUITE, 0]["finding"]) == ("unsupported", None, None)
    assert rows[SUITE, 0]["chi_model"] == 0


def test_strata_by_a_meta_key_take_out_what_the_key_explains(tmp_path):
    # The subject knows "easy" and not "hard"; concept 0 fires on hard items only, and says no more than that.
    saliency = np.column_stack([np.repeat([0.0, 1.0], 50), np.ones(100)])
    ids = [f"i{k:04d}" for k in range(100)]
    scores = {item: float(k < 45 or k >= 95) for k, item in enumerate(ids)}
    write_items(
        tmp_path / "items.jsonl",
        [Item(item, "a", item, "text", target="x", meta={"subject": "easy" if k < 50 else "hard"}) for k, item in enumerate(ids)],
    )
    for meta, status in ((None, "gap"), ("subject", "typical")):
        strata = StrataParams(length_bins=1, meta=meta)
        rows = perform(tmp_path / str(meta), saliency, ["a"] * 100, scores, items=tmp_path / "items.jsonl", strata=strata)
        assert rows["a", 0]["status"] == status
        assert rows["a", 0]["chi_model"] == pytest.approx(0.1)
    with pytest.raises(InputError, match=r"performance\.strata\.meta: needs the items"):
        read_suite(tmp_path / "None" / "activations", None, None, StrataParams(meta="subject"))
    with pytest.raises(InputError, match=r"no item has meta\.topic"):
        read_suite(tmp_path / "None" / "activations", tmp_path / "items.jsonl", None, StrataParams(meta="topic"))


def test_one_subject_to_a_file_and_several_to_a_directory(tmp_path, caplog):
    saliency, benchmarks, scores = random_run(9)
    activations = write_activations(tmp_path / "a", saliency, benchmarks)
    write_scores(tmp_path / "scores" / "first", scores)
    write_scores(tmp_path / "scores" / "second", {**scores, "i0000": None, "other": 1.0})
    common = ["--activations", str(activations), "--scores"]
    one = CliRunner().invoke(main, [*common, str(tmp_path / "scores" / "first"), "--output", str(tmp_path / "one.parquet"), "--json"])
    assert one.exit_code == 0, one.output
    digests = set()
    for run in ("x", "y"):
        metrics_file = tmp_path / f"{run}.json"
        options = ["--output", str(tmp_path / run), "--metrics", str(metrics_file)]
        with caplog.at_level(logging.WARNING):
            result = CliRunner().invoke(main, [*common, str(tmp_path / "scores"), *options])
        assert result.exit_code == 0, result.output
        digests.add(sha256_tree(tmp_path / run))
    assert len(digests) == 1
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["first.parquet", "second.parquet"]
    assert (tmp_path / "x" / "first.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()
    metrics = read_json(metrics_file)
    assert (metrics["first"]["n_unscored"], metrics["second"]["n_unscored"], metrics["second"]["n_unknown"]) == (0, 1, 1)
    assert metrics["first"]["mean_score"] == pytest.approx(np.mean(list(scores.values())))
    assert "second: 1 items unscored, 1 scores of items that were not read" in caplog.messages


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: write_scores(path, {"x": 1.0, "y": 0.0}), "none of its 2 ids is an item of the activations (here ['x'], there"),
        (lambda path: write_scores(path, {"i0000": 1.5}), "scores.parquet:1: score: item 'i0000' has 1.5, must be 0 to 1"),
        (lambda path: write_scores(path, {"i0001": 1.0}, chance=-0.5), "chance: item 'i0001' has -0.5"),
        (
            lambda path: write_scores(path, {"i0001": 1.0}, chance=1.0),
            "scores.parquet:1: chance: item 'i0001' has 1, must be at least 0 and below",
        ),
        (lambda path: write_scores(path, {"i0000": None}), "no item of the activations is scored"),
        (lambda path: (path / "scores.parquet").write_bytes(b"PAR1"), "not a readable Parquet file"),
        (lambda path: (path / "scores.parquet").unlink(), "holds no scores.parquet and no directory with one"),
        (lambda path: write_csr(path.parent / "a" / "saliency.npz", sp.csr_matrix(SALIENCY[:3])), "has 3 rows, rows.parquet has 5 items"),
    ],
)
def test_bad_inputs_are_one_line_and_leave_nothing_behind(tmp_path, damage, words):
    activations = write_activations(tmp_path / "a", SALIENCY, BENCHMARKS)
    scores = write_scores(tmp_path / "s", SCORES_BY_ID)
    damage(scores)
    arguments = ["--activations", str(activations), "--scores", str(scores), "--output", str(tmp_path / "out.parquet")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1
    assert words in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "s"]


def test_scores_with_an_id_twice_are_refused(tmp_path):
    write_activations(tmp_path / "a", SALIENCY, BENCHMARKS)
    table = {"item_id": ["i0000", "i0001", "i0001"], "score": [1, 0, 1], "chance": [0.25] * 3, "scored": [True] * 3}
    SCORES.write(tmp_path / "s" / "scores.parquet", table)
    suite = read_suite(tmp_path / "a", None, None, StrataParams())
    with pytest.raises(InputError, match=r"scores\.parquet:2: item_id: item 'i0001' occurs twice"):
        write_performance(suite, tmp_path / "s" / "scores.parquet", tmp_path / "out.parquet", PerformanceParams())


def test_coverage_and_items_of_another_run_are_refused(tmp_path):
    write_activations(tmp_path / "a", SALIENCY, BENCHMARKS)
    write_activations(tmp_path / "other", SALIENCY[:, :2], BENCHMARKS)
    write_coverage(tmp_path / "other", tmp_path / "coverage", CoverageParams())
    with pytest.raises(InputError, match="one __suite__ row for each of the 4 concepts"):
        read_suite(tmp_path / "a", None, tmp_path / "coverage", StrataParams())
    write_items(tmp_path / "items.jsonl", [Item("i0000", "a", "i0000", "text", target="x")])
    with pytest.raises(InputError, match="does not hold item 'i0001'"):
        read_suite(tmp_path / "a", tmp_path / "items.jsonl", None, StrataParams())
