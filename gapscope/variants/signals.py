"""Signals: one number for each choice of a variant, and how the marked choice stands out by it from the others.

What makes a choice right differs from type to type: it is likely after the stem, it says what the original's right
answer says, or what the original's context says, or it is the one that does not. A signal commits to none of these; the
head learns for each type which ones count, and with which sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from gapscope.items import Item
from gapscope.variants.prompts import Pair
from gapscope.variants.stems import agreement, labelled_sentences, orders, passages, sentences, split_stem
from gapscope.variants.types import gold, is_nota
from gapscope.variants.wording import content_words, normalise, shared_share

ORDERING = "sentence_ordering"
NO_CONTEXT = "Answer:"
STORY = "Story:"


class LikelihoodSource(Protocol):
    """What a model thinks of continuations (:class:`gapscope.variants.likelihoods.Likelihoods`)."""

    def of(self, context: str, continuations: tuple[str, ...]) -> tuple[float, ...] | None:
        """Natural log-probability of each continuation, None where they were not asked for or cannot be scored."""


class LikenessSource(Protocol):
    """How alike texts are in meaning (:class:`gapscope.embedder.Embedder`)."""

    def cosine(self, text: str, other: str) -> float:
        """From -1 to 1."""


@dataclass(frozen=True)
class Sources:
    """Where evidence comes from: a model and an encoder; what one of them would measure is undefined without it."""

    likelihoods: LikelihoodSource | None
    likeness: LikenessSource | None

    def cosine(self, text: str, other: str) -> float:
        """Likeness in meaning, NaN without an encoder."""
        return np.nan if self.likeness is None else self.likeness.cosine(text, other)


def overlap(text: str, other: str) -> float:
    """Shared content words over all content words of two texts (Jaccard); 0 where there are none."""
    mine, theirs = content_words(text), content_words(other)
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 0.0


def question(item: Item) -> str:
    """The context in which an item's choices are scored."""
    return f"Question: {item.text}\nAnswer:"


def queries(pair: Pair, which: Literal["none", "orders", "all"]) -> list[tuple[str, tuple[str, ...]]]:
    """Contexts and continuations whose likelihoods :func:`choice_signals` looks up: of none, orders only, or any choices."""
    if which == "none":
        return []
    variant, original = pair.variant, pair.original
    told = passages(variant)
    if told is not None:
        return [(STORY, tuple(told))]
    if which == "orders":
        return []
    own, before = (question(variant), variant.choices), (question(original), original.choices)
    return [own, before, (NO_CONTEXT, variant.choices), (question(original), variant.choices)]


def choice_signals(pair: Pair, sources: Sources) -> dict[str, list[float]]:
    """Every signal by name; each has one value for each choice of the variant, NaN where it is undefined."""
    variant, original = pair.variant, pair.original
    right, wrong = gold(original), [choice for index, choice in enumerate(original.choices) if index != original.answer]
    context = split_stem(original.text)[0] or original.text
    found = {
        "gold_overlap": [overlap(choice, right) for choice in variant.choices],
        "gold_cosine": [sources.cosine(choice, right) for choice in variant.choices],
        "wrong_overlap": [max(overlap(choice, other) for other in wrong) for choice in variant.choices],
        "wrong_cosine": [max(sources.cosine(choice, other) for other in wrong) for choice in variant.choices],
        "context_overlap": [shared_share(choice, original.text) for choice in variant.choices],
        "context_cosine": [sources.cosine(choice, context) for choice in variant.choices],
        "stem_overlap": [shared_share(choice, variant.text) for choice in variant.choices],
        "stem_cosine": [sources.cosine(choice, variant.text) for choice in variant.choices],
        "is_gold": [float(normalise(choice) == normalise(right)) for choice in variant.choices],
        "is_wrong": [float(normalise(choice) in map(normalise, wrong)) for choice in variant.choices],
        "is_nota": [float(is_nota(choice)) for choice in variant.choices],
        "company": _company(variant, sources),
    }
    found["gold_contrast"] = [a - b for a, b in zip(found["gold_cosine"], found["wrong_cosine"], strict=True)]
    return found | _likelihood_signals(pair, sources) | _ordering_signals(pair, sources)


def _company(variant: Item, sources: Sources) -> list[float]:
    """How alike each choice is to the others on average: an unrelated one is alone."""
    return [
        float(np.mean([sources.cosine(choice, other) for k, other in enumerate(variant.choices) if k != index]))
        for index, choice in enumerate(variant.choices)
    ]


def _likelihood_signals(pair: Pair, sources: Sources) -> dict[str, list[float]]:
    """Likelihood per byte; what the stem adds to it; what the variant's stem adds over the original's."""
    variant, names = pair.variant, ("likelihood", "information", "shift")
    undefined = [np.nan] * len(variant.choices)
    found = dict.fromkeys(names, undefined)
    if sources.likelihoods is None:
        return found
    told = passages(variant)
    if told is not None:
        values = sources.likelihoods.of(STORY, tuple(told))
        # A passage is several sentences long, a choice one: bring their differences to one scale.
        return found | ({} if values is None else {"likelihood": [v / len(p.encode()) * 5 for v, p in zip(values, told, strict=True)]})
    own = sources.likelihoods.of(question(variant), variant.choices)
    if own is None:
        return found
    sizes = [max(1, len(choice.encode())) for choice in variant.choices]
    found["likelihood"] = [value / size for value, size in zip(own, sizes, strict=True)]
    for name, context in (("information", NO_CONTEXT), ("shift", question(pair.original))):
        base = sources.likelihoods.of(context, variant.choices)
        if base is not None:
            found[name] = [(a - b) / size for a, b, size in zip(own, base, sizes, strict=True)]
    return found


def _ordering_signals(pair: Pair, sources: Sources) -> dict[str, list[float]]:
    """How well each order agrees with the order in which the original tells the same things, and how well neighbours fit."""
    named = orders(pair.variant) if pair.type == ORDERING else None
    if named is None or sources.likeness is None:
        return dict.fromkeys(("told_order", "flow"), [np.nan] * len(pair.variant.choices))
    parts = labelled_sentences(pair.variant.text)
    told = [*sentences(split_stem(pair.original.text)[0]), gold(pair.original)]
    place = {label: _place(part, told, sources) for label, part in parts.items()}
    flow = [float(np.mean([sources.cosine(parts[a], parts[b]) for a, b in pairwise(order)])) for order in named]
    return {"told_order": [agreement([place[label] for label in order]) for order in named], "flow": flow}


def _place(part: str, told: Sequence[str], sources: Sources) -> float:
    """Where in a story a sentence stands: the mean position of the story's sentences, weighted by likeness cubed."""
    weights = np.array([max(0.0, sources.cosine(part, sentence)) ** 3 for sentence in told])
    return float(weights @ np.arange(len(told)) / weights.sum()) if weights.sum() else (len(told) - 1) / 2


def summaries(values: Sequence[float], marked: int) -> dict[str, float]:
    """How the marked choice stands out by a signal.

    ``margin`` over the best other, ``lead`` over the worst other, ``gap`` between the best two of all (small where two
    choices are as good), ``mark`` the marked one's value, ``rank`` how many others are above it. All are NaN unless the
    marked choice and another one are defined.
    """
    signal = np.array(values, dtype=np.float64)
    others = np.delete(signal, marked)
    others = others[~np.isnan(others)]
    if np.isnan(signal[marked]) or not len(others):
        return dict.fromkeys(("margin", "lead", "gap", "mark", "rank"), np.nan)
    ranked = np.sort(np.append(others, signal[marked]))
    return {
        "margin": float(signal[marked] - others.max()),
        "lead": float(signal[marked] - others.min()),
        "gap": float(ranked[-1] - ranked[-2]),
        "mark": float(signal[marked]),
        "rank": float((others > signal[marked]).sum()),
    }
