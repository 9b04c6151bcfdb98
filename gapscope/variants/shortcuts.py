"""Baselines that never read for meaning: whoever beats chance with them has found a flaw of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gapscope.items import Item
from gapscope.variants.types import is_nota
from gapscope.variants.wording import content_words

Measure = Callable[[Item, str], float]

SHORTCUTS: dict[str, Measure] = {
    "longest": lambda _item, choice: float(len(choice)),
    "shortest": lambda _item, choice: -float(len(choice)),
    "overlap": lambda item, choice: float(len(content_words(choice) & content_words(item.text))),
}


def credit(item: Item, measure: Measure) -> float:
    """Share of the credit that a shortcut earns on an item: it picks the choice of greatest measure, ties split evenly."""
    values = [measure(item, choice) for choice in item.choices]
    best = [index for index, value in enumerate(values) if value == max(values)]
    return (item.answer in best) / len(best)


def without_nota(item: Item) -> Item | None:
    """The item without its "none of the above"; None where that choice is gold.

    Its length and wording are the same everywhere, so they say nothing; how often it is right is counted apart.
    """
    if item.answer is None or is_nota(item.choices[item.answer]):
        return None
    kept = [index for index, choice in enumerate(item.choices) if not is_nota(choice)]
    return replace(item, choices=tuple(item.choices[index] for index in kept), answer=kept.index(item.answer))


def shortcut_accuracy(items: Sequence[Item]) -> dict[str, float]:
    """Accuracy of each shortcut and, as ``chance``, of a blind guess, "none of the above" aside; empty where no item is left."""
    rest = [kept for item in items if (kept := without_nota(item)) is not None]
    if not rest:
        return {}
    found = {name: float(np.mean([credit(item, measure) for item in rest])) for name, measure in SHORTCUTS.items()}
    return found | {"chance": float(np.mean([item.chance for item in rest]))}
