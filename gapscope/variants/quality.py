"""What a set of variants gives away before any subject has read a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gapscope.items import Item
from gapscope.scores import ItemScore, wilson_interval
from gapscope.variants.shortcuts import SHORTCUTS, credit, without_nota
from gapscope.variants.types import gold, is_nota
from gapscope.variants.wording import words

WITHOUT_QUESTION = "Answer:"
"""What stands before the choices when a model is shown nothing else."""


def choices_only(item: Item) -> Item:
    """The item without its question: what a model prefers here, it prefers for the choices' own sake."""
    return replace(item, id=f"{item.id}-choices_only", text=WITHOUT_QUESTION)


def quality_row(variants: Sequence[Item], originals: Mapping[str, Item], blind: Mapping[str, Mapping[str, ItemScore]]) -> dict[str, Any]:
    """Shortcut and choices-only baselines, lengths and gold positions of variants.

    Args:
        variants: those of one type, or all.
        originals: by family.
        blind: by subject, its scores on :func:`choices_only` items, by their id.

    A baseline is ``{n, accuracy, low, high, chance, near_chance}``; it is near chance where its 95% interval holds the
    chance level. Shortcuts ignore "none of the above", whose wording is the same everywhere. Lengths are in words.
    """
    row: dict[str, Any] = {"n": len(variants), "n_families": len({variant.family for variant in variants})}
    if not variants:
        return row
    rest = [kept for variant in variants if (kept := without_nota(variant)) is not None]
    chance = [item.chance for item in rest]
    row["shortcuts"] = {name: _baseline([credit(item, measure) for item in rest], chance) for name, measure in SHORTCUTS.items()}
    row["choices_only"] = {}
    for subject, scores in blind.items():
        pairs = [(variant.chance, score) for variant in variants if (score := scores[choices_only(variant).id].score) is not None]
        row["choices_only"][subject] = _baseline([score for _chance, score in pairs], [level for level, _score in pairs])
    before, after = ([len(words(item.text)) for item in group] for group in ([originals[v.family] for v in variants], variants))
    row["words"] = {
        "original": float(np.mean(before)),
        "variant": float(np.mean(after)),
        "shift": float(np.mean(np.subtract(after, before))),
    }
    row["gold_position"] = dict(Counter("nota" if is_nota(gold(variant)) else str(variant.answer) for variant in variants))
    return row


def _baseline(credits_earned: Sequence[float], chance: Sequence[float]) -> dict[str, Any]:
    if not credits_earned:
        return {"n": 0}
    mean, level = float(np.mean(credits_earned)), float(np.mean(chance))
    low, high = wilson_interval(mean, len(credits_earned))
    return {
        "n": len(credits_earned),
        "accuracy": mean,
        "low": round(low, 6),
        "high": round(high, 6),
        "chance": level,
        "near_chance": low <= level <= high,
    }
