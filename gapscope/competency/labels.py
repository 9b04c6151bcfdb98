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

KEYWORDS, REFERENCE, NO_LABEL = "keywords", "reference", "none"
"""Values of ``label_source``: keywords of contexts in the items, of contexts in the reference corpus, or none."""

NO_CONTEXTS = "(no contexts)"
"""The label of a concept that has none."""

SURROUNDINGS = 0.1
"""Weight of a word on which the concept does not fire; one at the concept's peak weighs 1."""

LIFT = 2.0
"""A word on which the concept does not fire labels it only where it is so many times as common as elsewhere."""

BACKGROUND_WINDOWS = 50_000
"""Windows, evenly spaced over all, from which it is learnt how common a word is."""

NEGATIVES = 200
"""Windows of other concepts against which a label is scored."""

FOLDS = 3
"""Parts of a concept's items, each kept in turn out of a label that is scored on it."""

MIN_ITEMS, MIN_NEGATIVES = 3, 10
"""With fewer there is no score, and with fewer items the label is taken from the reference corpus where it can be."""

WEAKEST = 1 / 3
"""A keyword weighs at least this share of the first one."""


@dataclass(frozen=True)
class Label:
    """A concept's label.

    Attributes:
        text: the keywords, strongest first; "(no contexts)" where there is nothing to take them from.
        source: keywords, reference, or none.
        score: area under the ROC curve of the label's words detecting held-out contexts; None where not computable.
        words: every word that stands out in the concept's contexts with its weight, for comparing concepts.
    """

    text: str
    source: str
    score: float | None = None
    words: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Window:
    """One context: the item or document it is from, and its words with the concept's activation on them."""

    item_id: str
    words: dict[str, float]


@dataclass(frozen=True)
class Background:
    """How common words are over the windows of all concepts, and some of these windows to score labels against."""

    n_windows: int
    counts: Counter[str]
    others: list[tuple[str, frozenset[str]]]

    def share(self, word: str) -> float:
        """Share of windows that hold the word; a word of none counts as if it were in one."""
        return max(self.counts[word], 1) / self.n_windows

    def rarity(self, word: str) -> float:
        """log(1 + windows / windows with the word), the inverse frequency of class-based TF-IDF."""
        return math.log(1 + 1 / self.share(word))


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
    # Sorted, so that what is sampled from them does not depend on the order of rows.
    return table.sort_by([(name, "ascending") for name in CONTEXTS.sort_by]).combine_chunks()


def keyword_labels(
    contexts: pa.Table, concepts: Sequence[int], firing: sp.csr_matrix, item_ids: Sequence[str], n_keywords: int
) -> dict[int, Label]:
    """Label each of the named concepts from its contexts.

    The weight of a word in a concept is class-based TF-IDF (Grootendorst 2022, with the concept as class): its share of
    the concept's words, times how rare it is over the windows of all concepts. Ours: an occurrence counts by the
    activation on it relative to the concept's peak, plus a little for words around, so that a concept which fires on
    "the" is labelled "the"; each window counts a word once; and only words that recur label it (:func:`_admitted`).

    The score says how well such a label detects contexts that it has not seen: the items of a concept are split in three by
    hash, and each third's windows are scored by keywords from the other two, against windows of items in which the concept
    never fires. It is the area under the ROC curve of the summed weights of the keywords that a window holds; 0.5 is
    guessing. A concept with too few items for that has none.

    A concept with contexts in fewer than :data:`MIN_ITEMS` items is labelled from those in the reference corpus, where there
    are more of them, by the same rule over the windows there. In which other documents it is silent is not known, so that
    such a label has no score.

    Args:
        contexts: the contexts table, all concepts.
        concepts: concepts to label.
        firing: firing counts (items x concepts), to know in which items a concept never fires.
        item_ids: the items of its rows.
        n_keywords: most words in a label.
    """
    in_reference = pc.equal(contexts["group"], REFERENCE)
    items, documents = contexts.filter(pc.invert(in_reference)), contexts.filter(in_reference)
    background, elsewhere = learn_background(items), learn_background(documents)
    silent = _silence(firing, concepts, item_ids, {item for item, _words in background.others})
    windows, examples = _windows_of(items, concepts), _windows_of(documents, concepts)
    labels: dict[int, Label] = {}
    for concept in concepts:
        if _n_items(windows[concept]) < min(MIN_ITEMS, _n_items(examples[concept])):
            words = _stand_out(examples[concept], elsewhere)
            labels[concept] = Label(", ".join(_strongest(words, n_keywords)), REFERENCE, None, words)
        else:
            labels[concept] = _label(windows[concept], background, silent[concept], n_keywords)
    return labels


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
    """The words that stand out most over several concepts; those of several of them only, if there are any."""
    summed: dict[str, float] = defaultdict(float)
    for weights in words:
        for word, weight in weights.items():
            summed[word] += weight
    held_by = Counter(word for weights in words for word in weights)
    shared = {word: weight for word, weight in summed.items() if held_by[word] > 1}
    return ", ".join(_strongest(shared or summed, n_keywords))


def _windows_of(contexts: pa.Table, concepts: Sequence[int]) -> dict[int, list[Window]]:
    wanted = contexts.filter(pc.is_in(contexts["concept"], pa.array(list(concepts), pa.int64())))
    windows: dict[int, list[Window]] = {concept: [] for concept in concepts}
    for row in wanted.select(["concept", "item_id", "tokens", "activations"]).to_pylist():
        windows[row["concept"]].append(Window(row["item_id"], weigh_words(row["tokens"], row["activations"])))
    return windows


def _n_items(windows: list[Window]) -> int:
    return len({window.item_id for window in windows})


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
    words = _stand_out(windows, background)
    score = _detection_score(windows, background, silent, n_keywords)
    return Label(", ".join(_strongest(words, n_keywords)), KEYWORDS, score, words)


def _detection_score(windows: list[Window], background: Background, silent: set[str], n_keywords: int) -> float | None:
    """Mean over the concept's windows of the area under the ROC curve, each held out of the label that it is scored by."""
    negatives = [words for item, words in background.others if item in silent][:NEGATIVES]
    order = sorted({window.item_id for window in windows}, key=lambda item: (stable_hash("label", item), item))
    if len(order) < MIN_ITEMS or len(negatives) < MIN_NEGATIVES:
        return None
    areas: list[float] = []
    for fold in range(FOLDS):
        held_out = set(order[fold::FOLDS])
        weights = _stand_out([window for window in windows if window.item_id not in held_out], background)
        keywords = {word: weights[word] for word in _strongest(weights, n_keywords)}
        others = [_detect(keywords, words) for words in negatives]
        areas += [area_under_roc([_detect(keywords, frozenset(window.words))], others) for window in windows if window.item_id in held_out]
    return math.fsum(areas) / len(areas)


def _stand_out(windows: list[Window], background: Background) -> dict[str, float]:
    """Weight of each word that stands out in a concept's windows: its share of the concept's words times its rarity."""
    peak = max((weight for window in windows for weight in window.words.values()), default=0.0)
    shares: dict[str, float] = defaultdict(float)
    for window in windows:
        for word, activation in window.words.items():
            shares[word] += SURROUNDINGS + (1 - SURROUNDINGS) * (activation / peak if peak > 0 else 0.0)
    total = sum(shares.values())
    return {word: shares[word] / total * background.rarity(word) for word in _admitted(windows, background)}


def _admitted(windows: list[Window], background: Background) -> list[str]:
    """The words that may label a concept.

    They are those on which it fires in several items, at half of the window's peak or more, and those around that are in
    several items and :data:`LIFT` times as common in its windows as in others. Where there is none, the concept fires on
    another word each time: then they are all on which it does.
    """
    hits, around = _in_items(windows, 0.5), _in_items(windows, 0.0)
    n_with = Counter(word for window in windows for word in window.words)
    lifted = {word for word, n in n_with.items() if n / len(windows) >= LIFT * background.share(word)}
    recurring = {word for word, n in hits.items() if n > 1} | {word for word in lifted if around[word] > 1}
    return sorted(recurring or hits)


def _in_items(windows: list[Window], share_of_peak: float) -> Counter[str]:
    """In how many items each word is, with at least this share of the peak of its window."""
    found: set[tuple[str, str]] = set()
    for window in windows:
        least = share_of_peak * max(window.words.values(), default=0.0)
        found.update((window.item_id, word) for word, activation in window.words.items() if activation >= least)
    return Counter(word for _item, word in found)


def _strongest(weights: dict[str, float], n_keywords: int) -> list[str]:
    """At most ``n_keywords`` words, strongest first, the alphabet between equals; none that is far weaker than the first."""
    ranked = sorted(weights.items(), key=lambda entry: (-round(entry[1], 9), entry[0]))[:n_keywords]
    return [word for word, weight in ranked if weight >= WEAKEST * ranked[0][1]]


def _detect(keywords: dict[str, float], words: frozenset[str]) -> float:
    return sum(weight for word, weight in keywords.items() if word in words)


def area_under_roc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Chance that a positive scores above a negative, ties counting half (Mann and Whitney 1947)."""
    above = np.subtract.outer(np.round(positives, 9), np.round(negatives, 9))
    return float(((above > 0) + 0.5 * (above == 0)).mean())
