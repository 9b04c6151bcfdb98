"""Items as they are put to a subject: choices in a seeded random order, those that speak of the others kept in place."""

from __future__ import annotations

import random
from dataclasses import replace

from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.variants.splits import META


def presented(item: Item, seed: int) -> Item:
    """The item with its choices in an order drawn from the seed and its id; "none of the above" and its like stay put."""
    order = list(range(len(item.choices)))
    free = [index for index in order if not META.fullmatch(item.choices[index])]
    drawn = list(free)
    random.Random(stable_hash(seed, "present", item.id)).shuffle(drawn)
    for place, source in zip(free, drawn, strict=True):
        order[place] = source
    answer = None if item.answer is None else order.index(item.answer)
    return replace(item, choices=tuple(item.choices[index] for index in order), answer=answer)
