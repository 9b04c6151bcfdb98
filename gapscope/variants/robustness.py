"""What a subject still knows when it is asked in another way: accuracy on originals and on their variants, by family.

The measures are those of SAGE (arXiv 2605.12022) and HellaSwag-Pro (arXiv 2502.11393). Their consistent accuracy is
computed in both readings: over pairs of an original and a variant, and over whole families.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapscope.items import Item
from gapscope.scores import ItemScore
from gapscope.variants.types import TYPES, gold, is_nota

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MEASURES = ("oa", "ara", "rla", "rla_relative", "cra_pair", "cra_all")
ALL, NOTA_GOLD, NOTA_DISTRACTOR = "all", "critical_testing_nota_gold", "critical_testing_nota_distractor"
SUBSETS = (ALL, *TYPES, NOTA_GOLD, NOTA_DISTRACTOR)


@dataclass(frozen=True)
class Outcomes:
    """How a subject did on families, an original and its variants each.

    Attributes:
        families: their ids, each with a scored original and at least one scored variant.
        original: (families,) 1 where the original was answered right, else 0.
        variant_ids: ids of the scored variants.
        family_of: (variants,) index of the variant's family.
        variant: (variants,) 1 where the variant was answered right, else 0.
        chance: expected accuracy of a blind guess on the originals and on the variants.
        n_unscored: variants left out because they, or their original, were not scored.
    """

    families: tuple[str, ...]
    original: FloatArray
    variant_ids: tuple[str, ...]
    family_of: IntArray
    variant: FloatArray
    chance: tuple[float, float]
    n_unscored: int


def in_subset(variant: Item, subset: str) -> bool:
    """Whether a variant counts in a subset: everything, its type, or critical testing by what "none of the above" is."""
    if subset in (ALL, variant.meta["type"]):
        return True
    if subset not in (NOTA_GOLD, NOTA_DISTRACTOR) or variant.meta["type"] != "critical_testing":
        return False
    return is_nota(gold(variant)) == (subset == NOTA_GOLD)


def outcomes(originals: Mapping[str, Item], variants: Sequence[Item], scores: Mapping[str, ItemScore]) -> Outcomes:
    """Line up a subject's scores by family; what is not scored on both sides is left out and counted."""
    kept = [v for v in variants if scores[v.id].score is not None and scores[originals[v.family].id].score is not None]
    families = tuple(sorted({variant.family for variant in kept}))
    index = {family: k for k, family in enumerate(families)}
    chance = [[item.chance for item in group] for group in ([originals[f] for f in families], kept)]
    return Outcomes(
        families,
        np.array([scores[originals[family].id].score for family in families], dtype=np.float64),
        tuple(variant.id for variant in kept),
        np.array([index[variant.family] for variant in kept], dtype=np.int64),
        np.array([scores[variant.id].score for variant in kept], dtype=np.float64),
        (float(np.mean(chance[0])), float(np.mean(chance[1]))) if kept else (float("nan"), float("nan")),
        len(variants) - len(kept),
    )


def measures(found: Outcomes, weights: FloatArray) -> dict[str, FloatArray]:
    """Each of MEASURES under each row of family weights (draws, families): (draws,), NaN where undefined.

    oa is the accuracy on originals and ara on variants, rla = oa - ara, rla_relative = rla / oa; cra_pair is the share of
    pairs of an original and a variant that are both right, cra_all that of families with nothing wrong.
    """
    n = len(found.families)
    count = np.bincount(found.family_of, minlength=n).astype(np.float64)
    right = np.bincount(found.family_of, weights=found.variant, minlength=n)
    families, variants = weights.sum(axis=1), weights @ count
    oa, ara = weights @ found.original / families, weights @ right / variants
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(oa > 0, (oa - ara) / oa, np.nan)
    return {
        "oa": oa,
        "ara": ara,
        "rla": oa - ara,
        "rla_relative": relative,
        "cra_pair": weights @ (found.original * right) / variants,
        "cra_all": weights @ (found.original * (right == count)) / families,
    }


def summary(found: Outcomes, draws: int, confidence: float, seed: int) -> dict[str, float | None]:
    """Each measure with the ends of its interval (``<measure>_low``, ``<measure>_high``), by bootstrap over families.

    None where a measure is undefined (no family; rla_relative without a right original), and for the ends where every
    draw gives the same value: an interval without width would claim a certainty that so few families cannot give.
    """
    n = len(found.families)
    empty = {f"{name}{end}": None for name in MEASURES for end in ("", "_low", "_high")}
    if n == 0:
        return dict(empty)
    rng = np.random.default_rng(seed)
    drawn = measures(found, rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64))
    values: dict[str, float | None] = dict(empty)
    for name, value in measures(found, np.ones((1, n))).items():
        if np.isnan(value[0]):
            continue
        values[name] = float(value[0])
        defined = drawn[name][~np.isnan(drawn[name])]
        if len(defined) and np.ptp(defined) > 1e-12:
            low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
            values |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    return values
