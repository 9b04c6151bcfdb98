from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from made_activations import write_contexts

from gapscope.competency.labels import area_under_roc, common_words, keyword_labels, learn_background, read_contexts
from gapscope.competency.words import find_words, weigh_words
from gapscope.errors import InputError


def words(text: str) -> list[str]:
    return [word for word, _start, _end in find_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat isn’t at O'Neill's.", ["the", "cat", "isn't", "at", "o'neill's", "."]),
        ("a_b 3.14\n\n?!", ["a", "_", "b", "3", ".", "14", "\\n", "\\n", "?", "!"]),
        ("日本語。", ["日本", "本語", "。"]),
        ("猫 cat猫", ["猫", "cat", "猫"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("اللُّغة العربية", ["اللُّغة", "العربية"]),
        ("Straße ÉTÉ", ["strasse", "été"]),
        (" \t ", []),
    ],
)
def test_words_of_many_scripts(text, expected):
    assert words(text) == expected


def test_spans_point_into_the_text():
    text = "Don't, 日本語\n!"
    assert [text[start:end] for _word, start, end in find_words(text)] == ["Don't", ",", "日本", "本語", "\n", "!"]


def test_a_word_weighs_as_much_as_its_strongest_piece():
    # "running" is cut into three pieces, and "run" comes twice.
    pieces, activations = ["The", " run", "n", "ing", " run", "."], [0.0, 1.0, 0.5, 4.0, 2.0, 3.0]
    assert weigh_words(pieces, activations) == {"the": 0, "running": 4, "run": 2, ".": 3}


WORLD = ["river", "boat", "water", "bank", "loan", "money", "credit", "tree"]


def window(*tokens: str) -> list[str]:
    return [tokens[0], *(f" {token}" for token in tokens[1:])]


def make_contexts(directory: Path) -> None:
    """Concept 0 fires on "river", 1 on "loan", 2 on "?", 3 on "the"; 4 has no context."""
    generator = np.random.default_rng(0)
    windows = []
    for concept, fired in enumerate(["river", "loan", "?", "the"]):
        for k in range(12):
            others = list(generator.choice(WORLD, 4))
            tokens = [*others[:2], "of", "the", fired, *others[2:]] if fired != "the" else [*others[:2], "of", "the", *others[2:]]
            strengths = [5.0 if token == fired else 0.0 for token in tokens]
            windows.append((concept, f"i{concept}_{k:02d}", window(*tokens), strengths, "top" if k < 8 else "quantile"))
    write_contexts(directory, windows)


ITEMS = [f"i{concept}_{k:02d}" for concept in range(4) for k in range(12)]
FIRING = sp.csr_matrix(np.array([[float(item.startswith(f"i{concept}_")) for concept in range(5)] for item in ITEMS]))


def labels_of(directory: Path, order: np.ndarray | None = None):
    table = read_contexts(directory / "contexts.parquet")
    table = table if order is None else table.take(order)
    return keyword_labels(table, [0, 1, 2, 3, 4], FIRING, ITEMS, 3)


def test_labels_name_what_the_concept_fires_on(tmp_path):
    make_contexts(tmp_path)
    labels = labels_of(tmp_path)
    assert [labels[concept].text.split(", ")[0] for concept in range(5)] == ["river", "loan", "?", "the", "(no contexts)"]
    assert [labels[concept].source for concept in range(5)] == ["keywords"] * 4 + ["none"]
    assert labels[4].score is None


def test_scores_tell_a_label_that_detects_from_one_that_does_not(tmp_path):
    make_contexts(tmp_path)
    labels = labels_of(tmp_path)
    # Only concept 2's windows hold "?"; all windows hold "the".
    assert labels[2].score == pytest.approx(1, abs=0.01)
    assert labels[3].score == pytest.approx(0.5, abs=0.25)
    assert labels[0].score > 0.7


def test_labels_do_not_depend_on_the_order_of_rows(tmp_path):
    make_contexts(tmp_path)
    order = np.random.default_rng(1).permutation(48)
    straight, mixed = labels_of(tmp_path), labels_of(tmp_path, order)
    assert {concept: label.text for concept, label in mixed.items()} == {concept: label.text for concept, label in straight.items()}


def test_weight_is_share_times_rarity_by_hand(tmp_path):
    # "red" fires in both windows of concept 0; "apple" is in all four windows, "pie" in the two of concept 0 only.
    mine = [(0, item, ["red", " apple", " pie"], [2.0, 0.5, 0.0], "top") for item in "ab"]
    others = [(1, item, ["green", " apple"], [1.0, 0.0], "top") for item in "cd"]
    write_contexts(tmp_path, mine + others)
    label = keyword_labels(read_contexts(tmp_path / "contexts.parquet"), [0], sp.csr_matrix((4, 2)), list("abcd"), 4)[0]
    # Per window red weighs 1, apple 0.1 + 0.9/4, pie 0.1: 1.425 in all. Apple is nowhere near the peak, and no commoner here.
    assert label.words == pytest.approx({"red": 1 / 1.425 * math.log(1 + 4 / 2), "pie": 0.1 / 1.425 * math.log(1 + 4 / 2)})
    # Pie weighs a tenth of red: too little for the label; two items are too few for a score.
    assert (label.text, label.score) == ("red", None)


def test_a_label_is_scored_on_items_that_it_was_not_written_from(tmp_path):
    # Each item of concept 0 has a word of its own, in two windows: what is learnt from some says nothing of the others.
    own = [(0, f"i0_{k:02d}", [f"own{k}"], [1.0], "top") for k in range(9) for _ in range(2)]
    same = [(1, f"i1_{k:02d}", ["same"], [1.0], "top") for k in range(9)]
    write_contexts(tmp_path, [*own, *same, *((2, f"i2_{k:02d}", ["other"], [1.0], "top") for k in range(12))])
    labels = keyword_labels(read_contexts(tmp_path / "contexts.parquet"), [0, 1], FIRING, ITEMS, 4)
    assert (labels[0].score, labels[1].score) == (0.5, 1.0)


def test_a_word_of_one_item_is_no_keyword_where_others_recur(tmp_path):
    lone = [(0, f"i0_{k:02d}", ["to", f" rare{k}"], [1.0, 0.9], "top") for k in range(4)]
    varied = [(1, f"i1_{k:02d}", [f"word{k}", " of", " the"], [1.0 + k, 0.0, 0.0], "top") for k in range(4)]
    write_contexts(tmp_path, [*lone, *varied, *((2, f"i2_{k:02d}", [" of", " the"], [0.0, 1.0], "top") for k in range(9))])
    labels = keyword_labels(read_contexts(tmp_path / "contexts.parquet"), [0, 1], FIRING, ITEMS, 4)
    assert labels[0].text == "to"
    # It fires on another word each time: these, strongest first, and not the common words around them.
    assert set(labels[1].text.split(", ")) <= {"word0", "word1", "word2", "word3"}


def test_a_concept_without_items_is_labelled_from_the_reference(tmp_path):
    # Concept 4 fires in no item, concept 3 in two of them, concept 0 in enough; all three fire in three documents.
    items = [(0, f"i0_{k:02d}", ["river"], [1.0], "top") for k in range(9)] + [(3, f"i3_{k:02d}", ["rare"], [1.0], "top") for k in range(2)]
    found = {0: "bank", 3: "comet", 4: "quark"}
    corpus = [(c, f"corpus:{k}", ["the", f" {word}"], [0.0, 2.0], "reference") for c, word in found.items() for k in range(3)]
    write_contexts(tmp_path, items + corpus)
    labels = keyword_labels(read_contexts(tmp_path / "contexts.parquet"), [0, 3, 4], FIRING, ITEMS, 3)
    assert [(labels[c].text, labels[c].source) for c in (0, 3, 4)] == [
        ("river", "keywords"),
        ("comet", "reference"),
        ("quark", "reference"),
    ]
    assert labels[0].score is None, "too few windows of other concepts' items"
    assert labels[4].score is None, "it is not known in which documents it is silent"
    # Weighed against the windows of the corpus: 1 of 1.1 + 0.1 of its words, in 3 of 9 windows.
    assert labels[4].words["quark"] == pytest.approx(1 / 1.1 * math.log(1 + 9 / 3))
    write_contexts(tmp_path, items)
    before = keyword_labels(read_contexts(tmp_path / "contexts.parquet"), [0, 3], FIRING, ITEMS, 3)
    assert before[0] == labels[0], "the corpus does not change a label from the items"
    assert (before[3].text, before[3].source) == ("rare", "keywords")


def test_background_counts_windows_not_occurrences(tmp_path):
    write_contexts(tmp_path, [(0, "a", ["x", " x"], [1.0, 1.0], "top"), (1, "b", ["x", " y"], [1.0, 1.0], "top")])
    background = learn_background(read_contexts(tmp_path / "contexts.parquet"))
    assert (background.n_windows, background.counts["x"], background.counts["y"]) == (2, 2, 1)
    assert (background.share("x"), background.share("y"), background.share("never seen")) == (1, 0.5, 0.5)
    assert background.rarity("never seen") == pytest.approx(math.log(3))


def test_common_words_are_those_that_several_concepts_share():
    assert common_words([{"a": 9.0, "b": 1.0, "c": 2.0}, {"b": 1.5, "c": 2.0}], 4) == "c, b"
    assert common_words([{"a": 1.0}, {"b": 1.0}], 1) == "a"
    assert common_words([], 4) == ""


@pytest.mark.parametrize(
    ("positives", "negatives", "area"), [([2, 3], [0, 1], 1), ([0], [1, 2], 0), ([1, 1], [1], 0.5), ([1, 3], [2, 0], 0.75)]
)
def test_area_under_roc_by_hand(positives, negatives, area):
    assert area_under_roc(positives, negatives) == area


def test_contexts_of_unequal_length_are_refused(tmp_path):
    write_contexts(tmp_path, [(0, "a", ["x"], [1.0], "top"), (0, "b", ["x", " y"], [1.0], "top")])
    with pytest.raises(InputError, match=r"contexts\.parquet:2: activations: has another number"):
        read_contexts(tmp_path / "contexts.parquet")
