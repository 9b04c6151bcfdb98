"""What a concept seems to be about: keywords from the contexts in which it fires, and how well they detect it.

Keywords are the floor of the labels: they need no model and come out the same on every run. Each label carries a
detection score, so that a label which merely lists words around a concept can be told from one that says when it fires.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from gapscope.artifacts import CONTEXTS
from gapscope.competency.words import find_words, weigh_words
from gapscope.errors import InputError
from gapscope.files import stable_hash

KEYWORDS, NO_LABEL = "keywords", "none"
"""Values of ``label_source``."""

NO_CONTEXTS = "(no contexts)"
"""The label of a concept that has none."""

SURROUNDINGS = 0.1
"""Weight of a word on which the concept does not fire; one at the concept's peak weighs 1."""

BACKGROUND_WINDOWS = 50_000
"""Windows, evenly spaced over all, from which it is learnt how common a word is."""

NEGATIVES = 200
"""Windows of other concepts against which a label is scored."""

HELD_OUT_SHARE = 3
"""One in three of a concept's items is kept out of its label, to score it."""

MIN_HELD_OUT, MIN_NEGATIVES = 2, 10


@dataclass(frozen=True)
class Label:
    """A concept's label.

    Attributes:
        text: the keywords, strongest first; "(no contexts)" where there is nothing to take them from.
        source: keywords, or none.
        score: area under the ROC curve of the label's words detecting held-out contexts; None where not computable.
        words: every word that stands out in the concept's contexts with its weight, for comparing concepts.
    """

    text: str
    source: str
    score: float | None = None
    words: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Window:
    """One context: the item it is from, and its words with the concept's activation on them."""

    item_id: str
    words: dict[str, float]


@dataclass(frozen=True)
class Background:
    """How common words are over the windows of all concepts, and some of these windows to score labels against."""

    n_windows: int
    counts: Counter[str]
    others: list[tuple[str, frozenset[str]]]

    def rarity(self, word: str) -> float:
        """log(1 + windows / windows with the word), the inverse frequency of class-based TF-IDF."""
        return math.log(1 + self.n_windows / max(self.counts[word], 1))


def read_contexts(path: Path) -> pa.Table:
    """Read contexts.parquet.

    Raises:
        InputError: absent or damaged, or a window has another number of activations than of pieces.
    """
    table = CONTEXTS.read(path)
    unequal = pc.not_equal(pc.list_value_length(table["tokens"]), pc.list_value_length(table["activations"]))
    if pc.any(unequal).as_py():
        row = pc.index(unequal, True).as_py()
        raise InputError("has another number of activations than of tokens", file=path, line=row + 1, field="activations")
    return table.combine_chunks()


def keyword_labels(
    contexts: pa.Table, concepts: Sequence[int], firing: sp.csr_matrix, item_ids: Sequence[str], n_keywords: int
) -> dict[int, Label]:
    """Label each of the named concepts from its contexts.

    The weight of a word in a concept is class-based TF-IDF (Grootendorst 2022, with the concept as class): its share of
    the concept's words, times how rare it is over the windows of all concepts. Ours: an occurrence counts by the
    activation on it relative to the concept's peak, plus a little for words around, so that a concept which fires on
    "the" is labelled "the"; each window counts a word once, and words of a single item do not count where others recur, so
    that one item does not write the label.

    The items of a concept are split by hash; two thirds write the label, and the label is scored on windows of the rest,
    against windows of items in which the concept never fires: the area under the ROC curve of the summed weights of the
    keywords that a window holds. 0.5 is guessing. A label of a concept with too few items for that is written from all of
    them and has no score.

    Args:
        contexts: the contexts table, all concepts.
        concepts: concepts to label.
        firing: firing counts (items x concepts), to know in which items a concept never fires.
        item_ids: the items of its rows.
        n_keywords: most words in a label.
    """
    background = learn_background(contexts)
    silent = _silence(firing, concepts, item_ids, {item for item, _words in background.others})
    windows = _windows_of(contexts, concepts)
    return {concept: _label(windows[concept], background, silent[concept], n_keywords) for concept in concepts}


def learn_background(contexts: pa.Table) -> Background:
    """Count in how many windows each word occurs, and choose windows to score labels against."""
    step = max(1, -(-contexts.num_rows // BACKGROUND_WINDOWS))
    sample = contexts.select(["item_id", "tokens"]).take(pa.array(np.arange(0, contexts.num_rows, step)))
    texts: list[str] = pc.binary_join(sample["tokens"], "").to_pylist()
    chosen = set(range(0, len(texts), max(1, len(texts) // (2 * NEGATIVES))))
    counts: Counter[str] = Counter()
    others: list[tuple[str, frozenset[str]]] = []
    for index, (item, text) in enumerate(zip(sample["item_id"].to_pylist(), texts, strict=True)):
        words = frozenset(word for word, _start, _end in find_words(text))
        counts.update(words)
        if index in chosen:
            others.append((item, words))
    return Background(len(texts), counts, others)


def common_words(words: Sequence[dict[str, float]], n_keywords: int) -> str:
    """The words that stand out most over several concepts, each of which counts the same."""
    summed: dict[str, float] = defaultdict(float)
    for weights in words:
        total = sum(weights.values())
        for word, weight in weights.items():
            summed[word] += weight / total
    return ", ".join(_strongest(summed, n_keywords))


def _windows_of(contexts: pa.Table, concepts: Sequence[int]) -> dict[int, list[Window]]:
    wanted = contexts.filter(pc.is_in(contexts["concept"], pa.array(list(concepts), pa.int64())))
    windows: dict[int, list[Window]] = {concept: [] for concept in concepts}
    for row in wanted.select(["concept", "item_id", "tokens", "activations"]).to_pylist():
        windows[row["concept"]].append(Window(row["item_id"], weigh_words(row["tokens"], row["activations"])))
    return windows


def _silence(firing: sp.csr_matrix, concepts: Sequence[int], item_ids: Sequence[str], items: set[str]) -> dict[int, set[str]]:
    """For each concept those of ``items`` in which it never fires."""
    rows = [row for row, item in enumerate(item_ids) if item in items]
    fires = sp.csc_matrix(firing[rows][:, list(concepts)])
    names = [item_ids[row] for row in rows]
    return {
        concept: set(names) - {names[row] for row in fires.indices[fires.indptr[k] : fires.indptr[k + 1]]}
        for k, concept in enumerate(concepts)
    }


def _label(windows: list[Window], background: Background, silent: set[str], n_keywords: int) -> Label:
    if not windows:
        return Label(NO_CONTEXTS, NO_LABEL)
    everything = _stand_out(windows, background)
    order = sorted({window.item_id for window in windows}, key=lambda item: (stable_hash("label", item), item))
    held_out = set(order[: len(order) // HELD_OUT_SHARE])
    fitted = [window for window in windows if window.item_id not in held_out]
    positives = [frozenset(window.words) for window in windows if window.item_id in held_out]
    negatives = [words for item, words in background.others if item in silent][:NEGATIVES]
    if len(positives) < MIN_HELD_OUT or len(negatives) < MIN_NEGATIVES:
        return Label(", ".join(_strongest(everything, n_keywords)), KEYWORDS, None, everything)
    weights = _stand_out(fitted, background)
    keywords = {word: weights[word] for word in _strongest(weights, n_keywords)}
    score = area_under_roc([_detect(keywords, words) for words in positives], [_detect(keywords, words) for words in negatives])
    return Label(", ".join(keywords), KEYWORDS, score, everything)


def _stand_out(windows: list[Window], background: Background) -> dict[str, float]:
    """Weight of each word of a concept: its share of the concept's words times its rarity.

    Only words that occur in several of the concept's items count, if there are any: a word of one item is that item's.
    """
    peak = max((weight for window in windows for weight in window.words.values()), default=0.0)
    shares: dict[str, float] = defaultdict(float)
    for window in windows:
        for word, activation in window.words.items():
            shares[word] += SURROUNDINGS + (1 - SURROUNDINGS) * (activation / peak if peak > 0 else 0.0)
    total = sum(shares.values())
    held_by = Counter(word for item in _words_by_item(windows).values() for word in item)
    recurring = {word: share for word, share in shares.items() if held_by[word] > 1} or shares
    return {word: share / total * background.rarity(word) for word, share in recurring.items()}


def _words_by_item(windows: list[Window]) -> dict[str, set[str]]:
    words: dict[str, set[str]] = defaultdict(set)
    for window in windows:
        words[window.item_id].update(window.words)
    return words


def _strongest(weights: dict[str, float], n_keywords: int) -> list[str]:
    """At most ``n_keywords`` words, strongest first, the alphabet between equals; none that weighs under a fifth of the first."""
    ranked = sorted(weights.items(), key=lambda entry: (-round(entry[1], 9), entry[0]))[:n_keywords]
    return [word for word, weight in ranked if weight >= ranked[0][1] / 5]


def _detect(keywords: dict[str, float], words: frozenset[str]) -> float:
    return sum(weight for word, weight in keywords.items() if word in words)


def area_under_roc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Chance that a positive scores above a negative, ties counting half (Mann and Whitney 1947)."""
    above = np.subtract.outer(np.round(positives, 9), np.round(negatives, 9))
    return float(((above > 0) + 0.5 * (above == 0)).mean())
