import numpy as np
import pytest

from gapscope.artifacts import SUITE
from gapscope.competency.activations import Rows
from gapscope.report import rows
from gapscope.report.inputs import Coverage, Performance

NAN = np.nan


def coverage_of(
    chi: dict[str, list[float]], unmasked: dict[str, list[float]] | None = None, structural: list[int] | None = None
) -> Coverage:
    n = len(chi[SUITE])
    arrays = {name: np.array(values, float) for name, values in chi.items()}
    other = {name: np.array(values, float) for name, values in (unmasked or chi).items()}
    return Coverage(np.arange(n), arrays, other, np.isin(np.arange(n), structural or []), np.zeros(n, bool))


def performance_of(chi: list[float], n_eff: list[float], **columns: list[float]) -> Performance:
    names = ("ci_low", "ci_high", "adjusted", "adjusted_low", "adjusted_high", "shrunk", "p", "q")
    empty = {name: np.full(len(chi), NAN) for name in names}
    given = {name: np.array(values, float) for name, values in columns.items() if name not in ("status", "finding")}
    base = {"concept": np.arange(len(chi)), "chi_model": np.array(chi, float), "n": np.array(n_eff), "n_eff": np.array(n_eff, float)}
    texts = [np.array(columns.get(name, [""] * len(chi)), dtype=object) for name in ("status", "finding")]
    return Performance({**empty, **base, **given}, *texts)


def test_log_bins_have_edges_that_do_not_depend_on_the_data() -> None:
    values = np.array([1.0, 1.5, 1.6, 10.0, 0.1, 0.0999])
    assert rows.log_bins(values, 5).tolist() == [0, 0, 1, 5, -5, -6]


def test_unit_bins_put_one_into_the_last_bin() -> None:
    assert rows.unit_bins(np.array([0.0, 0.0249, 0.025, 0.5, 1.0]), 40).tolist() == [0, 0, 1, 20, 39]


def test_coverage_distribution_counts_zeros_and_nulls_apart() -> None:
    coverage = coverage_of({SUITE: [0, 0, NAN, 1, 12], "b": [0, 0, NAN, 1, 12]}, {SUITE: [0, 1, NAN, 1, 12], "b": [0, 1, NAN, 1, 12]})
    found = rows.coverage_distribution("o", coverage, 1)
    assert [(row["group"], row["log10_coverage"], row["n_concepts"]) for row in found] == [
        (rows.MASKED, 0.5, 1),
        (rows.MASKED, 1.5, 1),
        (rows.UNMASKED, 0.5, 2),
        (rows.UNMASKED, 1.5, 1),
    ]
    assert {(row["group"], row["n_missing"], row["n_undefined"]) for row in found} == {(rows.MASKED, 2, 1), (rows.UNMASKED, 1, 1)}


def test_coverage_distribution_of_a_suite_that_exercises_nothing_is_one_empty_bin() -> None:
    found = rows.coverage_distribution("o", coverage_of({SUITE: [0, 0], "b": [0, 0]}, {SUITE: [NAN, NAN], "b": [NAN, NAN]}), 5)
    assert [(row["group"], row["n_concepts"], row["n_missing"]) for row in found] == [(rows.MASKED, 0, 2)]


def test_performance_distribution_leaves_undefined_out_and_support_apart() -> None:
    performance = performance_of([0.1, 0.1, NAN, 1.0], [30, 3, 0, 30])
    found = rows.performance_distribution("o", "s", performance, 5, 20, 2)
    assert [(row["group"], row["performance"], row["n_concepts"]) for row in found] == [
        (rows.SUPPORTED, 0.25, 1),
        (rows.SUPPORTED, 0.75, 1),
        (rows.UNSUPPORTED, 0.25, 1),
        (rows.UNSUPPORTED, 0.75, 0),
    ]
    assert found[0]["n_undefined"] == 2


def test_a_calibrated_table_says_itself_what_is_supported() -> None:
    performance = performance_of([0.1, 0.1], [30, 30], status=["typical", "unsupported"])
    found = rows.performance_distribution("o", "s", performance, 2, 20, 1)
    assert [row["n_concepts"] for row in found] == [1, 1]


def test_coverage_performance_cells() -> None:
    coverage = coverage_of({SUITE: [1, 1, 0, 100], "b": [1, 1, 0, 100]})
    found = rows.coverage_performance("o", "s", coverage, performance_of([0.1, 0.1, 0.1, NAN], [30, 30, 30, 30]), 20, 1, 2)
    assert len(found) == 1
    cell = found[0]
    assert (cell["log10_coverage"], cell["log10_coverage_end"], cell["performance"], cell["performance_end"]) == (0, 1, 0, 0.5)
    assert (cell["n_concepts"], cell["n_left_out"]) == (2, 2)


def test_coverage_performance_without_a_supported_concept_is_one_empty_cell() -> None:
    found = rows.coverage_performance("o", "s", coverage_of({SUITE: [1], "b": [1]}), performance_of([NAN], [0]), 20, 5, 20)
    assert [row["n_concepts"] for row in found] == [0]


def test_missing_share_by_benchmark() -> None:
    items = Rows(["1", "2", "3"], ["a", "b"], np.array([0, 0, 1]), np.array([5, 6, 7]), np.zeros(3, int), np.zeros(3, int))
    coverage = coverage_of(
        {SUITE: [0, 1, 1, 1], "a": [0, 0, 1, 1], "b": [NAN] * 4}, {SUITE: [1, 1, 1, 1], "a": [1, 1, 1, 1], "b": [NAN] * 4}
    )
    found = {(row["benchmark"], row["group"]): row for row in rows.missing_by_benchmark("o", coverage, items)}
    assert found[rows.SUITE_NAME, rows.MASKED]["missing_share"] == 0.25
    assert found["a", rows.MASKED]["missing_share"] == 0.5
    assert found["a", rows.UNMASKED]["missing_share"] == 0.0
    assert found["b", rows.MASKED]["missing_share"] is None
    assert found["b", rows.MASKED]["n_concepts"] == 0
    assert [(found[name, rows.MASKED]["n_items"], found[name, rows.MASKED]["n_tokens"]) for name in ("a", "b", rows.SUITE_NAME)] == [
        (2, 11),
        (1, 7),
        (3, 18),
    ]


def test_overlap_has_each_pair_once_and_never_no_row() -> None:
    table = [{"benchmark": one, "other": other, "jaccard": 0.5, "n_shared": 3} for one, other in (("a", "b"), ("b", "a"))]
    assert [(row["benchmark_a"], row["benchmark_b"]) for row in rows.concept_overlap("o", table, ["a", "b"])] == [("a", "b")]
    alone = rows.concept_overlap("o", [], ["a"])
    assert [(row["benchmark_a"], row["jaccard"]) for row in alone] == [("a", None)]


def test_write_rows_refuses_what_breaks_a_plot(tmp_path) -> None:
    file = tmp_path / "x.json"
    for bad in ([], [{"a": 1}, {"b": 1}], [{"a": float("nan")}]):
        with pytest.raises(ValueError):
            rows.write_rows(file, bad)
    assert not file.exists()
    rows.write_rows(file, [{"b": 1 / 3, "a": None}, {"a": "é", "b": 2}])
    assert file.read_bytes() == '[\n{"a": null, "b": 0.3333},\n{"a": "é", "b": 2}\n]\n'.encode()
