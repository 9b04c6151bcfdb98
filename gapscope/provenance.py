"""What made an artifact: versions, commit, device, seconds and peak memory, kept beside the DAG and never inside it."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gapscope.files import write_json

LIBRARIES = ("gapscope", "torch", "transformers", "sae-lens", "numpy", "scipy", "scikit-learn", "pyarrow", "dvc")


def library_versions() -> dict[str, str]:
    """Installed version of each library that can change a result, those that are installed."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, Any]:
    """The commit of the working directory and whether tracked files differ from it; empty outside a repository."""
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if run.returncode:
        return {}
    status = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=False)
    return {"commit": run.stdout.strip(), "dirty": bool(status.stdout.strip())}


@contextmanager
def recorded(path: Path | None, stage: str, details: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Time the block and write its provenance to ``path``, if one is given.

    Yields a dict that the block may add to (device, dtype, ...).
    """
    entry: dict[str, Any] = dict(details or {})
    started = time.perf_counter()
    yield entry
    if path is None:
        return
    entry |= {
        "stage": stage,
        "seconds": round(time.perf_counter() - started, 1),
        # ru_maxrss is in KiB on Linux and in bytes on macOS.
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20),
        "python": platform.python_version(),
        "versions": library_versions(),
        "git": git_state(),
    }
    write_json(path, entry)
