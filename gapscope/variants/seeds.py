"""Seed variants: hand-written families that the verifier and the generator learn from, and the check of their form."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import read_jsonl
from gapscope.items import Item, parse_item
from gapscope.variants.shortcuts import shortcut_accuracy
from gapscope.variants.types import TYPES, is_nota, rule_faults

ORIGINAL = "original"
DIMENSIONS = ("tc", "lc", "au")
TYPE_MARGIN = 0.08
OVERALL_MARGIN = 0.05


@dataclass(frozen=True)
class Seed:
    """One seed: an item with the type that it claims to be and the verdict on it.

    ``verdict`` maps tc (type compliance, knowledge kept), lc (label correct) and au (exactly one right answer) to truth.
    """

    item: Item
    type: str
    verdict: dict[str, bool]
    file: Path
    line: int

    @property
    def valid(self) -> bool:
        """All three dimensions hold."""
        return all(self.verdict.values())


@dataclass
class SeedReport:
    """Counts of a set of seeds, and one line for each fault of form."""

    counts: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def read_seeds(paths: Iterable[Path]) -> list[Seed]:
    """Read seed files, in the order given.

    Damaged items cannot be read at all, but an invalid seed may well break a rule of items (a duplicate choice is an AU
    failure), so only its schema is checked.

    Raises:
        InputError: a line is damaged, a type or verdict is missing or unknown, or an id occurs twice.
    """
    seeds: list[Seed] = []
    seen: dict[str, str] = {}
    for path in paths:
        for line, row in read_jsonl(path):
            seed = _parse(row, path, line)
            if seed.item.id in seen:
                raise InputError(f"duplicate id {seed.item.id!r}, first in {seen[seed.item.id]}", file=path, line=line, field="id")
            seen[seed.item.id] = f"{path.name}:{line}"
            seeds.append(seed)
    if not seeds:
        raise InputError("no seed found", fix="give files of JSON lines in the item schema")
    return seeds


def _parse(row: dict[str, Any], path: Path, line: int) -> Seed:
    meta = row.get("meta")
    if not isinstance(meta, dict):
        raise InputError("must be an object", file=path, line=line, field="meta")
    kind = meta.get("type")
    if not isinstance(kind, str) or (kind != ORIGINAL and kind not in TYPES):
        raise InputError(f"is {kind!r}", file=path, line=line, field="meta.type", fix=f"one of: original, {', '.join(TYPES)}")
    verdict = meta.get("verdict")
    if not isinstance(verdict, dict) or any(not isinstance(verdict.get(name), bool) for name in (*DIMENSIONS, "valid")):
        raise InputError("needs tc, lc, au and valid, each true or false", file=path, line=line, field="meta.verdict")
    if verdict["valid"] != all(verdict[name] for name in DIMENSIONS):
        raise InputError("valid must be true exactly when tc, lc and au are", file=path, line=line, field="meta.verdict")
    choices = row.get("choices")
    lenient = not verdict["valid"] and isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    item = _parse_invalid(row, path, line) if lenient else parse_item(row, path, line)
    return Seed(item, kind, {name: verdict[name] for name in DIMENSIONS}, path, line)


def _parse_invalid(row: dict[str, Any], path: Path, line: int) -> Item:
    """Parse an item whose choices may repeat: they are told apart for the check of the schema, then put back."""
    distinct = {**row, "choices": [f"{index} {choice}" for index, choice in enumerate(row["choices"])]}
    item = parse_item(distinct, path, line)
    choices = tuple(str(choice) for choice in row["choices"])
    return Item(item.id, item.benchmark, item.family, item.text, choices, item.answer, item.target, item.kind, item.meta)


def check_seeds(seeds: Sequence[Seed]) -> SeedReport:
    """Check families, rules, gold positions and shortcuts of a set of seeds; every fault is one line."""
    report = SeedReport()
    families: dict[str, list[Seed]] = defaultdict(list)
    for seed in seeds:
        families[seed.item.family].append(seed)
    valid: dict[str, list[Item]] = defaultdict(list)
    failures: Counter[tuple[str, str]] = Counter()
    for family, members in families.items():
        report.faults += _family_faults(family, members)
    for seed in seeds:
        if seed.valid:
            valid[seed.type].append(seed.item)
        failures.update((seed.type, name) for name in DIMENSIONS if not seed.verdict[name])
    report.faults += [f"{slug}: no invalid seed fails {name}" for slug in TYPES for name in DIMENSIONS if not failures[slug, name]]
    for slug, items in valid.items():
        report.faults += _position_faults(slug, items) + _shortcut_faults(slug, items, TYPE_MARGIN)
    variants = [item for slug, items in valid.items() if slug != ORIGINAL for item in items]
    report.faults += _shortcut_faults("all variants", variants, OVERALL_MARGIN)
    report.counts = {
        "families": len(families),
        "valid": {slug: len(valid[slug]) for slug in TYPES},
        "invalid": {slug: {name: failures[slug, name] for name in DIMENSIONS} for slug in TYPES},
        "valid_variants": len(variants),
        "invalid_variants": sum(not seed.valid for seed in seeds),
        "shortcuts": shortcut_accuracy(variants),
        "nota_gold": sum(item.answer is not None and is_nota(item.choices[item.answer]) for item in valid["critical_testing"]),
    }
    return report


def _family_faults(family: str, members: Sequence[Seed]) -> list[str]:
    originals = [seed for seed in members if seed.type == ORIGINAL]
    if len(originals) != 1 or not originals[0].valid:
        return [f"{family}: needs exactly one valid original, has {len(originals)}"]
    present = {seed.type for seed in members if seed.valid}
    faults = [f"{family}: no valid {slug}" for slug in TYPES if slug not in present]
    for seed in members:
        if seed.valid and seed.type != ORIGINAL:
            broken = rule_faults(seed.item, originals[0].item, seed.type)
            faults += [f"{seed.file.name}:{seed.line}: {seed.item.id}: {fault}" for fault in broken]
    return faults


def _position_faults(slug: str, items: Sequence[Item]) -> list[str]:
    """Gold positions in equal counts, within one; a gold 'none of the above' has its own place and is counted apart."""
    counted = [item for item in items if not (item.answer is not None and is_nota(item.choices[item.answer]))]
    positions = Counter(item.answer for item in counted)
    width = min(len(item.choices) - any(map(is_nota, item.choices)) for item in items)
    counts = [positions[index] for index in range(width)]
    return [f"{slug}: gold positions {counts} are not in equal counts"] if max(counts) - min(counts) > 1 else []


def _shortcut_faults(name: str, items: Sequence[Item], margin: float) -> list[str]:
    found = shortcut_accuracy(items)
    return [
        f"{name}: the {shortcut} choice is right in {share:.1%}, chance is {found['chance']:.1%}"
        for shortcut, share in found.items()
        if abs(share - found["chance"]) > margin
    ]
