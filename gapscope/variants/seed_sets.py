"""The seeds stage: hand-written and imported seeds, split by family and written, and read back by the stages that learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import atomic_directory, sha256_file, write_json
from gapscope.items import Item, write_items
from gapscope.params_variants import SeedsParams
from gapscope.variants.seed_import import read_hellaswag_pro
from gapscope.variants.seeds import DIMENSIONS, ORIGINAL, Seed, read_seeds
from gapscope.variants.splits import DEVELOPMENT, HELDOUT, TRAIN, split_seeds
from gapscope.variants.types import TYPES, is_nota


def write_seed_sets(directory: Path, output: Path, params: SeedsParams, seed: int) -> dict[str, Any]:
    """Write ``<split>.jsonl`` of every split and ``report.json``; returns the headline counts.

    Raises:
        InputError: there is no seed, a file is at fault, an imported one is not the one that was chosen, a family has
            no original, or a split would be empty or without one kind of verdict (:func:`require_both`).
    """
    seeds, imported = [*read_seeds(sorted(directory.glob("*.jsonl")))], dict[str, int]()
    if params.imports:
        found, imported = read_hellaswag_pro([_checked(Path(entry.path), entry.sha256) for entry in params.imports])
        seeds += found
    _require_originals(seeds)
    parts = split_seeds(seeds, params.development, params.heldout, seed)
    for name, part in parts.items():
        if not part:
            fix = "add families, or raise seeds.development or seeds.heldout"
            raise InputError(f"no family is left for {name}", file=directory, fix=fix)
        require_both(name, [entry.verdict for entry in part if entry.type != ORIGINAL], directory, CHANGES[name])
    with atomic_directory(output) as place:
        for name, part in parts.items():
            write_items(place / f"{name}.jsonl", [_without_fault(entry.item) for entry in part])
        write_json(place / "report.json", {"splits": {name: _table(part) for name, part in parts.items()}, "imported": imported})
    metrics: dict[str, Any] = {name: _headline(part) for name, part in parts.items()}
    return metrics | ({"imported": imported} if imported else {})


def read_split(directory: Path, name: str) -> tuple[list[Seed], dict[str, Item]]:
    """The variants of a split, sorted by id, and the original of each family.

    Raises:
        InputError: the file is at fault, or a family has no original.
    """
    seeds = read_seeds([directory / f"{name}.jsonl"])
    _require_originals(seeds)
    originals = {entry.item.family: entry.item for entry in seeds if entry.type == ORIGINAL}
    return [entry for entry in seeds if entry.type != ORIGINAL], originals


def require_both(name: str, verdicts: Sequence[Mapping[str, bool]], file: Path, change: str) -> None:
    """Refuse variants of which a dimension, or all of them together, holds always or never.

    Nothing could be learnt of it from them, nor measured on them.

    Raises:
        InputError: names the dimension, the counts and, in ``change``, the parameter to change.
    """
    for column in (*DIMENSIONS, "valid"):
        holds = sum(all(verdict.values()) if column == "valid" else verdict[column] for verdict in verdicts)
        if holds in (0, len(verdicts)):
            message = f"of the {len(verdicts)} variants of {name}, {column} holds of {holds} and fails of {len(verdicts) - holds}"
            fix = f"both are needed: {change}, take another seed, or add variants of which it {'fails' if holds else 'holds'}"
            raise InputError(message, file=file, fix=fix)


CHANGES = {
    TRAIN: "lower seeds.development or seeds.heldout",
    DEVELOPMENT: "raise seeds.development",
    HELDOUT: "raise seeds.heldout",
}
"""What to do where a split is short of something."""


def _checked(path: Path, sha256: str) -> Path:
    if not path.is_file():
        raise InputError("no such file", file=path, field="seeds.import", fix="correct the path or remove the entry")
    found = sha256_file(path)
    if found != sha256:
        fix = "bring that file, or write the new sha256"
        raise InputError(f"sha256 is {found}, {sha256} was chosen", file=path, field="seeds.import", fix=fix)
    return path


def _require_originals(seeds: Sequence[Seed]) -> None:
    count = Counter(entry.item.family for entry in seeds if entry.type == ORIGINAL)
    for entry in seeds:
        if count[entry.item.family] != 1:
            message = f"family {entry.item.family!r} has {count[entry.item.family]} originals, one is needed"
            raise InputError(message, file=entry.file, line=entry.line, field="family")


def _without_fault(item: Item) -> Item:
    """The item without the sentence that says what is wrong: it may speak of choices by their former places."""
    return replace(item, meta={key: value for key, value in item.meta.items() if key != "fault"})


def _headline(part: Sequence[Seed]) -> dict[str, int]:
    variants = [entry for entry in part if entry.type != ORIGINAL]
    valid = sum(entry.valid for entry in variants)
    return {"n_families": len({entry.item.family for entry in part}), "n_valid": valid, "n_invalid": len(variants) - valid}


def _table(part: Sequence[Seed]) -> dict[str, Any]:
    domains = Counter(str(entry.item.meta.get("domain", "")) for entry in part if entry.type == ORIGINAL)
    return {**_headline(part), "domains": dict(domains), "types": {slug: _type_row([e for e in part if e.type == slug]) for slug in TYPES}}


def _type_row(part: Sequence[Seed]) -> dict[str, Any]:
    valid = [entry.item for entry in part if entry.valid]
    places = Counter("nota" if is_nota(item.choices[item.answer or 0]) else str(item.answer) for item in valid)
    failures = {name: sum(not entry.verdict[name] for entry in part) for name in DIMENSIONS}
    return {"n_valid": len(valid), "n_invalid": len(part) - len(valid), "n_failing": failures, "gold_position": dict(places)}
