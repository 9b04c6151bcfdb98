"""How a free-form answer becomes a score: exact match, number match, several references, and preferences between two sides.

A policy compares a reply with what the item's gold says (:func:`references_of`); with several references, agreeing with
any of them is right. Expected scores of a blind guess: 0 for a free-form answer, which has no fixed set to guess from,
one over the number of choices for a choice, and :data:`BATTLE_CHANCE` for a battle.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from gapscope.benchmarks.question import normalised
from gapscope.items import Item

Policy = Literal["exact", "number"]

BATTLE_CHANCE = 0.5
"""A blind preference between two sides, ties counted half, is right half the time."""

AROUND = " \t\n.,;:!?\"'`*_()[]{}«»“”‘’"
NUMBER = re.compile(r"(?<![\w.])[-+]?[$€£]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s*/\s*\d[\d,]*)?")
MARKS = (
    re.compile(r"####\s*(.+)"),  # the form of GSM8K's own solutions
    re.compile(r"\\boxed\s*\{([^{}]*)\}"),  # the form of mathematical papers
    re.compile(r"\banswer\s*(?:is|:|=)\s*(.+)", re.IGNORECASE),
)


def references_of(item: Item) -> tuple[str, ...]:
    """Every text that answers an item: its gold choice, or its target and the further ones in ``meta.references``."""
    if item.choices:
        return () if item.answer is None else (item.choices[item.answer],)
    further = item.meta.get("references", [])
    texts = (item.target, *(further if isinstance(further, list) else []))
    return tuple(dict.fromkeys(str(text) for text in texts if text is not None and str(text).strip()))


def apply_policy(policy: Policy, reply: str, references: Iterable[str]) -> float:
    """1 where the reply agrees with any of the references, else 0."""
    agrees = exact_match if policy == "exact" else number_match
    return float(any(agrees(reply, reference) for reference in references))


def exact_match(reply: str, reference: str) -> bool:
    """Whether two texts are the same but for case, white space, compatibility forms and marks around them."""
    return normalised(reply.strip(AROUND)) == normalised(reference.strip(AROUND))


def number_match(reply: str, reference: str) -> bool:
    """Whether two texts give the same number, exactly: 1,000.0 is 1000 and 0.5 is 1/2, and 0.33 is not 1/3."""
    number = extract_number(reference)
    return number is not None and extract_number(reply) == number


def extract_number(text: str) -> Fraction | None:
    """The number that a solution ends with, or None where there is none.

    It is the first number after the last mark of an answer, tried in this order: ``####``, ``\\boxed{}``, "answer is". Without a
    mark it is the last number of the text. Signs of currency and per cent, and commas between digits, mean nothing.
    """
    text = unicodedata.normalize("NFKC", text).replace("−", "-")
    for mark in MARKS:
        marked = mark.findall(text)
        found = NUMBER.findall(marked[-1]) if marked else []
        if found:
            return _number(found[0])
    found = NUMBER.findall(text)
    return _number(found[-1]) if found else None


def _number(text: str) -> Fraction | None:
    try:
        above, _slash, below = re.sub(r"[,$€£\s]", "", text).partition("/")
        return Fraction(above) / Fraction(below or 1)
    except (ValueError, ZeroDivisionError):
        return None


def battle_score(winner: str, side: str, other: str) -> float | None:
    """The score of one side of a battle: 1 won, 0.5 tied, 0 lost; None where the winner is neither side nor a tie.

    ``winner`` names a side, or says that there is none ("tie", "both_bad", ...).
    """
    if winner == side:
        return 1.0
    if winner == other:
        return 0.0
    return 0.5 if re.sub(r"[\W_]+", "", winner.casefold()) in TIES else None


TIES = {"tie", "tiebothbad", "bothbad", "bothgood", "draw", "equal"}
