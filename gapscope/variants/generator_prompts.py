"""What a generator reads and writes, and how a variant is put together from it.

The prompt is the original (question, choices, right answer) and what its type asks for. The completion holds labelled
lines, and only what has to be invented; the parser assembles the rest, by rules that a reader can follow:

- problem_restatement: a new stem and the right answer in other words; the wrong choices are kept.
- reverse_conversion, causal_inference: a new stem, its answer, and one to three other choices.
- sentence_ordering: the sentences in their true order; the parser shuffles and labels them, adds a question and the
  true order among three other permutations.
- scenario_refinement: which of the wrong choices becomes right, and the stem that makes it so; the choices are kept.
- negative_transformation: a question for the least plausible and its answer; the original's context is kept unless
  another is written. The right answer joins as a plausible choice, and so do others that the completion names.
- critical_testing: whether "none of the above" is to be right; where it is, the right answer leaves the choices.

Choices are put in an order drawn from the variant's own text, so that the place of the gold says nothing.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import permutations

from gapscope.files import stable_hash
from gapscope.items import Item, item_faults
from gapscope.variants.stems import MAX_SENTENCES, labelled_sentences, split_stem
from gapscope.variants.types import LABEL, TYPES, gold, is_nota
from gapscope.variants.wording import normalise

NOTA_TEXT = "None of the above"
NOTA_RIGHT, NOTA_WRONG = "none of the above", "one of the choices"
ORDER_QUESTION = "What is the right order of these sentences?"
MAX_WRONG, MAX_PLAUSIBLE, MIN_SENTENCES = 2, 1, 3
"""Wrong choices, plausible choices and sentences that a completion is taught to write; more are understood."""
LINE = re.compile(r"(Context|Question|Answer|Other|Sentence): *(.*)")
FORMS = {
    "problem_restatement": "Context, Question, Answer",
    "reverse_conversion": "Context, Question, Answer, Other",
    "causal_inference": "Context, Question, Answer, Other",
    "sentence_ordering": "Sentence",
    "scenario_refinement": "Answer, Context, Question",
    "negative_transformation": "Context, Question, Answer, Other",
    "critical_testing": "Answer",
}
"""The labels of each type's lines, in the order in which they are written."""

KEEPS_CHOICES = ("problem_restatement", "scenario_refinement")
"""Types whose other choices are the original's, so that those which a completion names all the same are passed over."""


@dataclass(frozen=True)
class ParseFault:
    """Why a completion gives no variant."""

    reason: str


class _FaultError(Exception):
    """Carries the reason out of the assembly."""


def generator_prompt(original: Item, slug: str) -> str:
    """What a generator is given to write a variant of type ``slug``; ends where :func:`generator_completion` begins."""
    choices = "\n".join(f"- {choice}" for choice in original.choices)
    name = slug.replace("_", " ").capitalize()
    return f"Question: {original.text}\n{choices}\nRight answer: {gold(original)}\n\n{name}. {TYPES[slug].instruction}\n"


def generator_completion(variant: Item, original: Item, slug: str) -> str:
    """What a generator is to write to get a valid variant; :func:`parse_completion` puts the same knowledge together again.

    Of the choices that would have to be invented, the first few are taught: a small model writes few well.
    """
    context, question = split_stem(variant.text)
    stem = [("Context", context), ("Question", question)] if context else [("Question", question)]
    answer = ("Answer", gold(variant))
    others = [choice for index, choice in enumerate(variant.choices) if index != variant.answer]
    if slug == "problem_restatement":
        lines = [*stem, answer]
    elif slug in ("reverse_conversion", "causal_inference"):
        lines = [*stem, answer, *(("Other", choice) for choice in others[:MAX_WRONG])]
    elif slug == "sentence_ordering":
        parts = labelled_sentences(variant.text)
        lines = [("Sentence", parts[int(label)]) for label in re.findall(r"\d+", gold(variant))]
    elif slug == "scenario_refinement":
        lines = [answer, *stem]
    elif slug == "negative_transformation":
        invented = [choice for choice in others if normalise(choice) != normalise(gold(original))]
        kept = context == split_stem(original.text)[0]
        lines = [*(stem[-1:] if kept else stem), answer, *(("Other", choice) for choice in invented[:MAX_PLAUSIBLE])]
    else:
        lines = [("Answer", NOTA_RIGHT if is_nota(gold(variant)) else NOTA_WRONG)]
    return "\n".join(f"{label}: {' '.join(text.split())}" for label, text in lines)


def parse_completion(original: Item, slug: str, completion: str) -> Item | ParseFault:
    """The variant that a completion describes, or why there is none.

    It has the original's family, benchmark and kind, ``meta.type`` and ``meta.bloom``, and the id
    ``<original>-<type>``; whoever keeps several of one original gives them ids of their own.
    """
    try:
        text, choices, answer = _assemble(original, slug, _fields(slug, completion))
    except _FaultError as fault:
        return ParseFault(str(fault))
    meta = {"type": slug, "bloom": TYPES[slug].bloom}
    item = Item(f"{original.id}-{slug}", original.benchmark, original.family, text, choices, answer, kind=original.kind, meta=meta)
    faults = item_faults(item)
    return ParseFault(faults[0][1]) if faults else item


def _fields(slug: str, completion: str) -> dict[str, list[str]]:
    """The lines of a completion by label; raises where a line has no label, or one that the type does not know."""
    found: dict[str, list[str]] = {}
    for line in completion.strip().split("\n"):
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise _FaultError("a line has no label" if line.strip() else "a line is empty")
        label, value = match.group(1), " ".join(match.group(2).split())
        if label == "Other" and slug in KEEPS_CHOICES:
            continue
        if label not in FORMS[slug].split(", "):
            raise _FaultError(f"a line says {label}, which this type does not have")
        if not value:
            raise _FaultError(f"{label} is empty")
        found.setdefault(label, []).append(value)
    return found


def _one(fields: dict[str, list[str]], label: str) -> str:
    if len(fields.get(label, [])) != 1:
        raise _FaultError(f"needs one line {label}, has {len(fields.get(label, []))}")
    return fields[label][0]


def _stem(fields: dict[str, list[str]], kept: str) -> str:
    """Context and question, one below the other; where no context is written, ``kept`` stands in for it."""
    question, context = _one(fields, "Question"), _one(fields, "Context") if "Context" in fields else kept
    return f"{context}\n{question}" if context else question


def _assemble(original: Item, slug: str, fields: dict[str, list[str]]) -> tuple[str, tuple[str, ...], int]:
    """Stem, choices and place of the gold of a variant."""
    wrong = [choice for index, choice in enumerate(original.choices) if index != original.answer]
    if slug == "sentence_ordering":
        return _ordering(fields.get("Sentence", []))
    answer = _one(fields, "Answer")
    if slug == "critical_testing":
        return _critical(original, wrong, answer)
    text = _stem(fields, split_stem(original.text)[0] if slug == "negative_transformation" else "")
    others = fields.get("Other", [])
    if slug == "problem_restatement":
        others = wrong
    elif slug == "scenario_refinement":
        answer = _named(answer, wrong)
        others = [choice for choice in original.choices if choice != answer]
    elif slug == "negative_transformation":
        others = [gold(original), *(choice for choice in others if normalise(choice) != normalise(gold(original)))]
    if not 1 <= len(others) <= max(MAX_WRONG + 1, len(wrong)):
        raise _FaultError(f"{len(others)} choices beside the answer")
    return text, *_arranged(answer, others, text)


def _named(answer: str, wrong: list[str]) -> str:
    """The original's wrong choice that an answer names, as the original spells it."""
    for choice in wrong:
        if normalise(choice) == normalise(answer):
            return choice
    raise _FaultError("the answer is none of the original's wrong choices")


def _critical(original: Item, wrong: list[str], answer: str) -> tuple[str, tuple[str, ...], int]:
    if any(map(is_nota, original.choices)):
        raise _FaultError("the original has a 'none of the above' of its own")
    if normalise(answer) == NOTA_RIGHT:
        return original.text, (*wrong, NOTA_TEXT), len(wrong)
    if normalise(answer) != NOTA_WRONG:
        raise _FaultError("the answer is neither of the two that there are")
    return original.text, (*original.choices, NOTA_TEXT), original.answer or 0


def _ordering(told: list[str]) -> tuple[str, tuple[str, ...], int]:
    """A stem with shuffled, labelled sentences, and the true order among three other permutations."""
    if not MIN_SENTENCES <= len(told) <= MAX_SENTENCES:
        raise _FaultError(f"{len(told)} sentences, needed are {MIN_SENTENCES} to {MAX_SENTENCES}")
    if any(LABEL.search(sentence) for sentence in told):
        raise _FaultError("a sentence holds a label")
    rng = random.Random(stable_hash("ordering", *told))
    places = list(range(len(told)))
    while places == sorted(places):
        rng.shuffle(places)
    shown = [told[place] for place in places]
    order = tuple(places.index(place) + 1 for place in range(len(told)))
    text = " ".join(f"({label}) {sentence}" for label, sentence in enumerate(shown, start=1)) + f"\n{ORDER_QUESTION}"
    other = _other_orders(order, rng)
    return text, *_arranged(*(_spelt(order), [_spelt(each) for each in other]), text)


def _other_orders(order: tuple[int, ...], rng: random.Random) -> list[tuple[int, ...]]:
    """Three permutations that are not ``order``."""
    found: list[tuple[int, ...]] = []
    if len(order) == MIN_SENTENCES:
        return rng.sample([each for each in permutations(order) if each != order], 3)
    while len(found) < 3:
        each = tuple(rng.sample(order, len(order)))
        if each != order and each not in found:
            found.append(each)
    return found


def _spelt(order: tuple[int, ...]) -> str:
    return ", ".join(map(str, order))


def _arranged(answer: str, others: list[str], text: str) -> tuple[tuple[str, ...], int]:
    """The choices in an order drawn from their own text, and the place of the answer."""
    choices = sorted([answer, *others], key=lambda choice: (stable_hash("place", text, choice), choice))
    return tuple(choices), choices.index(answer)
