"""Contrasts: faults made from sound seeds, so that a head learns what is at fault and not how faulty seeds are written.

Whoever writes a faulty variant by hand writes it a little differently: shorter, or with other words. A sound variant
with another choice marked, under another type's name, beside another original, or with its answer given twice, differs
from the sound one in the fault alone. Contrasts are only ever trained on; every score is on the seeds as written.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.variants.generator_prompts import generator_completion, parse_completion
from gapscope.variants.prompts import Pair
from gapscope.variants.seeds import DIMENSIONS, Seed
from gapscope.variants.signals import ORDERING
from gapscope.variants.stems import orders, split_stem
from gapscope.variants.types import TYPES, gold, is_nota
from gapscope.variants.wording import normalise


@dataclass(frozen=True)
class Labelled:
    """A pair and what is known of it: the verdict on each dimension."""

    pair: Pair
    verdict: dict[str, bool]

    @property
    def valid(self) -> bool:
        """All three dimensions hold."""
        return all(self.verdict.values())


def labelled(seeds: Sequence[Seed], originals: Mapping[str, Item]) -> list[Labelled]:
    """Seeds as labelled pairs, in the order given."""
    return [Labelled(Pair(seed.item, originals[seed.item.family], seed.type), dict(seed.verdict)) for seed in seeds]


def assembled(rows: Sequence[Labelled]) -> list[Labelled]:
    """Seeds put together as a generator's variants are: fewer or kept choices, other distractors; with the verdict they had.

    So that the head does not take for a fault what only tells a written variant from an assembled one. What the assembly
    would mend is left out: choices at fault (AU), and critical_testing, whose choices it makes itself.
    """
    made = []
    for row in rows:
        variant, original, slug = row.pair.variant, row.pair.original, row.pair.type
        if not row.verdict["au"] or (slug == "critical_testing" and not row.valid) or (slug == ORDERING and orders(variant) is None):
            continue
        item = parse_completion(original, slug, generator_completion(variant, original, slug))
        if isinstance(item, Item):
            made.append(Labelled(Pair(replace(item, id=variant.id), original, slug), row.verdict))
    return made


def contrasts(rows: Sequence[Labelled], seed: int, per_variant: int) -> list[Labelled]:
    """Faulty pairs made from the valid ones among ``rows``, each failing one dimension; at most ``per_variant`` of each.

    What is drawn at random depends on the seed and the variant's own id.
    """
    sound = [row for row in rows if row.valid]
    by_type: dict[str, list[Pair]] = defaultdict(list)
    for row in sound:
        by_type[row.pair.type].append(row.pair)
    found: list[Labelled] = []
    for row in sound:
        rng = random.Random(stable_hash(seed, "contrast", row.pair.variant.id))
        made = list(_of_one(row.pair, by_type, rng))
        found += rng.sample(made, min(per_variant, len(made)))
    return found


def _of_one(pair: Pair, by_type: Mapping[str, Sequence[Pair]], rng: random.Random) -> Iterator[Labelled]:
    variant, original, slug = pair.variant, pair.original, pair.type
    wrong = [index for index in range(len(variant.choices)) if index != variant.answer]
    for index in rng.sample(wrong, min(2, len(wrong))):
        yield _failing("lc", Pair(replace(variant, answer=index), original, slug))
    yield _failing("tc", Pair(variant, original, rng.choice([name for name in TYPES if name != slug])))
    elsewhere = [other.variant for other in by_type[slug] if other.variant.family != variant.family]
    if elsewhere:
        yield _failing("tc", Pair(rng.choice(elsewhere), original, slug))
    if rng.random() < 0.5:
        yield _failing("tc", Pair(original, original, slug))
    twice = _second_answer(pair, rng)
    replaceable = [index for index in wrong if not is_nota(variant.choices[index])]
    if twice is not None and replaceable:
        place = rng.choice(replaceable)
        choices = tuple(twice if index == place else choice for index, choice in enumerate(variant.choices))
        # Where "none of the above" is marked, the right answer put back makes the mark wrong, and stays the only right one.
        yield _failing("lc" if is_nota(gold(variant)) else "au", Pair(replace(variant, choices=choices), original, slug))


def _failing(dimension: str, pair: Pair) -> Labelled:
    return Labelled(pair, {name: name != dimension for name in DIMENSIONS})


def _second_answer(pair: Pair, rng: random.Random) -> str | None:
    """Another text that is as right as the marked choice; None where none is at hand."""
    variant, original = pair.variant, pair.original
    if pair.type == "problem_restatement":
        return gold(original)
    if pair.type == "reverse_conversion":
        return split_stem(original.text)[0] or None
    if pair.type == "negative_transformation":
        taken = {normalise(choice) for choice in variant.choices}
        wrong = [choice for index, choice in enumerate(original.choices) if index != original.answer and normalise(choice) not in taken]
        return rng.choice(wrong) if wrong else None
    if is_nota(gold(variant)):
        return gold(original)
    return gold(variant)
