"""This run beside an earlier one: every subject that both have, compared on every concept."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from gapscope.artifacts import CHANGES
from gapscope.competency.changes import check_same_items
from gapscope.competency.compare import compare, comparison_columns
from gapscope.competency.performance import Suite, read_scores, read_suite
from gapscope.errors import InputError
from gapscope.params import PerformanceParams
from gapscope.report.explorer.blocks import Block
from gapscope.report.explorer.changes import change_blocks
from gapscope.report.explorer.concepts import concept_numbers
from gapscope.report.explorer.sources import ExplorerPaths
from gapscope.revision import Revision

Pairs = list[tuple[dict[str, Any], Block]]


def pairs_against(paths: ExplorerPaths, observer: str, subjects: list[str], name: str, params: PerformanceParams) -> Pairs:
    """One pair a subject: first as it was at the git revision ``name``, second as it is now.

    Raises:
        InputError: the revision read the items through another SAE, or other items: numbers of another dictionary do not
            compare; or it has none of the subjects.
    """
    artifacts = paths.artifacts
    data = artifacts.items.parent
    before, now = Revision.open(data, name), Revision.open(data, None)
    sae = data / "sae" / observer / "sae_weights.safetensors"
    was, present = before.md5(sae), now.md5(sae)
    if was is None or was != present:
        message = f"{name} read the items through another SAE ({was or 'none recorded'}, here {present or 'none recorded'})"
        raise InputError(message, file=sae, field="--against", fix="name a revision with the same SAE")
    suite = read_suite(artifacts.activations / observer, artifacts.items / "items.jsonl", artifacts.coverage / observer, params.strata)
    concepts = concept_numbers(artifacts.coverage / observer / "coverage.parquet")
    found: Pairs = []
    with tempfile.TemporaryDirectory() as place:
        items = artifacts.items / "items.jsonl"
        check_same_items(before.fetch(items, Path(place) / "items.jsonl"), items, name)
        for subject in subjects:
            file = artifacts.scores / subject / "scores.parquet"
            if before.md5(file) is not None:
                earlier = before.fetch(file, Path(place) / f"{subject} at {name}" / "scores.parquet")
                found += _pair(suite, subject, (earlier, file), concepts, params, name)
    if not found:
        raise InputError(f"{name} has the scores of none of {', '.join(subjects)}", field="--against", fix="name another revision")
    return found


def _pair(suite: Suite, subject: str, files: tuple[Path, Path], concepts: Any, params: PerformanceParams, name: str) -> Pairs:
    first, second = (read_scores(file, suite.rows) for file in files)
    columns = comparison_columns(suite, (subject, subject), compare(suite, first, second, params))
    made = change_blocks(CHANGES.build(columns), concepts, files[1])
    return [(pair | {"first_run": name, "second_run": "now"}, block) for pair, block in made]
