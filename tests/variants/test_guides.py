"""Guided writing: what a completion's form settles is put in, and only the rest is sampled.

What must hold: a tiny random model, guided, writes for every type what parses or fails for its own words only; fixed texts
stand where they should; a critical test is always well-formed and both kinds occur; without a guide nothing changes; a row
does not depend on its batch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gapscope.items import Item
from gapscope.lm import LM, load_lm
from gapscope.variants.generator_prompts import FORMS, LINE, ParseFault, generator_prompt, parse_completion
from gapscope.variants.guides import WORDINGS, Guide, Steering, Wording, guide, guide_seed, story, suits
from gapscope.variants.sampling import Sampling, encode_prompt, sample
from gapscope.variants.stems import passages
from gapscope.variants.types import TYPES, is_nota, rule_faults

ORIGINAL = Item(
    "q1", "made", "q1", "The owl saw the dog. The dog ran off.\nWhat did the owl do?", ("It slept", "It flew away", "It read a book"), 1
)
FELT = Item("q3", "made", "q3", "Mia lost her kettle.\nHow would Mia feel afterwards?", ("glad", "sad", "proud"), 1)
BARE = replace(ORIGINAL, id="q2", family="q2", text="What does an owl do at night?")
HOW = Sampling(400, 1.0, 0.95)


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


@pytest.mark.parametrize("original", [ORIGINAL, BARE, FELT])
def test_every_line_has_a_label_of_its_type(lm: LM, original: Item) -> None:
    prompts = [encode_prompt(lm, generator_prompt(original, slug))[-60:] for slug in TYPES]
    guides = [guide(original, slug, 3) for slug in TYPES]
    made = sample(lm, prompts, range(7), HOW, Steering(lm, guides))
    alone = [sample(lm, [prompts[k]], [k], HOW, Steering(lm, [guides[k]]))[0] for k in range(7)]
    assert made == alone
    for slug, fixed, one in zip(TYPES, guides, made, strict=True):
        assert one.text.startswith(fixed.fixed[0])
        if one.ended:
            labels = [match.group(1) for line in one.text.split("\n") if (match := LINE.fullmatch(line.strip()))]
            assert len(labels) == len(one.text.split("\n"))
            assert set(labels) <= set(FORMS[slug].split(", "))


def test_critical_testing_is_settled(lm: LM) -> None:
    guides = [guide(ORIGINAL, "critical_testing", seed) for seed in range(12)]
    prompt = encode_prompt(lm, "What?")
    made = [
        parse_completion(ORIGINAL, "critical_testing", one.text) for one in sample(lm, [prompt] * 12, range(12), HOW, Steering(lm, guides))
    ]
    right = []
    for item in made:
        assert not isinstance(item, ParseFault)
        assert rule_faults(item, ORIGINAL, "critical_testing") == []
        right.append(is_nota(item.choices[item.answer or 0]))
    assert 0 < sum(right) < 12


def test_what_is_taken_over() -> None:
    told = {slug: "".join(guide(ORIGINAL, slug, 1).fixed) for slug in TYPES}
    context, question, right = "The owl saw the dog. The dog ran off.", "What did the owl do?", "It flew away"
    for slug in ("reverse_conversion", "causal_inference"):
        assert all(part in told[slug] for part in (context, question, right))
    assert told["problem_restatement"] == f"Question:\nAnswer: {right}"
    assert told["sentence_ordering"].startswith("Sentence: The owl saw the dog.\nSentence: The dog ran off.\nSentence:")
    assert told["sentence_ordering"].count("Sentence:") == 4
    assert told["scenario_refinement"].endswith(f"Context: {context} But then\nQuestion: {question}")
    for slug in ("scenario_refinement", "negative_transformation"):
        assert right not in told[slug]
        assert {guide(ORIGINAL, slug, seed).fixed for seed in range(20)} != {guide(ORIGINAL, slug, 1).fixed}
    assert guide_seed(1, ORIGINAL, "critical_testing", 0) != guide_seed(1, ORIGINAL, "critical_testing", 1)


def fixed_lines(original: Item, slug: str) -> list[str]:
    return "".join(guide(original, slug, 1).fixed).split("\n")


def test_a_known_question_is_put_in_other_words() -> None:
    assert fixed_lines(FELT, "problem_restatement") == [
        "Context: Mia lost her kettle.",
        "Question: Once this has happened, what are the feelings of Mia most likely to be?",
        "Answer: Mia felt like this afterwards: sad.",
    ]
    least = fixed_lines(FELT, "negative_transformation")
    assert least[0] == "Question: Once this has happened, what are the feelings of Mia least likely to be?"
    assert least[1] in ("Answer: glad", "Answer: proud")
    assert fixed_lines(FELT, "reverse_conversion") == [
        "Context: Mia felt like this afterwards: sad.",
        "Question: In which of these situations is that most likely?",
        "Answer: Mia lost her kettle.",
        "Other:",
        "Other:",
    ]
    assert fixed_lines(FELT, "causal_inference")[1] == "Question: Which of these explains why?"
    others = replace(FELT, text="Mia lost her kettle.\nHow would Others feel as a result?")
    assert fixed_lines(others, "reverse_conversion")[0] == "Context: Others felt like this afterwards: sad."
    assert fixed_lines(others, "reverse_conversion")[-1] == "Other:"
    assert fixed_lines(others, "problem_restatement")[1].endswith("what are the feelings of others most likely to be?")


@pytest.mark.parametrize("wording", WORDINGS)
def test_settled_forms_keep_the_rules(wording: Wording) -> None:
    question = wording.pattern.replace("(.+)", "Mia").replace("(?:afterwards|as a result)", "afterwards").replace("\\", "")
    original = replace(FELT, text=f"Mia lost her kettle.\n{question}")
    for slug in ("problem_restatement", "negative_transformation"):
        made = parse_completion(original, slug, "".join(guide(original, slug, 5).fixed))
        assert not isinstance(made, ParseFault)
        assert rule_faults(made, original, slug) == []


def test_what_suits() -> None:
    def fits(original: Item) -> list[str]:
        return [slug for slug in TYPES if suits(original, slug)]

    story_alone = replace(FELT, text="Mia lost her kettle. She looked for it. It was gone.")
    every_but_ordering = [slug for slug in TYPES if slug != "sentence_ordering"]
    assert fits(FELT) == every_but_ordering
    why = replace(FELT, text="Mia lost her kettle.\nWhy did Mia do this?")
    assert fits(why) == [slug for slug in every_but_ordering if slug not in ("causal_inference", "scenario_refinement")]
    assert fits(BARE) == fits(ORIGINAL) == []
    assert fits(story_alone) == ["sentence_ordering"]
    assert story(FELT) == ["Mia lost her kettle."]
    made = parse_completion(story_alone, "sentence_ordering", "".join(guide(story_alone, "sentence_ordering", 1).fixed))
    assert not isinstance(made, ParseFault)
    assert passages(made)[made.answer or 0] == story_alone.text  # type: ignore[index]


def test_steering_by_hand(lm: LM) -> None:
    end, tokens = lm.tokenizer.eos_token_id, lambda text: lm.tokenizer(text)["input_ids"]
    (newline,), word = tokens("\n"), tokens("owl")[0]
    steer = Steering(lm, [Guide(("A:", "\nB:"), closed=True), Guide(("A:",))])
    first, second = tokens("A:"), tokens("\nB:")
    assert [steer(0, word) for _ in first] == first
    assert steer(0, word) == word
    assert [steer(0, newline), *(steer(0, word) for _ in second[1:])] == second
    assert steer(0, word) == end
    assert [steer(1, end) for _ in first] == first
    assert [steer(1, word), steer(1, newline)] == [word, end]
