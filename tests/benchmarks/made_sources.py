"""Small sources on disk for the tests of benchmarks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from gapscope.benchmarks import BenchmarkItems, read_benchmark
from gapscope.params_data import ItemsBenchmark, LetteredBenchmark, RowsBenchmark, YesNoBenchmark

FORMATS: dict[str, type[Any]] = {"lettered": LetteredBenchmark, "yes_no": YesNoBenchmark, "rows": RowsBenchmark, "items": ItemsBenchmark}


def jsonl(path: Path, rows: list[Any]) -> Path:
    """Write rows (objects, or lines as they are) as JSON lines, gzipped if the name says so."""
    data = "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def benchmark(form: str, files: str | list[str] = "*", **rest: Any) -> Any:
    """A benchmark of a format; keyword ``options`` and the like as in params.yaml."""
    names = [files] if isinstance(files, str) else files
    return FORMATS[form].model_validate({"source": "s", "files": names, "kind": "knowledge", "format": form, **rest})


def read(directory: Path, form: str, files: str | list[str] = "*", **options: Any) -> BenchmarkItems:
    """Read a benchmark called ``b`` from a directory."""
    return read_benchmark("b", benchmark(form, files, **({"options": options} if options else {})), directory)
