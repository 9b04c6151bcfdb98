"""The second half switched off: a stage then leaves a directory that says so, for later stages and the report to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
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
    told = read_json(file) if file.exists() else None
    return str(told["off"]) if isinstance(told, dict) and told.get("off") is not None else None


def require_on(*written: tuple[Path, str]) -> None:
    """Refuse directories that were written with the second half off, each given with the stage that writes it.

    Raises:
        InputError: names the directory and the stage.
    """
    for directory, stage in written:
        if off_reason(directory) is not None:
            fix = f"run {stage} again, or set variants.enabled to false"
            raise InputError("was written with the second half switched off, and the parameters have it on", file=directory, fix=fix)
