"""Cut text into the words that labels are made of, for scripts with and without spaces, punctuation included."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

NEWLINE = "\\n"
"""How the end of a line is written in a label: a concept may well fire on nothing else."""

# Scripts written without spaces: kana, Han, Thai, Lao, Burmese, Khmer. Their runs are cut into overlapping pairs of characters.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
# Vowel signs and other marks belong to their word, although Python's \w leaves most of them out.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d"
_LETTER = rf"(?:(?![{_UNSPACED}_])[\w{_MARKS}])"
_WORD = re.compile(rf"(?P<run>[{_UNSPACED}]+)|{_LETTER}+(?:['’]{_LETTER}+)*|\n|[^\w\s]|_")


def find_words(text: str) -> list[tuple[str, int, int]]:
    """Words of a text with the characters they span: (word, start, end).

    A word is a run of letters and digits (case folded, apostrophes inside kept), one punctuation mark, a line's end, or,
    in a script without spaces, a pair of neighbouring characters.
    """
    found: list[tuple[str, int, int]] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        if match["run"] and end - start > 1:
            found += [(text[place : place + 2], place, place + 2) for place in range(start, end - 1)]
        else:
            word = NEWLINE if match[0] == "\n" else match[0].casefold().replace("’", "'")
            found.append((word, start, end))
    return found


def weigh_words(pieces: Sequence[str], activations: Sequence[float]) -> dict[str, float]:
    """The words of a window, each with the greatest activation of a piece that it touches, over all its occurrences."""
    ends = list(accumulate(len(piece) for piece in pieces))
    weights: dict[str, float] = {}
    for word, start, end in find_words("".join(pieces)):
        first, last = bisect_right(ends, start), bisect_left(ends, end)
        weights[word] = max(weights.get(word, 0.0), *activations[first : last + 1])
    return weights
