"""The seven variant types and what a rule can check of each.

The types and their definitions follow SAGE (arXiv 2605.12022) and HellaSwag-Pro (arXiv 2502.11393). The Bloom levels
are ours: neither paper's table could be had. A rule is necessary, never sufficient: it looks at form (permutations,
a negation, the place of "none of the above", copies), and leaves meaning to the verifier.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gapscope.items import Item, item_faults
from gapscope.variants.wording import content_words, is_copy, normalise, shared_share

NOTA = "none of the above"
LABEL = re.compile(r"\((\d)\)\s*")
REASON = re.compile(
    r"\b(why|reasons?|causes?|caused|because|explains?|explanation|"
    r"what (?:has )?(?:made|makes|led|leads|lay|lies|moved|prompted|accounts?)|"
    r"what (?:keeps?|kept|stops?|stopped)|how (?:come|can|could|did|does)|comes? from|came from|what for|owing to|due to|behind)\b"
)
NEGATION = re.compile(
    r"\b(least|not|no|never|except|unlikely|unlikeliest|neither|nor|false|untrue|wrong|worst|mistaken|cannot|avoid|incorrect|without)\b|n't\b"
)


@dataclass(frozen=True)
class VariantType:
    """One way to ask the same knowledge again.

    Attributes:
        slug: name in ``meta.type``.
        bloom: level of Bloom's taxonomy (ours).
        instruction: what a generator is asked to do.
        rule: faults of form of a variant, given its original; empty where it complies.
    """

    slug: str
    bloom: str
    instruction: str
    rule: Callable[[Item, Item], list[str]]


def gold(item: Item) -> str:
    """Text of the gold choice."""
    assert item.answer is not None
    return item.choices[item.answer]


def is_nota(choice: str) -> bool:
    """Whether a choice says "none of the above"."""
    return normalise(choice) in (NOTA, "none of these", "none of the choices above", "none of the other choices")


def ordering_sentences(text: str) -> list[str]:
    """The sentences labelled (1), (2), ... in a stem, in the order shown; empty where the labels are not 1..n."""
    labels = [int(label) for label in LABEL.findall(text)]
    if sorted(labels) != list(range(1, len(labels) + 1)):
        return []
    return [" ".join(part.split()) for part in LABEL.split(text)[2::2]]


def _restatement(variant: Item, original: Item) -> list[str]:
    return ["the text is a copy of the original's"] if is_copy(variant.text, original.text) else []


def _reverse(variant: Item, original: Item) -> list[str]:
    if not content_words(gold(original)) & content_words(variant.text):
        return ["the stem shares no word with the original's outcome"]
    return []


def _causal(variant: Item, original: Item) -> list[str]:
    faults = [] if REASON.search(variant.text.lower()) else ["the stem does not ask for a reason"]
    if {normalise(choice) for choice in variant.choices} == {normalise(choice) for choice in original.choices}:
        faults.append("the choices are the original's outcomes, not reasons")
    return faults


def _ordering(variant: Item, _original: Item) -> list[str]:
    sentences = ordering_sentences(variant.text)
    if len(sentences) < 3:
        return ["the stem does not label three or more sentences (1), (2), (3), ..."]
    faults = ["two of the sentences are the same"] if len({normalise(text) for text in sentences}) < len(sentences) else []
    orders = [tuple(int(digit) for digit in re.findall(r"\d+", choice)) for choice in variant.choices]
    if any(sorted(order) != list(range(1, len(sentences) + 1)) for order in orders):
        faults.append("a choice is not a permutation of the labels")
    if len(set(orders)) < len(orders):
        faults.append("two choices are the same permutation")
    return faults


def _scenario(variant: Item, original: Item) -> list[str]:
    faults = []
    if {normalise(choice) for choice in variant.choices} != {normalise(choice) for choice in original.choices}:
        faults.append("the choices are not the original's")
    if normalise(gold(variant)) == normalise(gold(original)):
        faults.append("the gold choice is still the original's")
    if normalise(variant.text) == normalise(original.text):
        faults.append("the context is the original's")
    return faults


def _negative(variant: Item, original: Item) -> list[str]:
    faults = [] if NEGATION.search(variant.text.lower()) else ["the stem holds no negation"]
    if normalise(gold(variant)) == normalise(gold(original)):
        faults.append("the gold choice is the original's right answer")
    return faults


def _critical(variant: Item, original: Item) -> list[str]:
    metas = [is_nota(choice) for choice in variant.choices]
    if sum(metas) != 1:
        return ["not exactly one choice is 'none of the above'"]
    if not metas[-1]:
        return ["'none of the above' is not the last choice"]
    right_stays = normalise(gold(variant)) == normalise(gold(original))
    if not is_nota(gold(variant)) and not right_stays and shared_share(gold(variant), gold(original)) < 0.5:
        return ["the gold choice is neither 'none of the above' nor the original's"]
    return []


TYPES = {
    entry.slug: entry
    for entry in (
        VariantType(
            "problem_restatement",
            "understand",
            "Say the context and the gold choice in other words; it stays right.",
            _restatement,
        ),
        VariantType("reverse_conversion", "analyse", "State the outcome and ask which situation led to it.", _reverse),
        VariantType("causal_inference", "analyse", "State what happens and ask for the reason; every choice is a reason.", _causal),
        VariantType("sentence_ordering", "analyse", "Shuffle the sentences of the passage and ask for their right order.", _ordering),
        VariantType("scenario_refinement", "apply", "Change the context so that another of the same choices becomes right.", _scenario),
        VariantType("negative_transformation", "evaluate", "Ask for the one choice that is least plausible.", _negative),
        VariantType("critical_testing", "evaluate", "Add 'None of the above' as the last choice, and sometimes make it right.", _critical),
    )
}


def rule_faults(variant: Item, original: Item, slug: str) -> list[str]:
    """Every way in which a variant breaks the form of its type, or of any item; empty where it complies.

    Raises:
        KeyError: there is no such type.
    """
    faults = [explanation for _reason, explanation in item_faults(variant)]
    return faults or TYPES[slug].rule(variant, original)
