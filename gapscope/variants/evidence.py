"""Evidence for a verdict: what plain rules, word overlap, sentence embeddings and an untuned model measure of a variant.

A small model asked whether a variant is sound can hardly tell; a small classifier over such measures can. Each measure
compares the variant with its original, or the marked choice with the others. None is a length: in hand-written seeds
length tells valid from invalid ones, and it would be the first thing that a generator learns to fake.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment

from gapscope.items import Item
from gapscope.variants.prompts import Pair
from gapscope.variants.signals import Sources, choice_signals, overlap, summaries
from gapscope.variants.stems import labelled_sentences, orders, sentences, split_stem, swaps
from gapscope.variants.types import NEGATION, REASON, TYPES, gold, is_nota, rule_faults
from gapscope.variants.wording import normalise, shared_share, words

LIKELIHOOD = ("likelihood", "information", "shift")
EMBEDDING = ("cosine", "company", "gold_contrast", "told_order", "flow", "cover")


def texts(pair: Pair) -> list[str]:
    """Every text of a pair that may be compared with another, for an encoder to learn at once."""
    found = []
    for item in (pair.variant, pair.original):
        found += [item.text, *split_stem(item.text), *item.choices]
    return [*found, *sentences(split_stem(pair.original.text)[0]), *labelled_sentences(pair.variant.text).values()]


def evidence_names(sample: dict[str, float]) -> tuple[str, ...]:
    """The columns of evidence, in the order of :func:`evidence_matrix`."""
    return tuple(sorted(sample))


def group_of(name: str) -> str:
    """Which part of the evidence a column belongs to: type, likelihood, embedding, or wording (rules and words)."""
    if name.startswith("type_"):
        return "type"
    if name.startswith(LIKELIHOOD):
        return "likelihood"
    return "embedding" if any(part in name for part in EMBEDDING) else "wording"


def evidence_matrix(pairs: Sequence[Pair], sources: Sources) -> tuple[np.ndarray, tuple[str, ...]]:
    """Evidence (pairs, columns), float64 with NaN where undefined, and the columns' names."""
    rows = [evidence(pair, sources) for pair in pairs]
    names = evidence_names(rows[0])
    return np.array([[row[name] for name in names] for row in rows]), names


def evidence(pair: Pair, sources: Sources) -> dict[str, float]:
    """Every measure of one pair by name."""
    if pair.variant.answer is None or len(pair.variant.choices) < 2:
        raise ValueError(f"{pair.variant.id}: evidence needs two choices and a marked one")
    row = {f"type_{slug}": float(slug == pair.type) for slug in TYPES}
    for name, values in choice_signals(pair, sources).items():
        row |= {f"{name}_{kind}": value for kind, value in summaries(values, pair.variant.answer).items()}
    return row | _form(pair) | _stems(pair, sources) | _choices(pair.variant, sources) | _matching(pair, sources) | _story(pair, sources)


def _form(pair: Pair) -> dict[str, float]:
    """What a rule can see."""
    variant, original = pair.variant, pair.original
    asked, asked_before = (split_stem(item.text)[1].lower() for item in (variant, original))
    mine, theirs = ({normalise(choice) for choice in item.choices} for item in (variant, original))
    metas = [is_nota(choice) for choice in variant.choices]
    return {
        "rule_faults": float(len(rule_faults(variant, original, pair.type))),
        "asks_reason": float(bool(REASON.search(asked))),
        "negated": float(bool(NEGATION.search(asked))) - float(bool(NEGATION.search(asked_before))),
        "labelled": float(bool(labelled_sentences(variant.text))),
        "orders": float(orders(variant) is not None),
        "kept_choices": len(mine & theirs) / len(theirs),
        "keeps_gold": float(normalise(gold(original)) in mine),
        "marks_gold": float(normalise(gold(variant)) == normalise(gold(original))),
        "n_nota": float(sum(metas)),
        "nota_last": float(metas[-1]),
        "marks_nota": float(is_nota(gold(variant))),
    }


def _stems(pair: Pair, sources: Sources) -> dict[str, float]:
    """How much of the original's stem, context, question and outcome the variant's stem keeps."""
    variant, original = pair.variant.text, pair.original.text
    (context, asked), (context_before, asked_before) = split_stem(variant), split_stem(original)
    return {
        "stems_cosine": sources.cosine(variant, original),
        "contexts_cosine": sources.cosine(context or variant, context_before or original),
        "questions_cosine": sources.cosine(asked, asked_before),
        "stems_ratio": _ratio(variant, original),
        "questions_ratio": _ratio(asked, asked_before),
        "stem_from_original": shared_share(variant, original),
        "outcome_cosine": sources.cosine(variant, gold(pair.original)),
        "outcome_in_stem": shared_share(gold(pair.original), variant),
    }


def _ratio(text: str, other: str) -> float:
    return difflib.SequenceMatcher(None, words(text), words(other), autojunk=False).ratio()


def _choices(variant: Item, sources: Sources) -> dict[str, float]:
    """How alike the choices are among themselves: two that say the same cannot both be wrong or right."""
    found = {}
    for name, measure in (("cosine", sources.cosine), ("overlap", overlap)):
        values = {(a, b): measure(variant.choices[a], variant.choices[b]) for a, b in combinations(range(len(variant.choices)), 2)}
        with_marked = sorted((value for two, value in values.items() if variant.answer in two), reverse=True)
        found[f"alike_{name}_max"] = max(values.values())
        found[f"alike_{name}_marked"] = with_marked[0]
        found[f"alike_{name}_lone"] = with_marked[0] - with_marked[1] if len(with_marked) > 1 else np.nan
    return found


def _matching(pair: Pair, sources: Sources) -> dict[str, float]:
    """The choices paired off with the original's, each with the one it is most like: a choice without a partner is new."""
    variant, original = pair.variant, pair.original
    likeness = np.array([[overlap(mine, theirs) for theirs in original.choices] for mine in variant.choices])
    if sources.likeness is not None:
        likeness += np.array([[sources.cosine(mine, theirs) for theirs in original.choices] for mine in variant.choices])
    rows, columns = linear_sum_assignment(-likeness)
    partner = dict(zip(rows.tolist(), columns.tolist(), strict=True))
    paired, marked = likeness[rows, columns], likeness[variant.answer]
    wrong = np.delete(marked, original.answer or 0)
    return {
        "partner_mean": float(paired.mean()),
        "partner_min": float(paired.min()),
        "partner_new": float(likeness.max(axis=1).min()),
        "partner_gold": float(partner.get(variant.answer or 0, -1) == original.answer),
        "partner_contrast": float(marked[original.answer or 0] - wrong.max()),
    }


def _story(pair: Pair, sources: Sources) -> dict[str, float]:
    """Of an ordering variant: how near the listed orders are to one another, and whether its sentences tell the original's story."""
    named, marked = orders(pair.variant), pair.variant.answer
    if named is None or marked is None:
        return dict.fromkeys(("order_near", "order_nearest", "order_trivial", "story_cover"), np.nan)
    told = [*sentences(split_stem(pair.original.text)[0]), gold(pair.original)]
    parts = labelled_sentences(pair.variant.text).values()
    return {
        "order_near": float(min(swaps(named[marked], order) for k, order in enumerate(named) if k != marked)),
        "order_nearest": float(min(swaps(a, b) for a, b in combinations(named, 2))),
        "order_trivial": float(list(named[marked]) == sorted(named[marked])),
        "story_cover": float(np.mean([max(sources.cosine(part, sentence) for sentence in told) for part in parts])),
    }
