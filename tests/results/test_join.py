"""Answers find their items by id, hash or text; never by position, and never where the texts contradict.

What must hold: the order of rows and of items has no influence; a wrong id is an error that shows both texts; what fits
no item, or several, is counted and shown.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapscope.errors import InputError
from gapscope.items import Item
from gapscope.results.answers import Answer
from gapscope.results.join import Way, join

ITEMS = [
    Item("b-1", "b", "b-1", "What is the largest of the seas?", ("red", "dead", "black"), 2, meta={"doc_hash": "h1"}),
    Item("b-2", "b", "b-2", "A dog chased the cat.\nWho was it that ran away first?", ("dog", "cat"), 1, meta={"doc_hash": "h2"}),
    Item("free", "f", "free", "Which of the following is true?", ("iron floats", "wood floats"), 1),
    Item("f-9", "f", "f-9", "Which of the following is true?", ("ice sinks", "oil floats"), 1),
]


def answer(text: str = "", **given: object) -> Answer:
    return Answer(line=1, task="t", text=text, **given)  # type: ignore[arg-type]


def found(*answers: Answer, way: Way = "auto", prefix: str = "") -> tuple[list[list[str]], dict[str, int], int, int]:
    joined = join(answers, ITEMS, way, prefix)
    where = [[item_id for item_id, matched in joined.by_item.items() if one in matched] for one in answers]
    return where, dict(joined.ways), len(joined.unmatched), len(joined.ambiguous)


SEAS = answer("WHAT is the  largest of the seas?", name="1", doc_hash="h1")


def test_by_id_with_or_without_the_benchmark_and_by_a_prefix() -> None:
    assert found(SEAS) == ([["b-1"]], {"id": 1}, 0, 0)
    assert found(replace(SEAS, name="b-1")) == ([["b-1"]], {"id": 1}, 0, 0)
    assert found(replace(SEAS, name="1"), prefix="b-") == ([["b-1"]], {"id": 1}, 0, 0)
    assert found(answer(name="free")) == ([["free"]], {"id": 1}, 0, 0)


def test_by_hash_and_by_text_where_there_is_no_id() -> None:
    assert found(replace(SEAS, name=None)) == ([["b-1"]], {"hash": 1}, 0, 0)
    assert found(replace(SEAS, name=None, doc_hash=None)) == ([["b-1"]], {"text": 1}, 0, 0)
    assert found(SEAS, way="text") == ([["b-1"]], {"text": 1}, 0, 0)
    assert found(answer("nothing like it", doc_hash="h1"), way="hash") == ([[]], {}, 1, 0)


def test_an_id_of_another_question_shows_both_texts() -> None:
    with pytest.raises(InputError) as caught:
        found(answer("What is the deepest of the lakes?", name="1"))
    message = str(caught.value)
    assert "line 1" in message
    assert "the log has 'What is the deepest of the lakes?', the item 'What is the largest of the seas?'" in message
    assert found(answer("What is the deepest of the lakes?", name="1"), way="text") == ([[]], {}, 1, 0)


def test_a_template_around_the_question_is_no_contradiction() -> None:
    prompt = "Question: A dog chased the cat.\nQ: Who was it that ran away first?\nAnswer:"
    assert found(answer("Who was it that ran away first?", name="2", prompt=prompt)) == ([["b-2"]], {"id": 1}, 0, 0)
    assert found(answer(prompt, prompt=prompt)) == ([["b-2"]], {"text": 1}, 0, 0)


def test_of_the_questions_in_a_prompt_the_last_one_is_asked() -> None:
    shot = "What is the largest of the seas?\nblack\n\n"
    asked = "A dog chased the cat.\nWho was it that ran away first?\nAnswer:"
    assert found(answer(shot + asked, prompt=shot + asked)) == ([["b-2"]], {"text": 1}, 0, 0)


def test_one_text_with_other_choices_is_another_question() -> None:
    text = "Which of the following is true?"
    assert found(answer(text, choices=("oil floats", "ice sinks"))) == ([["f-9"]], {"text": 1}, 0, 0)
    assert found(answer(text, choices=("lead floats", "cork floats"))) == ([[]], {}, 1, 0)
    assert found(answer(text)) == ([[]], {}, 0, 1)
    # Letters say nothing of the choices.
    assert found(answer(text, choices=("A", "B"))) == ([[]], {}, 0, 1)


def test_the_task_decides_between_benchmarks() -> None:
    items = [
        Item("x-1", "x", "x-1", "Same text in both of them.", (), None, "a"),
        Item("y-1", "y", "y-1", "Same text in both of them.", (), None, "a"),
    ]
    one = Answer(1, "y", "Same text in both of them.", name="1")
    assert list(join([one], items).by_item) == ["y-1"]
    assert list(join([replace(one, name=None)], items).by_item) == ["y-1"]


def test_order_has_no_influence() -> None:
    answers = [SEAS, answer("Which of the following is true?", choices=("ice sinks", "oil floats")), answer(name="free")]
    forth = join(answers, ITEMS)
    back = join(answers[::-1], ITEMS[::-1])
    assert dict(forth.by_item) == dict(back.by_item)
    assert sorted(forth.by_item) == ["b-1", "f-9", "free"]
