"""Subjects against each other, on the same families."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from gapscope.artifacts import COMPARISONS
from gapscope.variants.robustness import FloatArray, Outcomes
from gapscope.variants.robustness_stats import holm, mcnemar, sign_flip


def compare(found: Mapping[str, Outcomes]) -> dict[str, list[Any]]:
    """Columns of :data:`gapscope.artifacts.COMPARISONS`: every pair of subjects, on originals and on variants.

    Only what both were scored on is compared. Each of the two kinds of question is corrected over its own pairs.
    """
    rows: list[dict[str, Any]] = []
    for asked in ("originals", "variants"):
        part = [_pair(asked, name, other, found) for name, other in combinations(sorted(found), 2)]
        adjusted = iter(holm([row["p"] for row in part if row["p"] is not None]))
        rows += [row | {"p_holm": None if row["p"] is None else next(adjusted)} for row in part]
    return {column.name: [row[column.name] for row in rows] for column in COMPARISONS.columns}


def _pair(asked: str, name: str, other: str, found: Mapping[str, Outcomes]) -> dict[str, Any]:
    row: dict[str, Any] = {"asked": asked, "subject": name, "other": other, "difference": None, "p": None}
    mine, theirs, families = _aligned(found[name], found[other], asked)
    row["n_families"] = len(np.unique(families))
    if not row["n_families"]:
        return row
    row["difference"] = float(mine.mean() - theirs.mean())
    if asked == "originals":
        row["p"] = mcnemar(mine, theirs)
    else:
        _unique, index = np.unique(families, return_inverse=True)
        row["p"] = sign_flip(np.bincount(index, weights=mine - theirs).astype(np.float64))
    return row


def _aligned(one: Outcomes, other: Outcomes, asked: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scores of both on what both have, and the family of each."""
    tables = []
    for found in (one, other):
        if asked == "originals":
            tables.append(dict(zip(found.families, zip(found.original, found.families, strict=True), strict=True)))
        else:
            owners = [found.families[k] for k in found.family_of]
            tables.append(dict(zip(found.variant_ids, zip(found.variant, owners, strict=True), strict=True)))
    common = sorted(tables[0].keys() & tables[1].keys())
    mine, theirs = (np.array([table[key][0] for key in common], dtype=np.float64) for table in tables)
    return mine, theirs, np.array([tables[0][key][1] for key in common])
