"""The parts of a stem: context and question, and the sentences that an ordering variant asks to put in order."""

from __future__ import annotations

import itertools
import re

import numpy as np

from gapscope.items import Item
from gapscope.variants.types import LABEL

SENTENCE_END = re.compile(r"(?<=[.!?\"”])\s+(?=[\"“A-Z(])")
FIRST_SENTENCE = re.compile(r"(.+?[.!?][\"”]?)(?:\s+[A-Z(].*)?", re.DOTALL)
MAX_SENTENCES = 9


def split_stem(text: str) -> tuple[str, str]:
    """Context and question of a stem: the last line, or else the last sentence, is the question."""
    whole = text.strip()
    if "\n" in whole:
        context, question = whole.rsplit("\n", 1)
        return context.strip(), question.strip()
    parts = SENTENCE_END.split(whole)
    return " ".join(parts[:-1]), parts[-1]


def sentences(text: str) -> list[str]:
    """The sentences of a text, roughly: cut after an end mark that a capital letter or a quotation mark follows."""
    return [part for part in SENTENCE_END.split(text.strip()) if part]


def labelled_sentences(text: str) -> dict[int, str]:
    """Sentences labelled (1), (2), ... in a stem by their labels; empty where these are not 1..n with n from 3 to 9.

    What follows the last sentence, on its own line or as another sentence, is the question and left out.
    """
    labels = [int(label) for label in LABEL.findall(text)]
    if sorted(labels) != list(range(1, len(labels) + 1)) or not 3 <= len(labels) <= MAX_SENTENCES:
        return {}
    parts = LABEL.split(text)[2::2]
    last = parts[-1].strip()
    found = FIRST_SENTENCE.fullmatch(last.split("\n")[0])
    parts[-1] = found.group(1) if found else last.split("\n")[0]
    return {label: " ".join(part.split()) for label, part in zip(labels, parts, strict=True)}


def orders(item: Item) -> list[tuple[int, ...]] | None:
    """The order that each choice names, or None unless every choice is a permutation of the stem's labels."""
    found = [tuple(int(digit) for digit in re.findall(r"\d+", choice)) for choice in item.choices]
    labels = sorted(labelled_sentences(item.text))
    return found if labels and all(sorted(order) == labels for order in found) else None


def passages(item: Item) -> list[str] | None:
    """The passage that each choice's order gives; None where :func:`orders` is."""
    named = orders(item)
    if named is None:
        return None
    parts = labelled_sentences(item.text)
    return [" ".join(parts[label] for label in order) for order in named]


def swaps(order: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Neighbours to exchange to make one permutation of the other (Kendall's distance)."""
    place = {label: rank for rank, label in enumerate(other)}
    ranks = [place[label] for label in order]
    return sum(first > second for first, second in itertools.combinations(ranks, 2))


def agreement(positions: list[float]) -> float:
    """Correlation of where sentences stand in a story with the order they are told in; 0 where all stand in one place."""
    if len(set(positions)) < 2:
        return 0.0
    return float(np.corrcoef(positions, np.arange(len(positions)))[0, 1])
