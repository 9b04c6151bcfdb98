"""The form of a Parquet artifact: typed columns with a meaning each, and a checked, byte-stable writer and reader."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gapscope.errors import InputError
from gapscope.files import require_file, round_significant, write_bytes

STRING, INT, FLOAT, BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
FLOATS, STRINGS = pa.list_(pa.float32()), pa.list_(pa.string())


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, what it means, and whether null (undefined) may occur."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


@dataclass(frozen=True)
class Table:
    """A Parquet artifact. ``version`` rises when a column is renamed, retyped or given another meaning."""

    name: str
    version: int
    sort_by: tuple[str, ...]
    columns: tuple[Column, ...]
    digits: int = 7

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the artifact's name and version in its metadata."""
        fields = [pa.field(column.name, column.type, nullable=column.nullable) for column in self.columns]
        return pa.schema(fields, metadata={b"gapscope": f"{self.name}/{self.version}".encode()})

    def build(self, data: Mapping[str, Any]) -> pa.Table:
        """An Arrow table from columns: floats rounded to ``digits`` significant ones, NaN as null, rows sorted.

        Columns that are nullable and not given are all null.

        Raises:
            ValueError: a column is unknown, a required one is missing, or a value that may not be null is.
        """
        unknown = set(data) - {column.name for column in self.columns}
        if unknown:
            raise ValueError(f"{self.name} has no column {sorted(unknown)}")
        length = len(next(iter(data.values())))
        arrays = [self._array(column, data.get(column.name), length) for column in self.columns]
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        return self.sorted(table)

    def sorted(self, table: pa.Table) -> pa.Table:
        """The table's rows in the artifact's order."""
        return table.sort_by([(name, "ascending") for name in self.sort_by]) if self.sort_by else table

    def _array(self, column: Column, values: Any, length: int) -> pa.Array:
        if values is None:
            if not column.nullable:
                raise ValueError(f"{self.name}.{column.name} is required")
            return pa.nulls(length, column.type)
        if column.type == FLOAT:
            # None becomes NaN here and NaN becomes null there: undefined has one form in the file.
            numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
            array = pa.array(round_significant(numbers, self.digits), type=FLOAT, from_pandas=True)
        elif isinstance(values, np.ndarray):
            array = pa.array(values.tolist(), type=column.type)
        else:
            array = pa.array(values, type=column.type)
        if array.null_count and not column.nullable:
            raise ValueError(f"{self.name}.{column.name} holds {array.null_count} nulls")
        return array

    def write(self, path: Path, data: Mapping[str, Any] | pa.Table) -> None:
        """Write the table, atomically and byte-stable."""
        table = data if isinstance(data, pa.Table) else self.build(data)
        buffer = io.BytesIO()
        pq.write_table(table.cast(self.schema), buffer, compression="zstd", write_statistics=False)
        write_bytes(path, buffer.getvalue())

    def read(self, path: Path, columns: list[str] | None = None) -> pa.Table:
        """Read the table, all of it or the named columns.

        Raises:
            InputError: the file is absent or damaged, or is not this artifact in this version.
        """
        require_file(path)
        try:
            schema = pq.read_schema(path)
            table = pq.read_table(path, columns=columns)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"not a readable Parquet file: {reason}", file=path, fix="run the stage that writes it again") from error
        found = (schema.metadata or {}).get(b"gapscope", b"").decode()
        if found and found != f"{self.name}/{self.version}":
            raise InputError(f"is {found}, needed is {self.name}/{self.version}", file=path, fix="run the stage that writes it again")
        self._check(table, path, columns)
        return table

    def _check(self, found: pa.Table, path: Path, wanted: list[str] | None) -> None:
        for column in self.columns:
            if wanted is not None and column.name not in wanted:
                continue
            if column.name not in found.column_names:
                raise InputError("the column is missing", file=path, field=column.name)
            actual = found.schema.field(column.name).type
            if actual != column.type:
                raise InputError(f"is {actual}, needed is {column.type}", file=path, field=column.name)
            if not column.nullable and found[column.name].null_count:
                raise InputError("holds an empty cell", file=path, field=column.name, fix="run the stage that writes it again")
