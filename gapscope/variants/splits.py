"""Seeds in train, development and held-out families, with gold positions that say nothing.

The unit of a split is the family: an original and all its variants, valid or not, are on one side (field note: rows of
one source on both sides of a split leak).
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.variants.seeds import ORIGINAL, Seed

TRAIN, DEVELOPMENT, HELDOUT = "train", "development", "heldout"
SPLITS = (TRAIN, DEVELOPMENT, HELDOUT)
META = re.compile(
    r"\W*(?:all|none|both|neither|any|some|two|three) of (?:the|these)(?: (?:first|other|two|three|choices|answers|above))*\W*", re.I
)
"""A choice that speaks of the other choices."""


def split_families(domains: Mapping[str, str], development: float, heldout: float, seed: int) -> dict[str, str]:
    """Which split each family belongs to.

    Args:
        domains: family -> its domain; every domain is divided in about the same shares.
        development: share of the families whose results every choice is made on.
        heldout: share of the families that are scored once, when nothing is chosen any more.
        seed: of the order in which families are taken; a family of another domain changes nothing in this one.
    """
    strata: dict[str, list[str]] = defaultdict(list)
    for family, domain in domains.items():
        strata[domain].append(family)
    found: dict[str, str] = {}
    for families in strata.values():
        order = sorted(families, key=lambda family: (stable_hash(seed, "split", family), family))
        n_heldout, n_development = round(len(order) * heldout), round(len(order) * development)
        for rank, family in enumerate(order):
            found[family] = HELDOUT if rank < n_heldout else DEVELOPMENT if rank < n_heldout + n_development else TRAIN
    return dict(sorted(found.items()))


def split_seeds(seeds: Sequence[Seed], development: float, heldout: float, seed: int) -> dict[str, list[Seed]]:
    """Seeds by split, sorted by id, with gold positions assigned anew by :func:`assign_positions`."""
    domains = {entry.item.family: str(entry.item.meta.get("domain", "")) for entry in seeds if entry.type == ORIGINAL}
    split_of = split_families(domains, development, heldout, seed)
    parts = {name: [entry for entry in seeds if split_of[entry.item.family] == name] for name in SPLITS}
    return {name: assign_positions(part, seed) for name, part in parts.items()}


def assign_positions(seeds: Sequence[Seed], seed: int) -> list[Seed]:
    """The seeds sorted by id, their choices in a seeded random order with the marked one in each place equally often.

    Counts are equal, within one, for each type, number of places, and for valid and invalid seeds apart, so that the
    place betrays neither the answer nor the verdict. A choice that speaks of the others ("none of the above") keeps its
    place, wherever that is: being out of place may be the very fault of an invalid seed. Where it is the marked one, the
    others are only shuffled.
    """
    cells: dict[tuple[str, bool, int], list[Seed]] = defaultdict(list)
    for entry in seeds:
        if entry.item.answer is not None and not META.fullmatch(entry.item.choices[entry.item.answer]):
            cells[entry.type, entry.valid, len(_free(entry.item))].append(entry)
    place: dict[str, int] = {}
    for (_type, _valid, width), members in sorted(cells.items()):
        order = sorted(members, key=lambda entry: (stable_hash(seed, "position", entry.item.id), entry.item.id))
        place |= {entry.item.id: rank % width for rank, entry in enumerate(order)}
    ordered = sorted(seeds, key=lambda entry: entry.item.id)
    return [replace(entry, item=_arranged(entry.item, place.get(entry.item.id), seed)) for entry in ordered]


def _free(item: Item) -> list[int]:
    return [index for index, choice in enumerate(item.choices) if not META.fullmatch(choice)]


def _arranged(item: Item, gold_place: int | None, seed: int) -> Item:
    """The item with its free choices shuffled, the marked one at the given rank among them."""
    free = _free(item)
    order = [index for index in free if gold_place is None or index != item.answer]
    random.Random(stable_hash(seed, "order", item.id)).shuffle(order)
    if gold_place is not None and item.answer is not None:
        order.insert(gold_place, item.answer)
    target = list(range(len(item.choices)))
    for place, source in zip(free, order, strict=True):
        target[place] = source
    answer = None if item.answer is None else target.index(item.answer)
    return replace(item, choices=tuple(item.choices[index] for index in target), answer=answer)
