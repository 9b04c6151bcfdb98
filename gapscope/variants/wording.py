"""Small measures of wording: what counts as the same text, as a copy, and as a shared word."""

from __future__ import annotations

import difflib
import re

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
COPY_RATIO = 0.9
_STOP = (
    "a an and are as at be been but by did do does for from had has have he her his i in is it its likely most next no not of on or she so"
    " than that the their them they this to was were what when where which who will with would you your"
)
STOP_WORDS = frozenset(_STOP.split())


def normalise(text: str) -> str:
    """Lower case, single spaces, no punctuation at the ends."""
    return " ".join(text.lower().split()).strip(" .!?\"'")


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order."""
    return WORD.findall(text.lower())


def stem(word: str) -> str:
    """A crude English stem: enough to match "opens" with "opened"."""
    for ending in ("ing", "ied", "ies", "ed", "es", "s", "ly", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def content_words(text: str) -> set[str]:
    """Stems of the words that carry content."""
    return {stem(word) for word in words(text) if word not in STOP_WORDS}


def shared_share(text: str, other: str) -> float:
    """Share of the content words of ``text`` that ``other`` holds too; 0 where there are none."""
    mine = content_words(text)
    return len(mine & content_words(other)) / len(mine) if mine else 0.0


def is_copy(text: str, other: str) -> bool:
    """Whether two texts are the same but for a few words (difflib ratio over words of at least COPY_RATIO)."""
    return difflib.SequenceMatcher(None, words(text), words(other), autojunk=False).ratio() >= COPY_RATIO
