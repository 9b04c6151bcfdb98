"""Rows of a table as dicts: JSON lines, CSV, TSV and Parquet, each also gzipped, types never guessed from the first rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import read_bytes, read_jsonl, read_text

Row = dict[str, Any]

csv.field_size_limit(2**31 - 1)


def table_suffix(path: Path) -> str:
    """The suffix that says how a file is read, without the ``.gz`` of a packed one."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield (line number, row) of a table; a Parquet file's rows are numbered from 1.

    Raises:
        InputError: an unknown suffix, a damaged file, or a file without any row.
    """
    match table_suffix(path):
        case ".jsonl" | ".ndjson":
            rows = read_jsonl(path)
        case ".csv":
            rows = _read_csv(path, ",")
        case ".tsv":
            rows = _read_csv(path, "\t")
        case ".parquet":
            rows = _read_parquet(path)
        case suffix:
            raise InputError(f"cannot read {suffix or 'a file without a suffix'}", file=path, fix="use .jsonl, .csv, .tsv or .parquet")
    empty = True
    for number, row in rows:
        empty = False
        yield number, row
    if empty:
        raise InputError("holds no row", file=path)


def _read_csv(path: Path, delimiter: str) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = next(reader)
        if len(set(header)) < len(header):
            raise InputError("two columns have the same name", file=path, line=1)
        line = reader.line_num + 1
        for values in reader:
            if values and len(values) != len(header):
                fix = "the file may be cut short"
                raise InputError(f"{len(values)} fields, the header has {len(header)}", file=path, line=line, fix=fix)
            if values:
                yield line, dict(zip(header, values, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error}", file=path, line=line, fix="the file may be cut short") from error


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        for batch in pq.ParquetFile(pa.BufferReader(read_bytes(path))).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except pa.ArrowException as error:
        raise InputError(f"not a readable Parquet file: {str(error).splitlines()[0]}", file=path) from error
