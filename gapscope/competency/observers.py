"""Two observers of one suite: how much their concepts are the same, and whether they say the same of a subject.

Every figure stands beside its nulls (:mod:`gapscope.competency.matching`): ``permuted`` matches the first observer's concepts with
the second's on permuted items, ``random`` matches them with the second observer's random features. Features that are active on
the same items agree about a subject for that alone, so that agreement beyond ``random`` is what concepts add.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import scipy.sparse as sp

from gapscope.artifacts import PERFORMANCE, SUITE
from gapscope.competency.activations import FloatArray, Rows, read_matrix, read_rows
from gapscope.competency.cluster import read_decoder
from gapscope.competency.inference import TYPICAL, calibrate
from gapscope.competency.matching import Matches, match_by_direction, match_by_saliency, permute_items, rank_agreement
from gapscope.competency.performance import read_scores, read_suite
from gapscope.errors import InputError
from gapscope.files import read_json
from gapscope.params import PerformanceParams

ALIKE = 0.7
"""Likeness from which on a pair is called the same concept."""

TESTED = ("gap", "strength", "typical")


@dataclass(frozen=True)
class Eye:
    """An observer of a run: its key, the directory of its activations, what these say of it, and its saliency (I x C)."""

    key: str
    directory: Path
    meta: dict[str, Any]
    rows: Rows
    saliency: sp.csr_matrix

    @staticmethod
    def read(data: Path, key: str) -> Eye:
        """Read an observer's activations below the directory of artifacts."""
        directory = data / "activations" / key
        rows = read_rows(directory)
        return Eye(key, directory, read_json(directory / "meta.json"), rows, read_matrix(directory, "saliency", rows))

    def decodes_like(self, other: Eye) -> bool:
        """Whether both SAEs decode into the same place of the same model."""
        places = [(eye.meta.get("observer", {}).get("name"), eye.meta.get("sae", {}).get("hook_name")) for eye in (self, other)]
        return places[0] == places[1] and None not in places[0]


def compare_observers(data: Path, first: str, second: str, params: PerformanceParams, seed: int) -> dict[str, Any]:
    """Matches of the first observer's concepts among the second's, and agreement about every subject that both have seen.

    Args:
        data: directory of a run's artifacts.
        first, second: keys of the observers.
        params: those of performance, for the random features' effects.
        seed: of the permuted items.

    Raises:
        InputError: an artifact is absent or damaged, or the two have not read the same items.
    """
    eyes = Eye.read(data, first), Eye.read(data, second)
    if eyes[0].rows.item_ids != eyes[1].rows.item_ids:
        raise InputError(f"{first} and {second} have not read the same items", file=eyes[1].directory, fix="run both on one suite")
    matches = {"saliency": match_by_saliency(eyes[0].saliency, eyes[1].saliency)}
    if eyes[0].decodes_like(eyes[1]):
        directions = [read_decoder(data / "sae" / eye.key, list(range(eye.saliency.shape[1]))) for eye in eyes]
        matches["decoder"] = match_by_direction(*directions)
    nulls = {"permuted": match_by_saliency(eyes[0].saliency, permute_items(eyes[1].saliency, eyes[1].rows.codes, seed))}
    control = None
    if "random" in eyes[1].meta.get("controls", []):
        control = read_matrix(eyes[1].directory, "control_random", eyes[1].rows)
        nulls["random"] = match_by_saliency(eyes[0].saliency, control)
    basis = "decoder" if "decoder" in matches else "saliency"
    return {
        "first": first,
        "second": second,
        "basis": basis,
        "n_items": len(eyes[0].rows.item_ids),
        "matches": {name: _likeness(found) for name, found in (matches | nulls).items()},
        "subjects": _subjects(data, eyes, matches[basis], nulls.get("random"), control, params),
    }


def _likeness(found: Matches) -> dict[str, Any]:
    known = found.likeness[found.partner >= 0]
    counts = {"n_compared": found.n_compared, "n_mutual": int(found.mutual.sum()), "n_alike": int((known >= ALIKE).sum())}
    return {**counts, "median_likeness": float(np.median(known))} if len(known) else counts


def _subjects(
    data: Path, eyes: tuple[Eye, Eye], matches: Matches, random: Matches | None, control: sp.csr_matrix | None, params: PerformanceParams
) -> dict[str, Any]:
    """Rank correlation of adjusted effects over matched concepts, over the mutual ones, and over random features in their place."""
    found: dict[str, Any] = {}
    tables = [{file.stem: file for file in (data / "performance" / eye.key).glob("*.parquet")} for eye in eyes]
    for slug in sorted(set(tables[0]) & set(tables[1])):
        effects = [_effects(table[slug]) for table in tables]
        agreed = {"concepts": rank_agreement(effects[0], effects[1], matches)}
        agreed["mutual"] = rank_agreement(effects[0], effects[1], matches, matches.mutual)
        if random is not None and control is not None:
            effect = _random_effects(data, eyes[1], control, data / "scores" / slug / "scores.parquet", params)
            agreed["random"] = rank_agreement(effects[0], effect, random)
        found[slug] = {
            name: {"n": one.n} if one.rank_correlation is None else {"n": one.n, "rank_correlation": one.rank_correlation}
            for name, one in agreed.items()
        }
    return found


def _effects(file: Path) -> FloatArray:
    """Adjusted effect of each tested concept in the suite (C), NaN of the others."""
    table = PERFORMANCE.read(file, ["concept", "benchmark", "adjusted", "status"])
    suite = table.filter(pc.equal(table["benchmark"], SUITE)).sort_by("concept")
    tested = np.array([status in TESTED for status in suite["status"].to_pylist()])
    adjusted: FloatArray = suite["adjusted"].to_numpy(zero_copy_only=False)
    return np.where(tested, adjusted, np.nan)


def _random_effects(data: Path, eye: Eye, control: sp.csr_matrix, scores: Path, params: PerformanceParams) -> FloatArray:
    suite = read_suite(eye.directory, data / "items" / "items.jsonl", None, params.strata)
    subject = read_scores(scores, suite.rows)
    codes = (suite.rows.codes, suite.strata, suite.families)
    found = calibrate(control, subject.scores, subject.chance, *codes, min_n_eff=params.min_n_eff, alpha=params.alpha)
    return np.where(found.status[-1] <= TYPICAL, found.adjusted[-1], np.nan)


def as_lines(found: dict[str, Any]) -> list[str]:
    """The comparison as lines for a terminal."""
    told = {
        "saliency": "matched by saliency",
        "decoder": "matched by decoder direction",
        "permuted": "null: permuted items",
        "random": "null: random features",
    }
    lines = [f"{found['first']} and {found['second']}: {found['n_items']:,} items read by both; effects compared by {found['basis']}"]
    for name, row in found["matches"].items():
        middle = f"median likeness {row['median_likeness']:.2f}, " if "median_likeness" in row else ""
        counts = f"{row['n_alike']:,} of {row['n_compared']:,} at {ALIKE} or more, {row['n_mutual']:,} mutual"
        lines.append(f"{told[name]:<30}{middle}{counts}")
    for slug, groups in found["subjects"].items():
        parts = [
            f"{name} {group['rank_correlation']:+.2f} (n {group['n']:,})" if "rank_correlation" in group else f"{name} undefined"
            for name, group in groups.items()
        ]
        lines.append(f"subject {slug}: rank correlation of adjusted effects: {', '.join(parts)}")
    return lines if found["subjects"] else [*lines, "no subject has a performance table of both"]
