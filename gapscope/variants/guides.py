"""What a completion's form already settles: the labels, and what is taken over from the original and not invented.

A small model writes a good line more often than a well-formed set of lines, and a line that it need not write cannot be
wrong. So its writing is guided: at the start and at the end of every line the next fixed text is put in, and the model
goes on from there. For an original with a context and one of the questions in WORDINGS, by type:

- problem_restatement: everything. The context stays, the question is asked in other words, and the right answer becomes a
  statement (the verifier takes an answer in its old words for a copy, and so it is by the type's definition). That makes the
  gold choice the longest: the baselines of evaluate show it.
- negative_transformation: everything. Which choice is least likely is asked; the answer is one of the original's wrong choices.
- critical_testing: everything; whether "none of the above" is right is drawn.
- reverse_conversion: what came of it is told, and in which situation that is most likely is asked; the original's context
  is the one. Invented are the other situations.
- causal_inference: what came of it is told, and what explains it is asked; the original's context does. Invented are the
  other reasons. An original that itself asks for a reason does not suit.
- scenario_refinement: the answer, one of the original's wrong choices, the original's question, and its context, which goes
  on: "But then". Invented is what happens then. Only originals that ask for a feeling suit: of other questions, a small model
  hardly ever wrote what makes a wrong choice right.
- sentence_ordering: everything, for an original that tells a story of three to five sentences: these, in their order.

An original that does not suit a
type (:func:`suits`) is passed over for it as long as another does. Where it is used all the same, more is left to the
model: the labels, and of what is above only what the original has.
What is drawn comes from the seed and the item alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.lm import LM
from gapscope.variants.generator_prompts import MIN_SENTENCES, NOTA_RIGHT, NOTA_WRONG
from gapscope.variants.stems import sentences, split_stem
from gapscope.variants.types import gold

N_SENTENCES, N_TAKEN, MAX_TOLD = 4, 2, 5
"""Sentences of an ordering that the model goes on with, those taken over then, and most of a story that is told whole."""
FITS = "In which of these situations is that most likely?"
EXPLAINS = "Which of these explains why?"
LEAST = "Which of these is the least likely"


@dataclass(frozen=True)
class Wording:
    """Other ways to put a question about a person.

    Attributes:
        pattern: the question; its group is the person.
        again: the same question in other words.
        least: the question for the least likely choice.
        told: the question with its right answer, as a statement.
        about: what it asks for, where a type needs to know: a reason or a feeling.
    """

    pattern: str
    again: str
    least: str
    told: str
    about: Literal["", "reason", "feeling"] = ""


WORDINGS = (
    Wording(
        r"What will (.+) want to do next\?",
        "What is {who} most likely to want to do after this?",
        "What is {who} least likely to want to do after this?",
        "{who} wanted to do this next: {right}.",
    ),
    Wording(
        r"Why did (.+) do this\?",
        "What was the most likely reason for what {who} did?",
        "What was the least likely reason for what {who} did?",
        "{who} did something for this reason: {right}.",
        about="reason",
    ),
    Wording(
        r"How would you describe (.+)\?",
        "Which of these describes {who} best?",
        "Which of these is the least likely to describe {who}?",
        "{who} could be described like this: {right}.",
    ),
    Wording(
        r"How would (.+) feel (?:afterwards|as a result)\?",
        "Once this has happened, what are the feelings of {who} most likely to be?",
        "Once this has happened, what are the feelings of {who} least likely to be?",
        "{who} felt like this afterwards: {right}.",
        about="feeling",
    ),
    Wording(
        r"What does (.+) need to do before this\?",
        "Which of these must {who} most likely do first?",
        "Which of these is {who} least likely to need to do first?",
        "{who} needed to do this first: {right}.",
    ),
    Wording(
        r"What will happen to (.+)\?",
        "What is most likely to come next for {who}?",
        "What is least likely to come next for {who}?",
        "This came next for {who}: {right}.",
    ),
)
"""The questions of SocialIQA that ask most often."""


@dataclass(frozen=True)
class Guide:
    """Fixed texts in order. After each the model writes to the end of the line, but for the last one where it is ``closed``."""

    fixed: tuple[str, ...]
    closed: bool = False


@dataclass(frozen=True)
class Asked:
    """An original in parts, each on one line; ``wording`` is None where its question is not one that is known."""

    context: str
    question: str
    right: str
    wording: Wording | None
    who: str

    @staticmethod
    def of(original: Item) -> Asked:
        """The parts of an item."""
        context, question = map(_line, split_stem(original.text))
        for wording in WORDINGS:
            if match := re.fullmatch(wording.pattern, question):
                who = match.group(1).replace("Others", "others")
                return Asked(context, question, _line(gold(original)), wording, who)
        return Asked(context, question, _line(gold(original)), None, "")

    @property
    def told(self) -> str:
        """The right answer as a statement."""
        return self.put(self.wording.told) if self.wording else f'The answer to "{self.question}" is "{self.right}".'

    def put(self, form: str) -> str:
        """A form of words with the person and the right answer in it, and a capital first."""
        text = form.format(who=self.who, right=self.right.rstrip(" ."))
        return text[0].upper() + text[1:]


def story(original: Item) -> list[str]:
    """The sentences of an item's text, without a question that ends it."""
    parts = sentences(_line(original.text))
    return parts[:-1] if parts and parts[-1].endswith("?") else parts


def suits(original: Item, slug: str) -> bool:
    """Whether a type's form takes over all that it can from an item: see the top of this module."""
    if slug == "sentence_ordering":
        return MIN_SENTENCES <= len(story(original)) <= MAX_TOLD
    asked = Asked.of(original)
    if not asked.context or asked.wording is None:
        return False
    about = asked.wording.about
    return about == "feeling" if slug == "scenario_refinement" else not (slug == "causal_inference" and about == "reason")


def guide(original: Item, slug: str, seed: int) -> Guide:
    """The guide of a completion; every line that :func:`gapscope.variants.generator_prompts.parse_completion` needs is in it."""
    rng, asked = random.Random(seed), Asked.of(original)
    wrong = _line(rng.choice([choice for index, choice in enumerate(original.choices) if index != original.answer]))
    if slug == "problem_restatement":
        return _restated(asked)
    if slug in ("reverse_conversion", "causal_inference"):
        return _turned(asked, slug)
    if slug == "sentence_ordering":
        return _ordered(original, asked)
    if slug == "scenario_refinement":
        start = f" {asked.context} But then" if asked.context else ""
        return Guide((f"Answer: {wrong}\nContext:{start}", f"\nQuestion: {asked.question}"), closed=True)
    if slug == "negative_transformation":
        if asked.wording:
            return Guide((f"Question: {asked.put(asked.wording.least)}\nAnswer: {wrong}",), closed=True)
        return Guide((f"Question: {LEAST}", f"\nAnswer: {wrong}"), closed=True)
    return Guide((f"Answer: {rng.choice((NOTA_RIGHT, NOTA_WRONG))}",), closed=True)


def _restated(asked: Asked) -> Guide:
    if asked.wording and asked.context:
        return Guide((f"Context: {asked.context}\nQuestion: {asked.put(asked.wording.again)}\nAnswer: {asked.told}",), closed=True)
    return Guide(("Question:", f"\nAnswer: {asked.right}"), closed=True)


def _turned(asked: Asked, slug: str) -> Guide:
    """Situations or reasons: from the outcome back to what the original tells."""
    if asked.context:
        question, other = FITS if slug == "reverse_conversion" else EXPLAINS, "\nOther:"
        return Guide((f"Context: {asked.told}\nQuestion: {question}\nAnswer: {asked.context}{other}", other))
    question = "\nQuestion:" if slug == "reverse_conversion" else "\nQuestion: Why"
    return Guide(("Context:", question, "\nAnswer:", "\nOther:", "\nOther:"))


def _ordered(original: Item, asked: Asked) -> Guide:
    if suits(original, "sentence_ordering"):
        return Guide(("\n".join(f"Sentence: {sentence}" for sentence in story(original)),), closed=True)
    taken = sentences(asked.context)[:N_TAKEN] if asked.context else []
    start = "".join(f"Sentence: {sentence}\n" for sentence in taken) + "Sentence:"
    return Guide((start, *(["\nSentence:"] * (N_SENTENCES - 1 - len(taken)))))


def guide_seed(seed: int, item: Item, slug: str, number: int) -> int:
    """The seed of what is drawn for an item, a type and a round."""
    return stable_hash(seed, "guide", item.id, slug, number)


def _line(text: str) -> str:
    return " ".join(text.split())


class Steering:
    """Puts the fixed texts of every row's guide into what a sampler draws."""

    def __init__(self, lm: LM, guides: Sequence[Guide]) -> None:
        self._tokenizer, self._end = lm.tokenizer, int(lm.tokenizer.eos_token_id)
        self._guides, self._next = guides, [0] * len(guides)
        self._queues: list[list[int]] = [[] for _ in guides]
        self._breaks: dict[int, bool] = {}
        for row in range(len(guides)):
            self._queue(row)

    def __call__(self, row: int, token: int) -> int:
        """The token that a row gets in place of the one drawn: that one inside a line, else the next of the fixed text."""
        if self._queues[row]:
            return self._queues[row].pop(0)
        done = self._next[row] == len(self._guides[row].fixed)
        if done and self._guides[row].closed:
            return self._end
        if token != self._end and not self._ends_line(token):
            return token
        if done:
            return self._end
        self._queue(row)
        return self._queues[row].pop(0)

    def _queue(self, row: int) -> None:
        text = self._guides[row].fixed[self._next[row]]
        self._next[row] += 1
        self._queues[row] = [int(i) for i in self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]]

    def _ends_line(self, token: int) -> bool:
        if token not in self._breaks:
            self._breaks[token] = "\n" in self._tokenizer.decode([token])
        return self._breaks[token]
