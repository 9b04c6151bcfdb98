"""The second half switched off: a stage then leaves a directory that says so, for later stages and the report to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapscope.files import atomic_directory, read_json, write_json

FILE = "report.json"
REASON = "variants.enabled is false in params.yaml"


def write_off(*directories: Path, plots: Mapping[Path, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Make each directory one that holds the reason and nothing else; returns the metrics of a stage that is off.

    ``plots`` are the stage's plot files with the one row that each gets: DVC wants them, and draws none without a row.
    """
    for directory in directories:
        with atomic_directory(directory) as place:
            write_json(place / FILE, {"off": REASON})
    for file, row in (plots or {}).items():
        write_json(file, [row])
    return {"off": 1}


def off_reason(directory: Path) -> str | None:
    """Why a directory is empty of results, or None where it holds some."""
    file = directory / FILE
    reason = read_json(file).get("off") if file.exists() else None
    return None if reason is None else str(reason)
