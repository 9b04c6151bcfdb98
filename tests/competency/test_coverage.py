from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from made_activations import random_saliency, write_activations

from gapscope.artifacts import COVERAGE, OVERLAP, ROWS, SUITE
from gapscope.competency.activations import read_matrix, read_rows
from gapscope.competency.coverage import published_status, write_coverage
from gapscope.errors import InputError
from gapscope.files import read_json, sha256_tree, write_csr
from gapscope.params import CoverageParams
from stages.coverage import main

# Two benchmarks: "a" holds items 0 and 1, "b" item 2. Concept 3 never fires.
SALIENCY = np.array([[1.0, 0.0, 3.0, 0.0], [1.0, 2.0, 1.0, 0.0], [0.0, 5.0, 0.0, 0.0]])
FIRING = np.array([[2, 0, 6, 0], [1, 2, 3, 0], [0, 4, 0, 0]])
BENCHMARKS = ["a", "a", "b"]


def rows_of(path: Path) -> dict[tuple[str, int], dict[str, object]]:
    table = COVERAGE.read(path / "coverage.parquet")
    return {(row["benchmark"], row["concept"]): row for row in table.to_pylist()}


def build(tmp_path: Path, saliency: np.ndarray = SALIENCY, benchmarks: list[str] = BENCHMARKS, **kwargs) -> Path:
    kwargs.setdefault("firing", FIRING if saliency is SALIENCY else None)
    write_activations(tmp_path / "activations", saliency, benchmarks, **kwargs)
    write_coverage(tmp_path / "activations", tmp_path / "coverage", CoverageParams())
    return tmp_path / "coverage"


def test_every_column_by_hand(tmp_path):
    unmasked = SALIENCY + np.array([[0, 0, 0, 8.0], [0, 0, 0, 0], [0, 0, 0, 0]])
    rows = rows_of(build(tmp_path, unmasked=unmasked, tokens=[10, 6, 4], reference=(100, [8, 1, 0, 0])))
    # a: totals 2, 2, 4, 0 of 8 over four concepts: mean 2. b: total 5, mean 1.25.
    assert [rows["a", c]["chi_bench"] for c in range(4)] == [1, 1, 2, 0]
    assert [rows["b", c]["chi_bench"] for c in range(4)] == [0, 4, 0, 0]
    assert [rows[SUITE, c]["chi_bench"] for c in range(4)] == [0.5, 2.5, 1, 0]
    # Unmasked: a's totals are 2, 2, 4, 8 of 16: mean 4.
    assert [rows["a", c]["chi_bench_unmasked"] for c in range(4)] == [0.5, 0.5, 1, 2]
    assert [rows[SUITE, c]["n_items"] for c in range(4)] == [2, 2, 2, 0]
    assert [rows["a", c]["n_tokens"] for c in range(4)] == [3, 2, 9, 0]
    assert rows["a", 0]["firing_rate"] == 3 / 16
    assert rows[SUITE, 1]["firing_rate"] == 6 / 20
    assert rows[SUITE, 0]["reference_rate"] == 0.08
    # 3 of 20 tokens here and 8 of 100 there; at 20 tokens the corpus would fire 1.6 times.
    assert rows[SUITE, 0]["log_ratio"] == pytest.approx(np.log2(3.5 / 2.1), rel=1e-6)
    assert rows["b", 3]["log_ratio"] is None
    assert (rows["a", 3]["published_status"], rows[SUITE, 3]["status"]) == ("missing", "dead")
    assert rows[SUITE, 0]["structural"] is None


def test_chi_bench_in_plain_numpy(tmp_path):
    saliency = random_saliency(1, 40, 30)
    benchmarks = [f"b{k % 3}" for k in range(40)]
    path = build(tmp_path, saliency, benchmarks)
    stored = rows_of(path)

    loaded = sp.load_npz(tmp_path / "activations" / "saliency.npz").toarray()
    means = {name: loaded[np.array(benchmarks) == name].mean(axis=0) for name in sorted(set(benchmarks))}
    chi = {name: mean / mean.mean() for name, mean in means.items()}
    chi[SUITE] = np.mean(list(chi.values()), axis=0)
    for name, values in chi.items():
        assert [stored[name, c]["chi_bench"] for c in range(30)] == pytest.approx(values, rel=1e-5)


def test_published_status_cuts_the_tails_of_the_concepts_that_fire():
    chi = np.array([0.0, *range(1, 12), 0.0])
    assert published_status(chi, 0.1, 0.9) == ["missing", "under", *["typical"] * 9, "over", "missing"]
    assert published_status(np.array([2.0, 2.0, 0.0]), 0.1, 0.9) == ["typical", "typical", "missing"]
    assert published_status(np.zeros(2), 0.1, 0.9) == ["missing", "missing"]


def test_benchmark_in_which_nothing_fires_is_undefined_and_leaves_the_suite_alone(tmp_path):
    saliency = np.vstack([SALIENCY, np.zeros(4)])
    rows = rows_of(build(tmp_path, saliency, [*BENCHMARKS, "empty"], tokens=[10, 6, 4, 0]))
    assert all(rows["empty", c]["chi_bench"] is None for c in range(4))
    assert (rows["empty", 0]["n_items"], rows["empty", 0]["firing_rate"], rows["empty", 0]["published_status"]) == (0, None, None)
    assert [rows[SUITE, c]["chi_bench"] for c in range(4)] == [0.5, 2.5, 1, 0]


def test_an_item_on_which_nothing_fires_changes_no_chi_bench(tmp_path):
    before = rows_of(build(tmp_path / "before"))
    after = rows_of(build(tmp_path / "after", np.vstack([SALIENCY, np.zeros(4)]), [*BENCHMARKS, "b"]))
    assert {key: row["chi_bench"] for key, row in after.items()} == {key: row["chi_bench"] for key, row in before.items()}


def test_doubling_a_benchmark_changes_no_share_of_it(tmp_path):
    once = rows_of(build(tmp_path / "once", firing=FIRING))
    doubled = build(tmp_path / "twice", np.vstack([SALIENCY, SALIENCY]), BENCHMARKS * 2, firing=np.vstack([FIRING, FIRING]))
    for key, row in rows_of(doubled).items():
        for name in ("chi_bench", "firing_rate", "published_status"):
            assert row[name] == once[key][name]
        assert row["n_items"] == 2 * once[key]["n_items"]


def test_order_of_items_does_not_matter(tmp_path):
    saliency = random_saliency(2, 30, 20)
    benchmarks = [f"b{k % 4}" for k in range(30)]
    order = np.random.default_rng(0).permutation(30)
    straight = build(tmp_path / "straight", saliency, benchmarks, reference=(500, list(range(20))))
    mixed = build(tmp_path / "mixed", saliency[order], [benchmarks[k] for k in order], reference=(500, list(range(20))))
    for before, after in zip(rows_of(straight).values(), rows_of(mixed).values(), strict=True):
        assert {name: pytest.approx(value) if isinstance(value, float) else value for name, value in before.items()} == after


def test_overlap_counts_shared_concepts_both_ways(tmp_path):
    saliency = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0.0]])
    table = OVERLAP.read(build(tmp_path, saliency, ["a", "b", "none"]) / "overlap.parquet").to_pylist()
    pairs = {(row["benchmark"], row["other"]): row for row in table}
    assert list(pairs) == sorted(pairs)
    assert pairs["a", "b"] == {
        "benchmark": "a", "other": "b", "n_concepts": 3, "n_other": 2, "n_shared": 1,
        "jaccard": 0.25, "contained": pytest.approx(1 / 3),
    }  # fmt: skip
    assert (pairs["b", "a"]["jaccard"], pairs["b", "a"]["contained"]) == (0.25, 0.5)
    assert (pairs["none", "a"]["jaccard"], pairs["none", "a"]["contained"]) == (0, None)


def test_headlines(tmp_path):
    unmasked = SALIENCY + np.array([[0, 0, 0, 8.0], [0, 0, 0, 0], [0, 0, 0, 0]])
    write_activations(
        tmp_path / "a", SALIENCY, BENCHMARKS, unmasked=unmasked, firing=FIRING, reference=(1000, [5, 5, 5, 0]), template=(4, [2, 0, 0, 0])
    )
    metrics = write_coverage(tmp_path / "a", tmp_path / "c", CoverageParams())
    assert (metrics["n_items"], metrics["n_tokens"], metrics["n_masked"]) == (3, 30, 3)
    assert metrics["missing_share"] == {"masked": {"a": 0.25, "b": 0.75}, "unmasked": {"a": 0, "b": 0.75}}
    assert (metrics["suite"]["missing"], metrics["suite"]["missing_share"], metrics["suite"]["missing_share_unmasked"]) == (1, 0.25, 0)
    assert metrics["suite"]["missing_share_alive"] == 0
    # Concept 0 fires twice on the template and three times on three items: structural, and out of the status counts.
    assert metrics["structural"] == 1
    assert sum(metrics["reference_status"].values()) == 3
    assert metrics["overlap"] == {"n_pairs": 1, "min": pytest.approx(1 / 3), "median": pytest.approx(1 / 3), "max": pytest.approx(1 / 3)}


def test_without_optional_files_their_columns_are_null_and_a_warning_says_so(tmp_path, caplog):
    directory = write_activations(tmp_path / "a", SALIENCY, BENCHMARKS)
    (directory / "saliency_unmasked.npz").unlink()
    with caplog.at_level(logging.WARNING):
        metrics = write_coverage(directory, tmp_path / "c", CoverageParams())
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "no saliency_unmasked.npz", "no reference.parquet", "no template.parquet",
    ]  # fmt: skip
    row = rows_of(tmp_path / "c")["a", 0]
    assert [row[name] for name in ("chi_bench_unmasked", "reference_rate", "log_ratio", "status", "structural")] == [None] * 5
    assert "reference_status" not in metrics
    assert "unmasked" not in metrics["missing_share"]


def test_command_is_byte_stable_and_writes_its_metrics(tmp_path):
    saliency = random_saliency(3, 25, 40)
    directory = write_activations(tmp_path / "a", saliency, [f"b{k % 3}" for k in range(25)], reference=(300, list(range(40))))
    digests = set()
    for run in ("one", "two"):
        metrics = tmp_path / f"{run}.json"
        result = CliRunner().invoke(main, ["--activations", str(directory), "--output", str(tmp_path / run), "--metrics", str(metrics)])
        assert result.exit_code == 0, result.output
        assert read_json(metrics)["n_items"] == 25
        digests.add((sha256_tree(tmp_path / run), metrics.read_bytes()))
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("saliency.npz", lambda path: write_csr(path, sp.csr_matrix(SALIENCY[:2])), "has 2 rows, rows.parquet has 3 items"),
        ("firing.npz", lambda path: write_csr(path, sp.csr_matrix(FIRING[:, :2])), "has 2 concepts, saliency.npz has 4"),
        ("saliency.npz", lambda path: write_csr(path, sp.csr_matrix(-SALIENCY)), "negative or not finite"),
        ("saliency.npz", lambda path: path.write_bytes(b"PK\x03\x04 cut"), "not a readable sparse matrix"),
        ("saliency.npz", lambda path: path.unlink(), "no such file"),
        ("firing.npz", lambda path: path.write_bytes(b""), "the file is empty"),
        ("rows.parquet", lambda path: path.write_bytes(path.read_bytes()[:80]), "not a readable Parquet file"),
        ("reference.parquet", lambda path: path.write_bytes(b"nothing"), "not a readable Parquet file"),
    ],
)
def test_damaged_inputs_are_one_line_and_leave_nothing_behind(tmp_path, name, damage, words):
    directory = write_activations(tmp_path / "a", SALIENCY, BENCHMARKS, firing=FIRING, reference=(100, [1, 1, 1, 1]))
    damage(directory / name)
    result = CliRunner().invoke(main, ["--activations", str(directory), "--output", str(tmp_path / "c")])
    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1
    assert name in result.output
    assert words in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ids": ["x", "y", "x"]}, "item 'x' occurs twice"),
        ({"benchmarks": ["a", SUITE, "b"]}, "is the name of the whole suite"),
        ({"tokens": [1, -1, 1]}, "rows.parquet:2: n_tokens: is negative"),
        ({"reference": (5, [6, 0, 0, 0])}, "n_firing: must lie between 0 and n_tokens"),
    ],
)
def test_impossible_contents_are_refused(tmp_path, change, words):
    options = {"benchmarks": BENCHMARKS, **change}
    directory = write_activations(tmp_path, SALIENCY, options.pop("benchmarks"), **options)
    with pytest.raises(InputError, match=words):
        write_coverage(directory, tmp_path / "c", CoverageParams())


def test_rows_in_another_order_than_the_matrices_are_refused(tmp_path):
    directory = write_activations(tmp_path / "a", SALIENCY, BENCHMARKS)
    table = ROWS.read(directory / "rows.parquet")
    for order in ([1, 0, 2], [0, 2, 1]):
        ROWS.write(directory / "rows.parquet", table.take(order))
        with pytest.raises(InputError, match=r"rows\.parquet: item_id: its items or their order are not those of the matrices"):
            read_rows(directory)
    ROWS.write(directory / "rows.parquet", table.set_column(1, ROWS.schema.field("benchmark"), [["a", "b", "b"]]))
    with pytest.raises(InputError, match="not those of the matrices"):
        read_rows(directory)
    (directory / "meta.json").unlink()
    assert read_rows(directory).item_ids == ["i0000", "i0001", "i0002"], "a directory made by hand"


def test_counts_must_name_every_concept(tmp_path):
    directory = write_activations(tmp_path, SALIENCY, BENCHMARKS)
    write_activations(tmp_path / "narrow", SALIENCY[:, :2], BENCHMARKS, reference=(9, [1, 1]))
    (tmp_path / "narrow" / "reference.parquet").rename(directory / "reference.parquet")
    with pytest.raises(InputError, match="one row for each of the 4 concepts"):
        write_coverage(directory, tmp_path / "c", CoverageParams())


def test_read_matrix_names_the_item_at_fault(tmp_path):
    bad = SALIENCY.copy()
    bad[1, 2] = np.nan
    directory = write_activations(tmp_path, bad, BENCHMARKS)
    with pytest.raises(InputError, match=r"saliency\.npz:2: item 'i0001' holds"):
        read_matrix(directory, "saliency", read_rows(directory))


def test_a_suite_of_one_benchmark_has_no_overlap(tmp_path):
    path = build(tmp_path, SALIENCY, ["only"] * 3)
    assert OVERLAP.read(path / "overlap.parquet").num_rows == 0
    rows = rows_of(path)
    assert [rows[SUITE, c]["chi_bench"] for c in range(4)] == [rows["only", c]["chi_bench"] for c in range(4)]
    assert write_coverage(tmp_path / "activations", tmp_path / "again", CoverageParams())["overlap"] == {"n_pairs": 0}
