"""What a rule can see of each variant type, on one family written out here.

For every type: a variant that complies has no fault, and each way of breaking its form has a fault that names it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapscope.items import Item
from gapscope.variants.types import TYPES, ordering_sentences, rule_faults
from gapscope.variants.wording import is_copy, shared_share

ORIGINAL = Item(
    "f-original",
    "t",
    "f",
    "Mia's kettle has started to whistle on the stove. What does she do?",
    ("She fills it with sand", "She turns the stove off", "She paints the wall", "She calls the bank"),
    1,
)
GOOD = {
    "problem_restatement": replace(
        ORIGINAL,
        text="A loud whistle tells Mia that her water is boiling. What is her next step?",
        choices=("Sand it", "Put out the flame", "Paint", "Ring"),
        answer=1,
    ),
    "reverse_conversion": Item(
        "r", "t", "f", "Mia turns the stove off. What came before?", ("Her kettle began to whistle", "She was asleep"), 0
    ),
    "causal_inference": Item("c", "t", "f", "Mia turns the stove off. Why?", ("The kettle whistles", "The stove is new"), 0),
    "sentence_ordering": Item(
        "s",
        "t",
        "f",
        "(1) It whistled. (2) She filled the kettle. (3) She turned it off. Which order?",
        ("2, 1, 3", "1, 2, 3", "3, 2, 1"),
        0,
    ),
    "scenario_refinement": replace(
        ORIGINAL, text="Mia found that the kettle was not hers and the wall was bare. What does she do?", answer=2
    ),
    "negative_transformation": Item(
        "n", "t", "f", "Mia's kettle whistles. What is she least likely to do?", ("Turn it off", "Fill it with sand"), 1
    ),
    "critical_testing": replace(ORIGINAL, choices=(*ORIGINAL.choices, "None of the above")),
}
BAD = [
    ("problem_restatement", {"text": ORIGINAL.text.replace("started", "begun")}, "copy"),
    ("reverse_conversion", {"text": "Which of these is blue?"}, "no word with the original's outcome"),
    ("causal_inference", {"text": "Mia turns the stove off. Then?"}, "does not ask for a reason"),
    ("causal_inference", {"choices": ORIGINAL.choices}, "outcomes, not reasons"),
    ("sentence_ordering", {"choices": ("2, 1, 3", "1, 2, 4", "3, 2, 1")}, "not a permutation"),
    ("sentence_ordering", {"choices": ("2, 1, 3", "2,1,3", "3, 2, 1")}, "same permutation"),
    ("sentence_ordering", {"text": "(1) It whistled. (2) It whistled. (3) She left."}, "sentences are the same"),
    ("sentence_ordering", {"text": "It whistled. Which order?"}, "does not label"),
    ("scenario_refinement", {"answer": 1}, "still the original's"),
    ("scenario_refinement", {"choices": ("a", "b", "c", "d")}, "not the original's"),
    ("negative_transformation", {"text": "Mia's kettle whistles. What is she likely to do?"}, "no negation"),
    ("negative_transformation", {"choices": ("Fill it with sand", "She turns the stove off.")}, "original's right answer"),
    ("critical_testing", {"choices": ("None of the above", "She turns the stove off", "Sit")}, "not the last"),
    ("critical_testing", {"choices": ORIGINAL.choices}, "not exactly one"),
    ("critical_testing", {"answer": 2}, "neither"),
]


def test_each_type_has_a_rule_and_an_instruction() -> None:
    assert set(GOOD) == set(TYPES)
    assert all(entry.instruction and entry.bloom for entry in TYPES.values())


@pytest.mark.parametrize("slug", TYPES)
def test_a_variant_that_complies(slug: str) -> None:
    assert rule_faults(GOOD[slug], ORIGINAL, slug) == []


def test_none_of_the_above_may_be_right() -> None:
    item = GOOD["critical_testing"]
    choices = tuple("She sings" if index == 1 else choice for index, choice in enumerate(item.choices))
    assert rule_faults(replace(item, choices=choices, answer=4), ORIGINAL, "critical_testing") == []


@pytest.mark.parametrize(("slug", "change", "expected"), BAD)
def test_each_break_of_form_is_named(slug: str, change: dict[str, object], expected: str) -> None:
    faults = rule_faults(replace(GOOD[slug], **change), ORIGINAL, slug)
    assert any(expected in fault for fault in faults), faults


def test_faults_of_any_item_come_first() -> None:
    item = replace(GOOD["negative_transformation"], choices=("Turn it off", "Turn it off"))
    assert rule_faults(item, ORIGINAL, "negative_transformation") == ["two choices are the same text"]


def test_wording() -> None:
    assert ordering_sentences("(1) One.\n(2) Two. Which?") == ["One.", "Two. Which?"]
    assert ordering_sentences("(1) One. (3) Three.") == []
    assert is_copy("The cat sat on the mat by the door today", "A cat sat on the mat by the door now") is False
    assert is_copy("The cat sat on the mat by the old red door today", "The cat sat on the mat by the old red door.")
    assert shared_share("opened the doors", "She opens a door") == 1.0
    assert shared_share("the", "the") == 0.0
