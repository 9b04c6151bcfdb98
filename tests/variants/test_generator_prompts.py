"""What a generator is taught parses back into a variant that complies with its type, and what is damaged does not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gapscope.items import Item
from gapscope.variants.generator_prompts import ParseFault, generator_completion, generator_prompt, parse_completion
from gapscope.variants.seeds import ORIGINAL, read_seeds
from gapscope.variants.stems import labelled_sentences
from gapscope.variants.types import TYPES, gold, rule_faults

SEEDS = read_seeds(sorted((Path(__file__).parents[2] / "data/seeds").glob("*.jsonl")))
ORIGINALS = {seed.item.family: seed.item for seed in SEEDS if seed.type == ORIGINAL}
ITEM = Item("a-original", "t", "a", "The kettle whistles.\nWhat does Mia do?", ("Sand it", "Turn it off", "Paint"), 1, kind="commonsense")


def variant(slug: str, completion: str, original: Item = ITEM) -> Item:
    found = parse_completion(original, slug, completion)
    assert isinstance(found, Item), found
    return found


@pytest.mark.parametrize("slug", TYPES)
def test_valid_seeds_come_back_in_form(slug: str) -> None:
    places: Counter[int] = Counter()
    for seed in SEEDS:
        if seed.valid and seed.type == slug:
            original = ORIGINALS[seed.item.family]
            item = variant(slug, generator_completion(seed.item, original, slug), original)
            assert rule_faults(item, original, slug) == []
            assert item.family == original.family and item.meta["type"] == slug
            if slug not in ("sentence_ordering", "critical_testing"):
                assert gold(item) == gold(seed.item)
            places[item.answer or 0] += 1
    assert sum(places.values()) == 104
    assert max(places.values()) < 0.65 * 104, "the place of the gold would give it away"


def test_the_prompt_ends_where_the_completion_begins() -> None:
    prompt = generator_prompt(ITEM, "causal_inference")
    assert prompt.startswith("Question: The kettle whistles.\nWhat does Mia do?\n- Sand it\n")
    assert "Right answer: Turn it off\n" in prompt and prompt.endswith("every choice is a reason.\n")


def test_ordering_is_shuffled_and_the_gold_restores_it() -> None:
    told = ["Water boiled.", "It whistled.", "Mia came.", "She turned it off."]
    item = variant("sentence_ordering", "\n".join(f"Sentence: {one}" for one in told))
    shown = labelled_sentences(item.text)
    order = [int(label) for label in gold(item).split(", ")]
    assert [shown[label] for label in order] == told
    assert order != sorted(order)
    assert len(set(item.choices)) == 4 and all(sorted(map(int, choice.split(", "))) == [1, 2, 3, 4] for choice in item.choices)


def test_critical_testing_keeps_or_takes_away_the_right_answer() -> None:
    kept = variant("critical_testing", "Answer: one of the choices")
    assert kept.choices == ("Sand it", "Turn it off", "Paint", "None of the above") and gold(kept) == "Turn it off"
    taken = variant("critical_testing", "Answer: None of the above")
    assert taken.choices == ("Sand it", "Paint", "None of the above") and taken.answer == 2


def test_choices_are_kept_where_the_type_keeps_them() -> None:
    refined = variant("scenario_refinement", "Answer: paint\nContext: The wall is bare.\nQuestion: What does Mia do?")
    assert sorted(refined.choices) == sorted(ITEM.choices) and gold(refined) == "Paint"
    assert refined.text == "The wall is bare.\nWhat does Mia do?"
    negative = variant("negative_transformation", "Question: Which is least likely?\nAnswer: Sand it\nOther: Pour tea")
    assert negative.text == "The kettle whistles.\nWhich is least likely?"
    assert sorted(negative.choices) == ["Pour tea", "Sand it", "Turn it off"] and gold(negative) == "Sand it"


def test_other_choices_are_passed_over_where_the_original_has_them() -> None:
    lines = "Context: A whistle.\nQuestion: And now?\nAnswer: She turns it off"
    assert variant("problem_restatement", f"{lines}\nOther: She sings") == variant("problem_restatement", lines)
    assert "She sings" in variant("causal_inference", f"{lines}\nOther: She sings").choices


@pytest.mark.parametrize(
    ("slug", "completion", "reason"),
    [
        ("problem_restatement", "A kettle sings.", "a line has no label"),
        ("problem_restatement", "Question: What now?", "needs one line Answer, has 0"),
        ("problem_restatement", "Question: What now?\nAnswer: Off\nAnswer: On", "needs one line Answer, has 2"),
        ("problem_restatement", "Question: What now?\nAnswer: Paint", "two choices are the same text"),
        ("causal_inference", "Question: Why?\nAnswer: Steam", "0 choices beside the answer"),
        ("scenario_refinement", "Answer: Turn it off\nQuestion: And now?", "none of the original's wrong choices"),
        ("sentence_ordering", "Sentence: One.\nSentence: Two.", "2 sentences, needed are 3 to 9"),
        ("critical_testing", "Answer: perhaps", "neither of the two"),
        ("critical_testing", "Answer: none of the above\nQuestion: What?", "a line says Question"),
        ("reverse_conversion", "Question:\nAnswer: x\nOther: y", "Question is empty"),
    ],
)
def test_what_is_damaged_says_why(slug: str, completion: str, reason: str) -> None:
    found = parse_completion(ITEM, slug, completion)
    assert isinstance(found, ParseFault) and reason in found.reason
