"""Tables and work directories.

What must hold: the same data gives the same bytes whatever the order of its rows; NaN and None are both null; floats
are rounded to the declared digits; a reader names the file and the column at fault; a shard is computed once.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from gapscope import artifacts
from gapscope.artifacts import FIRING, PERFORMANCE, ROWS, SCORES
from gapscope.errors import InputError
from gapscope.files import read_csr, round_significant, rounded, stable_hash, write_csr, write_json
from gapscope.table import Table
from gapscope.work import WorkDirectory, work_key

ONE = {"concept": [1], "n_texts": [1], "n_tokens": [2], "n_firing": [1], "n_firing_squared": [1]}
TABLES = [value for value in vars(artifacts).values() if isinstance(value, Table)]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_is_documented_and_named_once(table: Table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert all(column.meaning for column in table.columns)
    assert set(table.sort_by) <= set(names)


def test_row_order_does_not_change_the_bytes(tmp_path: Path) -> None:
    columns = {"concept": [3, 1, 2], "n_texts": [2, 2, 2], "n_tokens": [9, 9, 9], "n_firing": [0, 5, 2], "n_firing_squared": [0, 13, 4]}
    FIRING.write(tmp_path / "a.parquet", columns)
    FIRING.write(tmp_path / "b.parquet", {name: values[::-1] for name, values in columns.items()})
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert FIRING.read(tmp_path / "a.parquet")["concept"].to_pylist() == [1, 2, 3]


def test_undefined_is_null_and_floats_are_rounded(tmp_path: Path) -> None:
    file = tmp_path / "p.parquet"
    data = {"concept": [0, 1, 2], "benchmark": ["b"] * 3, "chi_model": [np.nan, None, 1 / 3], "n": [0, 0, 4], "n_eff": [0.0, 0.0, 2 / 3]}
    PERFORMANCE.write(file, data)
    table = PERFORMANCE.read(file)
    assert table["chi_model"].to_pylist() == [None, None, 0.3333333]
    assert table["q"].null_count == 3
    assert table.schema.field("status").type == pa.string()


def test_required_values_and_unknown_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="n_firing is required"):
        FIRING.build({name: values for name, values in ONE.items() if name != "n_firing"})
    with pytest.raises(ValueError, match="no column"):
        FIRING.build({**ONE, "rate": [0.5]})
    with pytest.raises(ValueError, match="holds 1 nulls"):
        SCORES.build({"item_id": ["a"], "score": [1.0], "chance": [None], "scored": [True]})


def test_readers_name_the_fault(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.parquet: no such file"):
        FIRING.read(tmp_path / "gone.parquet")
    damaged = tmp_path / "damaged.parquet"
    FIRING.write(damaged, ONE)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        FIRING.read(damaged)
    FIRING.write(tmp_path / "firing.parquet", ONE)
    with pytest.raises(InputError, match="is firing/2, needed is scores/1"):
        SCORES.read(tmp_path / "firing.parquet")
    pq.write_table(pa.table({**ONE, "concept": ["one"]}), tmp_path / "typed.parquet")
    with pytest.raises(InputError, match="concept: is string, needed is int64"):
        FIRING.read(tmp_path / "typed.parquet")
    pq.write_table(pa.table({"concept": [1]}), tmp_path / "short.parquet")
    with pytest.raises(InputError, match="n_texts: the column is missing"):
        FIRING.read(tmp_path / "short.parquet")


def test_csr_round_trip_is_stable_and_damage_is_named(tmp_path: Path) -> None:
    dense = np.array([[0, 1.5, 0], [0, 0, 0], [2.5, 0, 3]], dtype=np.float32)
    write_csr(tmp_path / "a.npz", sp.csr_matrix(dense))
    write_csr(tmp_path / "b.npz", sp.coo_matrix(dense).tocsr())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    np.testing.assert_array_equal(read_csr(tmp_path / "a.npz").toarray(), dense)
    np.testing.assert_array_equal(sp.load_npz(tmp_path / "a.npz").toarray(), dense)
    (tmp_path / "c.npz").write_bytes(b"not a zip")
    with pytest.raises(InputError, match=r"c\.npz: not a readable sparse matrix"):
        read_csr(tmp_path / "c.npz")


def test_rounding() -> None:
    values = np.array([123456.789, 3.14159265e-12, 0.0, -2.5, np.inf, 5e-324])
    np.testing.assert_array_equal(round_significant(values, 4), [123500.0, 3.142e-12, 0.0, -2.5, np.inf, 5e-324])
    assert np.isnan(round_significant(np.array([np.nan]), 4))[0]
    assert rounded({"a": [np.float32(0.1), 3, "x"], "b": True}, 3) == {"a": [0.1, 3, "x"], "b": True}


def test_metrics_refuse_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "m.json", {"rate": float("nan")})
    assert not (tmp_path / "m.json").exists()


def test_a_shard_is_computed_once_and_never_half(tmp_path: Path) -> None:
    work = WorkDirectory(tmp_path, "stage", "key")
    calls: list[int] = []

    def make() -> bytes:
        calls.append(1)
        return b"bytes"

    def fail() -> bytes:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        work.shard("a", fail)
    assert work.shard("a", make) == work.shard("a", make) == b"bytes"
    assert len(calls) == 1
    work.clear()
    assert not work.path.exists()


def test_work_keys_follow_parameters_and_contents_but_not_names(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(text)
    key = work_key({"x": 1}, [tmp_path / "a"])
    assert key == work_key({"x": 1}, [tmp_path / "b"])
    assert key != work_key({"x": 1}, [tmp_path / "c"])
    assert key != work_key({"x": 2}, [tmp_path / "a"])
    assert stable_hash("a", "bc") != stable_hash("ab", "c")


def test_empty_cell_in_a_required_column(tmp_path: Path) -> None:
    columns = {"item_id": ["a", "b"], "benchmark": ["x", None], "n_tokens": [1, 1], "n_masked": [1, 1], "n_truncated": [0, 0]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="benchmark: holds an empty cell"):
        ROWS.read(tmp_path / "rows.parquet")


def test_an_archive_has_no_header_that_differs_between_pythons(tmp_path):
    write_csr(tmp_path / "m.npz", sp.csr_matrix(np.eye(3)))
    with zipfile.ZipFile(tmp_path / "m.npz") as archive:
        # 45 is what numpy's own archives have: 64-bit sizes, whose place in the header moved in Python 3.11.4.
        assert {member.extract_version for member in archive.infolist()} == {20}
    assert (read_csr(tmp_path / "m.npz") != sp.csr_matrix(np.eye(3))).nnz == 0
