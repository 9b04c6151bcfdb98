"""Families written out by hand: originals and variants with known answers."""

from __future__ import annotations

from gapscope.items import Item
from gapscope.scores import ItemScore

WRONG = ("a wall", "a saw", "a cloud")


def original(number: int) -> Item:
    animal = ("dog", "cat", "owl", "horse", "sheep", "goat")[number % 6]
    return Item(f"o{number}", "made", f"o{number}", f"What did animal {number} say to the {animal}?", (f"a {animal}", *WRONG), 0)


def variant(number: int, slug: str, *, name: str = "", **changes: object) -> Item:
    fields = {"text": f"Now {slug} {number}: what was said?", "choices": ("a stone", "a wall", "a saw"), "answer": 0} | changes
    meta = {"type": slug, "bloom": "apply", "original": f"o{number}"}
    return Item(name or f"o{number}-{slug}", "made", f"o{number}", meta=meta, **fields)  # type: ignore[arg-type]


def nota(number: int, *, right: bool) -> Item:
    return variant(number, "critical_testing", choices=("a wall", "a saw", "None of the above"), answer=2 if right else 0)


def scored(right: dict[str, float | None]) -> dict[str, ItemScore]:
    return {name: ItemScore(name, value, None if value is None else "0") for name, value in right.items()}
