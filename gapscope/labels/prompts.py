"""What a language model is asked about concepts, and how its replies are read.

Replies are plain text, because small models break any form: a label is the first line, passages are named by numbers, a
cluster is a line and a paragraph. What cannot be read is unusable and counted; nothing is guessed in its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gapscope.files import stable_hash
from gapscope.labels.passages import Passage, Reading
from gapscope.labels.published import clean

MAX_LABEL = 120
"""Characters of a label; a longer reply is an essay and unusable."""

MAX_PARAGRAPH = 1500

_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_LEAD = re.compile(r"^(?:label|name|description|explanation|answer|reply)\s*:\s*", re.IGNORECASE)


def explain_prompt(reading: Reading) -> str:
    """Ask for a label of a concept from contexts in which it fires and others in which it does not."""
    return "\n\n".join(
        [
            "A feature of a language model fires on some words and not on others. In the passages below, the words on which it fires "
            "are between << and >>.",
            _numbered([passage.marked for passage in reading.shown]),
            "In these passages it does not fire anywhere:",
            _numbered([passage.plain for passage in reading.others]),
            "What do the marked words, or the passages around them, have in common that the others lack? Reply with one phrase of at "
            "most ten words and nothing else.",
        ]
    )


def detect_prompt(label: str, passages: Sequence[Passage]) -> str:
    """Ask which of the passages a label fits."""
    return "\n\n".join(
        [
            f"A feature of a language model is described as: {label}",
            "On which of these passages does it fire?",
            _numbered([passage.plain for passage in passages]),
            "Reply with the numbers of the passages, separated by commas, or with the word none, and nothing else.",
        ]
    )


def cluster_prompt(kind: str, labels: Sequence[str]) -> str:
    """Ask for a name and a paragraph of a group of concepts that stand out together."""
    return "\n\n".join(
        [
            f"These features of a language model were grouped because they are alike. They are {kind}.",
            _numbered(labels),
            "Write a name for the group of at most six words on the first line. On the next line, say in two or three sentences what "
            "these features have in common and what questions that contain them ask for. Do not write anything else.",
        ]
    )


def mixed(concept: int, reading: Reading) -> tuple[list[Passage], set[int]]:
    """Held-out passages of both kinds in a fixed shuffled order, and the places (from 1) of the concept's own."""
    own = [(passage, True) for passage in reading.held_out]
    both = own + [(passage, False) for passage in reading.held_out_others]
    both.sort(key=lambda entry: (stable_hash("detect", concept, entry[0].item_id, entry[0].plain), entry[1]))
    return [passage for passage, _ in both], {place for place, (_, fires) in enumerate(both, start=1) if fires}


def read_label(reply: str) -> str | None:
    """The label in a reply: its first line without quotes and lead-in; None where there is none or it is too long."""
    lines = [line for line in (clean(line) for line in _THOUGHT.sub("", reply).splitlines()) if line]
    if not lines:
        return None
    label = _LEAD.sub("", lines[0]).strip("\"'`*“”‘’ ").rstrip(".")
    return label if 0 < len(label) <= MAX_LABEL else None


def read_numbers(reply: str, n: int) -> set[int] | None:
    """The passages that a reply names, 1 to n; None where it names others, or neither a number nor none."""
    text = _THOUGHT.sub("", reply).strip()
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:\s*[-–]\s*(\d+))?", text):
        if len(first) > 4 or len(last) > 4:
            return None
        found |= set(range(int(first), int(last or first) + 1))
    if found:
        return found if min(found) >= 1 and max(found) <= n else None
    return set() if re.search(r"\bnone\b", text, re.IGNORECASE) else None


def read_cluster(reply: str) -> tuple[str, str] | None:
    """Name and paragraph of a cluster; the paragraph may be empty. None where there is no usable name."""
    text = _THOUGHT.sub("", reply).strip()
    name = read_label(text)
    if name is None:
        return None
    paragraph = " ".join("".join(char if char.isprintable() else " " for char in text.partition("\n")[2]).split())
    return name, _LEAD.sub("", paragraph)[:MAX_PARAGRAPH]


def balanced_accuracy(named: set[int], own: set[int], n: int) -> float:
    """Mean of the share of the concept's own passages that are named and the share of the others that are not."""
    others = set(range(1, n + 1)) - own
    return (len(named & own) / len(own) + len(others - named) / len(others)) / 2


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{place}. {clean(text)}" for place, text in enumerate(texts, start=1))
