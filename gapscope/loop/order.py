"""What the sources stage hands to generate: the ids of the items to rewrite, in order, or that the order is the seed's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import read_json

FILE = "report.json"
AGAIN = "run the sources stage again"


def read_order(directory: Path) -> list[str] | None:
    """Ids of the items to rewrite, the one that carries most of the gaps first; None where the gaps do not choose them.

    Raises:
        InputError: the file is absent or damaged, holds no item, or one twice.
    """
    file = directory / FILE
    told = read_json(file)
    source = told.get("source") if isinstance(told, dict) else None
    if source == "items":
        return None
    if source != "gaps":
        raise InputError("must be items or gaps", file=file, field="source", fix=AGAIN)
    rows: Any = told.get("items")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows):
        raise InputError("must be a list of objects with an id", file=file, field="items", fix=AGAIN)
    ids = [row["id"] for row in rows]
    if not ids or len(set(ids)) < len(ids):
        raise InputError("must name at least one item, and none twice", file=file, field="items", fix=AGAIN)
    return ids
