"""What a fine-tuned verifier reads and writes.

ERA asks about each dimension of the rubric by itself and is answered yes or no; IRA writes the three dimensions and the
verdict in one completion (the two forms of SAGE, arXiv 2605.12022; the wording is ours, the paper's was not available).
Both begin with the same description of the pair, so that it is read once for all of a pair's questions.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapscope.items import Item
from gapscope.variants.seeds import DIMENSIONS
from gapscope.variants.types import gold

YES, NO = " yes", " no"
QUESTIONS = {
    "tc": "Does the new question have the form that is asked for, and does it test the same knowledge?",
    "lc": "Is the answer that is marked in the new question right?",
    "au": "Does the new question have exactly one right answer?",
}
FIELDS = {"tc": "form", "lc": "answer", "au": "single", "valid": "valid"}
"""The names of the dimensions in IRA's completion."""


@dataclass(frozen=True)
class Pair:
    """A variant to be judged: the item, the original that it was made from, and the type that it claims to be."""

    variant: Item
    original: Item
    type: str


def describe(pair: Pair) -> str:
    """The pair as text, up to where a question about it can begin; short, since every training step reads it."""
    original, variant = pair.original, pair.variant
    choices = "\n".join(f"- {choice}" for choice in variant.choices)
    return (
        f"Question: {original.text}\nRight answer: {gold(original)}\n\n"
        f"New question ({pair.type.replace('_', ' ')}): {variant.text}\n{choices}\nMarked answer: {gold(variant)}\n\n"
    )


def era_prompt(pair: Pair, dimension: str) -> str:
    """The prompt about one dimension, which ``YES`` or ``NO`` completes."""
    return f"{describe(pair)}{QUESTIONS[dimension]}\nAnswer:"


def era_completion(verdict: dict[str, bool], dimension: str) -> str:
    """What ERA is to write."""
    return YES if verdict[dimension] else NO


def ira_prompt(pair: Pair) -> str:
    """The prompt that :func:`ira_completion` completes."""
    return f"{describe(pair)}Verdict:"


def ira_completion(verdict: dict[str, bool]) -> str:
    """What IRA is to write: " form yes, answer no, single yes, valid no"."""
    found = {**{name: verdict[name] for name in DIMENSIONS}, "valid": all(verdict[name] for name in DIMENSIONS)}
    return " " + ", ".join(f"{FIELDS[name]}{YES if found[name] else NO}" for name in FIELDS)


def era_probes(pair: Pair) -> tuple[str, list[str]]:
    """A context and two continuations a dimension, yes then no: their log-probabilities differ by the answer alone."""
    return describe(pair).rstrip(), [f"{QUESTIONS[name]}\nAnswer:{answer}" for name in DIMENSIONS for answer in (YES, NO)]


def ira_probes(pair: Pair) -> tuple[str, list[str]]:
    """A context and two continuations a field, yes then no, each after the fields before it were answered yes."""
    probes, before = [], ""
    for field in FIELDS.values():
        probes += [f"{before}{field}{answer}" for answer in (YES, NO)]
        before += f"{field}{YES}, "
    return f"{describe(pair)}Verdict:", probes
