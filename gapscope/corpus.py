"""A corpus of plain documents, without repeats and disjoint from the questions of the suite.

Disjoint means that no document shares a run of ``overlap_words`` words with a row of any benchmark (the 13-gram rule of
Brown et al. 2020, appendix C), nor holds a shorter question whole, down to eight words. All usable rows count, sampled or not, so
that another limit changes no document. Runs of words are compared by a 64-bit polynomial hash, in numpy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from gapscope.benchmarks import matching_files
from gapscope.benchmarks.question import UnusableRowError, as_text, field_at, has_field, normalised, without
from gapscope.benchmarks.reading import read_rows
from gapscope.errors import InputError
from gapscope.items import Item
from gapscope.params_data import Corpus, CorpusFile
from gapscope.progress import track

SHORTEST_RUN = 8
"""Fewest words for which a shared text is taken as more than chance."""

WORD = re.compile(r"\w+")
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Documents:
    """The corpus, and what was left out of it.

    Attributes:
        texts: document by id, in order of id; an id is a hash of the text, so that this order is a shuffled one.
        n_rows: rows read.
        dropped: rows left out, by reason.
    """

    texts: dict[str, str]
    n_rows: int
    dropped: dict[str, int]


def build_corpus(corpus: Corpus, directory: Path, items: Iterable[Item]) -> Documents:
    """Read the corpus's documents, drop repeats, short ones and those that share text with the items or with ``apart_from``.

    Raises:
        InputError: a file is absent or damaged, no row has the named column, or nothing is left.
    """
    documents: dict[str, str] = {}
    dropped = {"duplicate": 0, "short": 0, "shared_with_items": 0, "over_limit": 0}
    n_rows = 0
    others = _texts(corpus.apart_from, directory)
    index = OverlapIndex(corpus.overlap_words, chain((item.text for item in items), others))
    for text in _texts(corpus.files, directory):
        n_rows += 1
        key = hashlib.sha256(normalised(text).encode()).hexdigest()[:16]
        words = len(WORD.findall(text))
        if key in documents:
            dropped["duplicate"] += 1
            # Of texts that differ in case or spacing only, the same one stays whatever the order of the rows.
            documents[key] = min(text, documents[key])
        elif words < corpus.min_words:
            dropped["short"] += 1
        elif index.shares_text(text):
            dropped["shared_with_items"] += 1
        else:
            documents[key] = text
    kept = sorted(documents)[: corpus.max_documents]
    dropped["over_limit"] = len(documents) - len(kept)
    if not kept:
        raise InputError("no document is left for the corpus", file=directory, field="corpus", fix="name other files")
    return Documents({key: documents[key] for key in kept}, n_rows, {reason: n for reason, n in dropped.items() if n})


def _texts(files: list[CorpusFile], directory: Path) -> Iterator[str]:
    for entry in files:
        present = False
        for file in matching_files(directory, [entry.file]):
            for _line, row in track(read_rows(file), f"corpus: {entry.file}", unit="row"):
                present = present or has_field(row, entry.column)
                try:
                    yield without(as_text(field_at(row, entry.column)), entry.remove)
                except UnusableRowError:
                    yield ""  # counted as short: it holds no text
        if not present:
            raise InputError("no row has this column", file=directory / entry.file, field=entry.column)


class OverlapIndex:
    """Runs of words of some texts, to ask of other texts whether they share one.

    Args:
        run: length of a run that may not be shared, in words.
        texts: those whose runs count; one shorter than ``run`` counts whole, if it has eight words or more.
    """

    def __init__(self, run: int, texts: Iterable[str]) -> None:
        self._ids: dict[str, int] = {}
        by_length: dict[int, list[np.ndarray]] = {}
        for text in texts:
            words = self._numbers(text, grow=True)
            length = min(run, len(words))
            if length >= SHORTEST_RUN:
                by_length.setdefault(length, []).append(_run_hashes(words, length))
        self._hashes = {length: np.unique(np.concatenate(parts)) for length, parts in sorted(by_length.items())}

    def shares_text(self, text: str) -> bool:
        """Whether the text holds a run of the indexed ones."""
        words = self._numbers(text, grow=False)
        return any(len(words) >= length and _any_in(_run_hashes(words, length), known) for length, known in self._hashes.items())

    def _numbers(self, text: str, *, grow: bool) -> np.ndarray:
        words = WORD.findall(normalised(text))
        if grow:
            return np.array([self._ids.setdefault(word, len(self._ids) + 1) for word in words], dtype=np.uint64)
        # 0 is a word that no indexed text has, so that a run over it matches nothing but by a hash collision (p ~ 1e-12).
        return np.array([self._ids.get(word, 0) for word in words], dtype=np.uint64)


def _any_in(values: np.ndarray, ordered: np.ndarray) -> bool:
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return bool((ordered[places] == values).any())


def _run_hashes(words: np.ndarray, length: int) -> np.ndarray:
    """One hash for each run of ``length`` neighbours, polynomial in the words' numbers modulo 2^64."""
    hashes = np.zeros(len(words) - length + 1, dtype=np.uint64)
    for offset in range(length):
        hashes = hashes * MULTIPLIER + words[offset : len(words) - length + 1 + offset]
    return hashes
