"""Whether the subjects come out in the order of a reference benchmark."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import read_text
from gapscope.params_robustness import Reference
from gapscope.variants.robustness_stats import rank_agreement


def agreement(accuracy: Mapping[str, float], raw: Path, reference: Reference | None) -> dict[str, Any]:
    """Spearman's rho and Kendall's tau-b of the subjects' accuracy on variants with a reference's; empty without one.

    ``n`` is the number of subjects in both; below three, or where all are equal, there is no correlation to give.
    """
    if reference is None:
        return {}
    theirs = read_reference(raw / reference.source / reference.file)
    common = sorted(accuracy.keys() & theirs.keys())
    return {"n": len(common)} | rank_agreement([accuracy[slug] for slug in common], [theirs[slug] for slug in common])


def read_reference(file: Path) -> dict[str, float]:
    """Score by subject of a CSV with the columns subject and score.

    Raises:
        InputError: a column is missing, a score is no finite number, or a subject occurs twice.
    """
    found: dict[str, float] = {}
    reader = csv.DictReader(io.StringIO(read_text(file)))
    for column in ("subject", "score"):
        if column not in (reader.fieldnames or []):
            raise InputError("the column is missing", file=file, line=1, field=column)
    for row in reader:
        try:
            score = float(row["score"])
        except (TypeError, ValueError):
            score = math.nan
        if not math.isfinite(score):
            raise InputError(f"{row['score']!r} is no number", file=file, line=reader.line_num, field="score")
        if row["subject"] in found:
            raise InputError(f"{row['subject']!r} occurs twice", file=file, line=reader.line_num, field="subject")
        found[row["subject"]] = score
    return found
