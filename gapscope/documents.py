"""The corpus as tokens: its three parts, and the windows that are read of each.

A document belongs to one part, by a hash of its text: SAE training, the training's held-out metrics, or the reference that
coverage compares a benchmark with. So no text is in two of them, and adding documents moves none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gapscope.errors import InputError
from gapscope.files import read_jsonl, stable_hash
from gapscope.lm import encode_text

Part = Literal["train", "heldout", "reference"]

SHARES: dict[Part, float] = {"train": 0.5, "heldout": 0.3, "reference": 0.2}
SHORTEST_WINDOW = 8
"""Windows with fewer tokens, mostly the ends of documents, are not read."""


@dataclass(frozen=True)
class Window:
    """Neighbouring tokens of a document.

    Attributes:
        document: its place in the list of documents.
        start: the document's token that is the first one here, a begin-of-text token aside.
        ids: the tokens, a begin-of-text token in front if asked for.
    """

    document: int
    start: int
    ids: list[int]


def read_documents(path: Path) -> dict[str, str]:
    """Id by text of a JSON-lines corpus with a string field ``text``: no exact repeats, in order of a hash of the text.

    The id is the field ``id``, or where there is none a hash of the text.

    Raises:
        InputError: the file is damaged, a row has no text, or there is none.
    """
    texts: dict[str, str] = {}
    for line, row in read_jsonl(path):
        if not isinstance(row.get("text"), str):
            raise InputError("must be a string", file=path, line=line, field="text")
        name = str(row["id"]) if isinstance(row.get("id"), (str, int)) else f"{stable_hash('corpus', row['text']):016x}"
        # Of repeats the same one stays, whatever the order of the rows.
        texts[row["text"]] = min(texts.get(row["text"], name), name)
    if not texts:
        raise InputError("holds no document", file=path)
    return {text: texts[text] for text in sorted(texts, key=lambda text: (stable_hash("corpus", text), text))}


def part_of(text: str) -> Part:
    """The part of the corpus that a document belongs to."""
    place = stable_hash("corpus-part", text) / 2**64
    for part, share in SHARES.items():
        place -= share
        if place < 0:
            return part
    return "reference"


def token_windows(tokenizer: Any, documents: Sequence[str], part: Part, *, context: int, prepend_bos: bool, budget: int) -> list[Window]:
    """Windows of at most ``context`` tokens of one part's documents, ``budget`` usable tokens in all or as many as there are.

    Every document's first window comes before any document's second, so that a budget spreads over as many documents as it
    can. Each window begins with the begin-of-text token if asked for. Its first position is never usable, so a window of n
    tokens counts n - 1; the last window is cut to meet the budget.
    """
    windows: list[Window] = []
    left = budget
    front = [encode_bos(tokenizer)] if prepend_bos else []
    places = [place for place, text in enumerate(documents) if part_of(text) == part]
    for document, start, piece in _pieces(tokenizer, documents, places, context - len(front)):
        windows.append(Window(document, start, (front + piece)[: left + 1]))
        left -= len(windows[-1].ids) - 1
        if left <= 0:
            break
    return windows


def encode_bos(tokenizer: Any) -> int:
    """The id of the begin-of-text token, by the way of an empty text."""
    return encode_text(tokenizer, "", prepend_bos=True).ids[0]


def usable_tokens(windows: list[list[int]]) -> int:
    """How many tokens of the windows may enter a statistic: all but each one's first."""
    return sum(len(window) - 1 for window in windows)


def _pieces(tokenizer: Any, documents: Sequence[str], places: list[int], size: int) -> Iterator[tuple[int, int, list[int]]]:
    """Pieces of the documents at some places: the place, the token of the document that begins the piece, and its tokens."""
    rest: list[tuple[int, int, list[int]]] = []
    for place in places:
        ids = encode_text(tokenizer, documents[place], prepend_bos=False).ids
        if len(ids) >= SHORTEST_WINDOW:
            yield place, 0, ids[:size]
            rest.append((place, size, ids[size:]))
    while rest:
        rest = [left for left in rest if len(left[2]) >= SHORTEST_WINDOW]
        for place, start, ids in rest:
            yield place, start, ids[:size]
        rest = [(place, start + size, ids[size:]) for place, start, ids in rest]
