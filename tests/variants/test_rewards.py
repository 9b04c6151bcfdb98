"""A reward is the verifier's probability, and nothing for what cannot be a variant or repeats its group."""

from __future__ import annotations

from collections.abc import Sequence

from gapscope.items import Item
from gapscope.variants.hacking import examine, loops
from gapscope.variants.rewards import Attempt, rewards
from gapscope.variants.verifier import Verdict

ITEM = Item("a", "t", "a", "The kettle whistles.\nWhat does Mia do?", ("Sand it", "Turn it off", "Paint"), 1)
GOOD = "Context: A loud whistle comes from the stove.\nQuestion: And Mia?\nAnswer: She puts out the flame"
OTHER = GOOD.replace("loud", "long")
COPY = "Context: The kettle whistles.\nQuestion: What does Mia do?\nAnswer: Switch it off"


class Judge:
    """Half sure of everything, and says how many it was asked about."""

    def __init__(self) -> None:
        self.n = 0

    def judge(self, pairs: Sequence[tuple[Item, Item, str]]) -> list[Verdict]:
        self.n += len(pairs)
        return [Verdict(True, True, True, True, 0.5) for _ in pairs]


def attempt(text: str, *, slug: str = "problem_restatement", ended: bool = True) -> Attempt:
    return Attempt(ITEM, slug, text, 9, ended)


def test_only_the_first_of_equal_variants_earns() -> None:
    found = rewards([attempt(text) for text in (GOOD, GOOD, OTHER)], Judge())
    assert [one.value for one in found] == [0.5, 0.0, 0.5]
    assert [one.reason for one in found] == [None, "repeat", None]


def test_what_cannot_be_a_variant_earns_nothing_and_is_not_judged() -> None:
    judge = Judge()
    tried = [attempt("no labels"), attempt(GOOD, ended=False), attempt(COPY), attempt("Question: Why?\nAnswer: x", slug="causal_inference")]
    found = rewards([*tried, attempt(GOOD.replace("And Mia?", "And then?"), slug="scenario_refinement")], judge)
    assert [one.value for one in found] == [0.0] * 5
    assert [one.reason for one in found] == ["unparsable", "unparsable", "copy", "unparsable", "unparsable"]
    assert judge.n == 0


def test_loops_are_seen() -> None:
    assert loops("Other: he went home and he went home and he went home")
    assert loops("Other: rain\nOther: rain")
    assert not loops(GOOD)


def test_the_examination_counts_by_hand() -> None:
    shares, rows = examine([attempt(GOOD), attempt(GOOD), attempt("nothing"), attempt(COPY)], Judge())
    assert shares["accepted"] == 0.25 and shares["duplicate"] == 0.25 and shares["unparsable"] == 0.25 and shares["copy"] == 0.25
    assert shares["n"] == 4 and shares["tokens"] == 9.0
    assert [row["reason"] for row in rows] == [None, "duplicate", "unparsable", "copy"]
