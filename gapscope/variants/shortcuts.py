"""Baselines that never read for meaning: whoever beats chance with them has found a flaw of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gapscope.items import Item
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


def shortcut_accuracy(items: Sequence[Item]) -> dict[str, float]:
    """Accuracy of each shortcut and, as ``chance``, of a blind guess; over items with choices, of which there must be one."""
    found = {name: float(np.mean([credit(item, measure) for item in items])) for name, measure in SHORTCUTS.items()}
    return found | {"chance": float(np.mean([item.chance for item in items]))}
