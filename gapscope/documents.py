"""The corpus as tokens: its three parts, and the windows that are read of each.

A document belongs to one part, by a hash of its text: SAE training, the training's held-out metrics, or the reference that
coverage compares a benchmark with. So no text is in two of them, and adding documents moves none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from gapscope.errors import InputError
from gapscope.files import read_jsonl, stable_hash
from gapscope.lm import encode_text

Part = Literal["train", "heldout", "reference"]

SHARES: dict[Part, float] = {"train": 0.5, "heldout": 0.3, "reference": 0.2}
SHORTEST_WINDOW = 8
"""Windows with fewer tokens, mostly the ends of documents, are not read."""


def read_documents(path: Path) -> list[str]:
    """The texts of a JSON-lines corpus with a string field ``text``, without exact repeats, in order of a hash of the text.

    Raises:
        InputError: the file is damaged, a row has no text, or there is none.
    """
    texts: set[str] = set()
    for line, row in read_jsonl(path):
        if not isinstance(row.get("text"), str):
            raise InputError("must be a string", file=path, line=line, field="text")
        texts.add(row["text"])
    if not texts:
        raise InputError("holds no document", file=path)
    return sorted(texts, key=lambda text: (stable_hash("corpus", text), text))


def part_of(text: str) -> Part:
    """The part of the corpus that a document belongs to."""
    place = stable_hash("corpus-part", text) / 2**64
    for part, share in SHARES.items():
        place -= share
        if place < 0:
            return part
    return "reference"


def token_windows(tokenizer: Any, documents: list[str], part: Part, *, context: int, prepend_bos: bool, budget: int) -> list[list[int]]:
    """Windows of at most ``context`` tokens of one part's documents, ``budget`` usable tokens in all or as many as there are.

    Every document's first window comes before any document's second, so that a budget spreads over as many documents as it
    can. Each window begins with the begin-of-text token if asked for. Its first position is never usable, so a window of n
    tokens counts n - 1; the last window is cut to meet the budget.
    """
    windows: list[list[int]] = []
    left = budget
    start = [encode_bos(tokenizer)] if prepend_bos else []
    for piece in _pieces(tokenizer, [text for text in documents if part_of(text) == part], context - len(start)):
        window = start + piece
        windows.append(window[: left + 1])
        left -= len(windows[-1]) - 1
        if left <= 0:
            break
    return windows


def encode_bos(tokenizer: Any) -> int:
    """The id of the begin-of-text token, by the way of an empty text."""
    return encode_text(tokenizer, "", prepend_bos=True).ids[0]


def usable_tokens(windows: list[list[int]]) -> int:
    """How many tokens of the windows may enter a statistic: all but each one's first."""
    return sum(len(window) - 1 for window in windows)


def _pieces(tokenizer: Any, documents: list[str], size: int) -> Iterator[list[int]]:
    rest: list[list[int]] = []
    for text in documents:
        ids = encode_text(tokenizer, text, prepend_bos=False).ids
        if len(ids) >= SHORTEST_WINDOW:
            yield ids[:size]
            rest.append(ids[size:])
    while rest:
        rest = [ids for ids in rest if len(ids) >= SHORTEST_WINDOW]
        for ids in rest:
            yield ids[:size]
        rest = [ids[size:] for ids in rest]
