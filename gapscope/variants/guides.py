"""What a completion's form already settles: the labels, and what is taken over from the original and not invented.

A small model writes a good line more often than a well-formed set of lines. So its writing is guided: at the start and at
the end of every line the next fixed text is put in, and the model goes on from there. What is fixed, by type:

- problem_restatement: where the original has a context, the frame in which it and the question are told; and how the
  right answer begins, so that it is said at more length.
- reverse_conversion: that the answer to the original's question is told; which situation it fits is asked, and the
  original's context is the one. Invented are the other situations.
- causal_inference: what explains that answer is asked, and the original's context does. Invented are the other reasons.
- sentence_ordering: four labels; the first sentences are those of the original's context, two at most.
- scenario_refinement: the answer, one of the original's wrong choices, and the original's question.
- negative_transformation: how the question begins, and the answer, one of the original's wrong choices.
- critical_testing: everything; whether "none of the above" is right is drawn.

Without a context to take over, reverse_conversion has its labels only, and causal_inference a question that begins with
"Why" too.
What is drawn comes from the seed and the item alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.lm import LM
from gapscope.variants.generator_prompts import NOTA_RIGHT, NOTA_WRONG
from gapscope.variants.stems import sentences, split_stem
from gapscope.variants.types import gold

N_SENTENCES, N_TAKEN = 4, 2
REPLY = "Which is the best reply, when this is the case?"
FITS = "Which of these situations does that answer fit?"
LEAST = "Which of these is the least likely"


@dataclass(frozen=True)
class Guide:
    """Fixed texts in order. After each the model writes to the end of the line, but for the last one where it is ``closed``."""

    fixed: tuple[str, ...]
    closed: bool = False


def guide(original: Item, slug: str, seed: int) -> Guide:
    """The guide of a completion; every line that :func:`gapscope.variants.generator_prompts.parse_completion` needs is in it."""
    rng = random.Random(seed)
    context, question = map(_line, split_stem(original.text))
    right = _line(gold(original))
    wrong = _line(rng.choice([choice for index, choice in enumerate(original.choices) if index != original.answer]))
    if slug == "problem_restatement":
        told = f'Context: Somebody wants to know: "{question}"\nQuestion: {REPLY} {context}\nAnswer: {right}, in other words'
        return Guide((told,) if context else ("Question:", f"\nAnswer: {right}"))
    if slug == "reverse_conversion":
        told = f'Context: The answer to "{question}" is "{right}".\nQuestion: {FITS}\nAnswer: {context}\nOther:'
        return Guide((told, "\nOther:") if context else ("Context:", "\nQuestion:", "\nAnswer:", "\nOther:", "\nOther:"))
    if slug == "causal_inference":
        asked = f'Question: What explains that the answer to "{question}" is "{right}"?\nAnswer: {context}\nOther:'
        return Guide((asked, "\nOther:") if context else ("Context:", "\nQuestion: Why", "\nAnswer:", "\nOther:", "\nOther:"))
    if slug == "sentence_ordering":
        taken = sentences(context)[:N_TAKEN] if context else []
        start = "".join(f"Sentence: {sentence}\n" for sentence in taken) + "Sentence:"
        return Guide((start, *(["\nSentence:"] * (N_SENTENCES - 1 - len(taken)))))
    if slug == "scenario_refinement":
        return Guide((f"Answer: {wrong}\nContext:", f"\nQuestion: {question}"), closed=True)
    if slug == "negative_transformation":
        return Guide((f"Question: {LEAST}", f"\nAnswer: {wrong}"), closed=True)
    return Guide((f"Answer: {rng.choice((NOTA_RIGHT, NOTA_WRONG))}",), closed=True)


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
