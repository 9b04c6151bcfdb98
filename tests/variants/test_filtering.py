"""From completions to variants: every reason of a rejection, duplicates, and the agreement of generate and filter.

What must hold: each reason occurs for a completion made to have it, in the order in which reasons are looked at; exact
and near duplicates of the same type are dropped, others are not; a judge that is asked twice decides the same, and the
counts add up; rounds go on until the target or the budget, the same items for every type; an item more moves no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gapscope.errors import InputError
from gapscope.files import read_json, read_jsonl, sha256_tree, write_jsonl
from gapscope.items import Item, read_items
from gapscope.lm import load_lm
from gapscope.params import StageParams
from gapscope.params_robustness import FilterParams, GenerateParams
from gapscope.variants.duplicates import Seen, shingles
from gapscope.variants.filtering import REASONS, Candidate, Screen, invented_faults, read_candidates, tally, write_variants
from gapscope.variants.generation import TRAINED, Writer, generate, pick_sources, plan_round
from gapscope.variants.rounds import run_rounds
from gapscope.variants.types import TYPES
from gapscope.variants.verifier import Verdict
from gapscope.work import WorkDirectory

ORIGINAL = Item(
    "q1",
    "made",
    "q1",
    "Mia's kettle has started to whistle on the stove.\nWhat does she do?",
    ("She fills it with sand", "She turns the stove off", "She paints the wall", "She calls the bank"),
    1,
)
RESTATED = "Context: A loud whistle tells Mia that her water is boiling.\nQuestion: {q}\nAnswer: She puts the flame out"


class Words:
    """A judge by words in the text: what holds "nine" is off type, "ten" wrongly labelled, "eleven" ambiguous."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def judge(self, pairs: Sequence[tuple[Item, Item, str]]) -> list[Verdict]:
        self.calls.append(len(pairs))
        found = []
        for item, _original, _slug in pairs:
            tc, lc, au = (word not in item.text.split() for word in ("nine", "ten", "eleven"))
            found.append(Verdict(tc, lc, au, tc and lc and au, 0.9))
        return found


def candidate(completion: str, slug: str = "problem_restatement", *, name: str = "", number: int = 0, ended: bool = True) -> Candidate:
    return Candidate(name or f"q1-{slug}-r{number:03d}", "q1", slug, number, "grpo", completion, 20, ended)


CASES = {
    "fine": candidate(RESTATED.format(q="What is her next step?"), name="a"),
    "unparsable": candidate("Once upon a time", name="b"),
    "endless": candidate(RESTATED.format(q="What is her next step?"), name="c", ended=False),
    "copy": candidate(
        f"Context: {ORIGINAL.text.split(chr(10))[0]}\nQuestion: What does she do?\nAnswer: She turns the stove off", name="d"
    ),
    "rule": candidate("Question: Which of these fits the story?\nAnswer: The cat\nOther: The dog", "causal_inference", name="e"),
    "tc": candidate(RESTATED.format(q="What is nine for her?"), name="f"),
    "lc": candidate(RESTATED.format(q="Why are there ten of them?"), name="g"),
    "au": candidate(RESTATED.format(q="Are eleven pans and ten pots enough?").replace("ten ", ""), name="h"),
    "duplicate": candidate(RESTATED.format(q="What is her next step?").replace("Context: A", "Context:  a"), name="i"),
}


def screen(judge: Words | None = None) -> Screen:
    return Screen(judge or Words(), {"q1": ORIGINAL}, FilterParams())


def test_every_reason() -> None:
    decisions = dict(zip(CASES, screen().decide(list(CASES.values())), strict=True))
    found = {name: decision.reason for name, decision in decisions.items()}
    assert found == {name: None if name == "fine" else "unparsable" if name == "endless" else name for name in CASES}
    assert set(found.values()) - {None} == set(REASONS)
    assert "repeats a" in decisions["duplicate"].explanation
    assert "ask for a reason" in decisions["rule"].explanation
    accepted = decisions["fine"].item
    assert accepted is not None
    assert accepted.meta["verdict"] == {"tc": True, "lc": True, "au": True, "valid": True, "p": 0.9}
    assert (accepted.id, accepted.family, accepted.meta["original"], accepted.meta["type"]) == ("a", "q1", "q1", "problem_restatement")


def test_only_what_has_the_form_is_judged() -> None:
    judge = Words()
    screen(judge).decide(list(CASES.values()))
    assert judge.calls == [5]


def test_counts_add_up() -> None:
    report = tally(screen().decide(list(CASES.values())))
    for row in (report, *report["types"].values(), *report["rounds"].values()):
        assert row["n_candidates"] == row["n_accepted"] + sum(row["reasons"].values())
    assert report["pass_rate"] == pytest.approx(1 / 9)
    assert "pass_rate" not in report["types"]["sentence_ordering"]


def test_written_files_hold_everything_once(tmp_path: Path) -> None:
    metrics = write_variants(tmp_path / "a", list(CASES.values()), {"q1": ORIGINAL}, Words(), FilterParams())
    write_variants(tmp_path / "b", list(CASES.values()), {"q1": ORIGINAL}, Words(), FilterParams())
    assert sha256_tree(tmp_path / "a") == sha256_tree(tmp_path / "b")
    kept = [item.id for item in read_items(tmp_path / "a/variants.jsonl")]
    rejected = {row["id"]: row["reason"] for _line, row in read_jsonl(tmp_path / "a/rejected.jsonl")}
    assert sorted([*kept, *rejected]) == list("abcdefghi")
    assert metrics["tokens"] == {"written": 180, "per_accepted": 180}
    assert read_json(tmp_path / "a/report.json")["n_accepted"] == 1


def test_near_duplicates_by_type() -> None:
    long = " ".join(f"word{k}" for k in range(60))
    one = replace(ORIGINAL, id="x", text=long)
    near, far = replace(one, id="y", text=long + " more"), replace(one, id="z", text=" ".join(f"other{k}" for k in range(60)))
    seen = Seen(FilterParams())
    seen.add(one, "critical_testing")
    assert seen.twin(near, "critical_testing") == "x"
    assert seen.twin(near, "causal_inference") is None
    assert seen.twin(far, "critical_testing") is None
    overlap = len(shingles(one, 3) & shingles(near, 3)) / len(shingles(one, 3) | shingles(near, 3))
    assert overlap > 0.9
    assert Seen(FilterParams(near_duplicate=1.0)).twin(near, "critical_testing") is None
    # The same question with another gold is another question, until its words are counted.
    assert seen.twin(replace(one, id="w", answer=2), "critical_testing") == "x"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "odd"}, "no variant type 'odd'"),
        ({"original": "gone"}, "no item 'gone'"),
        ({"more": 1}, r"c\.jsonl:1: more: not a candidate"),
        ({"type": ["odd"]}, r"c\.jsonl:1: type: not a candidate: .*string"),
        ({"round": "1"}, r"c\.jsonl:1: round: not a candidate: .*integer, is '1'"),
        ({"completion": 7}, r"c\.jsonl:1: completion: not a candidate"),
        ({"ended": 1}, r"c\.jsonl:1: ended: not a candidate"),
        ({"n_tokens": 2.5}, r"c\.jsonl:1: n_tokens: not a candidate"),
    ],
)
def test_damaged_candidates_are_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    write_jsonl(tmp_path / "c.jsonl", [asdict(CASES["fine"]) | change])
    with pytest.raises(InputError, match=said):
        read_candidates(tmp_path / "c.jsonl", {"q1": ORIGINAL})


def sources(n: int) -> list[Item]:
    return [replace(ORIGINAL, id=f"i{k}", family=f"i{k}", text=f"Mia has kettle number {k}.\nWhat does she do?") for k in range(n)]


def test_sources_are_ordered_by_hash() -> None:
    def order(n: int) -> list[str]:
        return [item.id for item in pick_sources(sources(n), None, 200, lambda text: len(text.split()), 4).items]

    few, more = order(20), order(30)
    assert [name for name in more if name in few] == few
    assert few != sorted(few)
    odd = [*sources(3), replace(sources(1)[0], id="same"), Item("free", "made", "free", "How?", target="so")]
    got = pick_sources(
        [*odd, replace(ORIGINAL, id="long", family="long", text="long " * 300)], ["made"], 200, lambda text: len(text.split()), 4
    )
    assert len(got.items) == 3
    assert got.n_left_out == {"no_choices": 1, "too_long": 1, "same_family": 1}


def test_sources_that_are_not_there_are_named() -> None:
    with pytest.raises(InputError, match="no item of 'gone'"):
        pick_sources(sources(3), ["gone"], 100, len, 4)
    with pytest.raises(InputError, match="no item is left"):
        pick_sources(sources(3), None, 1, len, 4)


def test_rounds_are_the_same_items_for_every_type() -> None:
    items = sources(5)
    params = GenerateParams(target_per_type=2, round_size=3, max_candidates=100, sft_candidates=0)
    first = plan_round(items, 0, Counter(), 100, params)
    assert len(first) == 21
    assert {slug: [item.id for item, s, _n in first if s == slug] for slug in TYPES} == {slug: ["i0", "i1", "i2"] for slug in TYPES}
    second = plan_round(items, 1, Counter({slug: 2 for slug in TYPES if slug != "causal_inference"}), 79, params)
    assert [(item.id, slug) for item, slug, _n in second] == [(f"i{k}", "causal_inference") for k in (3, 4, 0)]
    assert len(plan_round(items, 0, Counter(), 20, params)) == 14
    assert plan_round(items, 0, Counter(), 6, params) == []
    assert plan_round(items, 2, Counter(dict.fromkeys(TYPES, 2)), 100, params) == []


def test_guided_rounds_pass_over_what_does_not_suit() -> None:
    items = [
        replace(item, text=item.text.replace("What does she do?", "Why did Mia do this?")) if k % 2 else item
        for k, item in enumerate(sources(6))
    ]
    asked = {
        guided: [
            item.id for item, slug, _n in plan_round(items, 0, Counter(), 21, GenerateParams(guided=guided)) if slug == "critical_testing"
        ]
        for guided in (True, False)
    }
    assert asked == {True: ["i1", "i3", "i5"], False: ["i0", "i1", "i2"]}


def test_unguided_writing_is_the_generator_s_own(tiny_lm_dir: Path, tmp_path: Path) -> None:
    lm, asks = load_lm(tiny_lm_dir, device="cpu"), [(sources(1)[0], "critical_testing", 0)]
    texts = [
        Writer(lm, TRAINED, GenerateParams(guided=guided, max_new_tokens=30, dtype="float32"), 5, WorkDirectory(tmp_path, "w", str(guided)))
        .write(asks)[0]
        .completion
        for guided in (True, False)
    ]
    assert texts[0].startswith("Answer: ")
    assert not texts[1].startswith("Answer: ")


class Fixed:
    """Stands in for a writer: the completion of a type, whatever the item."""

    def __init__(self, texts: dict[str, str], name: str) -> None:
        self._texts, self._name = texts, name

    def write(self, asks: Sequence[tuple[Item, str, int]]) -> list[Candidate]:
        return [
            Candidate(f"{item.id}-{slug}-r{number:03d}", item.id, slug, number, self._name, self._texts.get(slug, "no"), 7, True)
            for item, slug, number in asks
        ]


def test_generation_stops_at_target_or_budget() -> None:
    items = sources(6)
    params = GenerateParams(target_per_type=4, round_size=4, max_candidates=60, sft_candidates=2)
    picked = pick_sources(items, None, 200, lambda text: len(text.split()), 4)
    judge = Words()
    made = generate(
        Fixed({"critical_testing": "Answer: none of the above"}, TRAINED),  # type: ignore[arg-type]
        Fixed({}, "sft"),  # type: ignore[arg-type]
        picked,
        lambda: Screen(judge, {item.id: item for item in items}, FilterParams(near_duplicate=1.0)),
        params,
        lambda text: len(text.split()),
    )
    report = tally(made.decisions)
    assert report["types"]["critical_testing"] == {
        "n_candidates": 4, "n_accepted": 4, "pass_rate": 1.0, "reasons": dict.fromkeys(REASONS, 0),
    }  # fmt: skip
    assert report["types"]["causal_inference"]["reasons"]["unparsable"] == report["types"]["causal_inference"]["n_candidates"]
    assert len(made.decisions) == 28 + 24 + 6  # the last round holds what is left of the budget, as many for each type
    assert len(made.before) == 14
    assert made.n_verified_tokens > 0


def test_a_real_generator_resumes_and_is_byte_stable(tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_params = GenerateParams(
        target_per_type=1,
        round_size=2,
        max_candidates=28,
        sft_candidates=1,
        max_new_tokens=12,
        dtype="float32",
        max_prompt_tokens=400,
        batch_size=5,
    )
    params = StageParams(seed=3, threads=1, generate=generate_params)
    items = sources(4)

    def run(name: str) -> dict[str, object]:
        return run_rounds((tiny_lm_dir, tiny_lm_dir), Words(), items, tmp_path / name, params, tmp_path / f"{name}.work", "cpu")

    metrics = run("a")
    assert metrics["n_candidates"] == 28
    assert metrics["pass_rate"] == {"grpo": metrics["pass_rate"]["sft"], "sft": metrics["pass_rate"]["sft"]}  # type: ignore[index]
    assert metrics["pass_rate"]["sft"]["n"] == 7  # type: ignore[index]
    written = [row for _line, row in read_jsonl(tmp_path / "a/candidates.jsonl")]
    before = {row["id"]: row["completion"] for _line, row in read_jsonl(tmp_path / "a/sft.jsonl")}
    assert {row["id"]: row["completion"] for row in written if row["id"] in before} == before  # the same weights, the same draws
    with monkeypatch.context() as broken:
        calls = []

        def fail(self: Writer, asks: object) -> bytes:
            calls.append(asks)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return whole(self, asks)  # type: ignore[arg-type]

        whole = Writer._batch
        broken.setattr(Writer, "_batch", fail)
        with pytest.raises(KeyboardInterrupt):
            run("b")
    assert not (tmp_path / "b").exists()
    assert len(list((tmp_path / "b.work").rglob("grpo-*.json"))) == 2
    run("b")
    assert sha256_tree(tmp_path / "a") == sha256_tree(tmp_path / "b")
    assert list((tmp_path / "b.work").glob("*/*")) == []


def test_batch_size_changes_no_text(tiny_lm_dir: Path, tmp_path: Path) -> None:
    lm, asks = load_lm(tiny_lm_dir, device="cpu"), [(item, slug, 0) for item in sources(2) for slug in TYPES]
    texts = []
    for size in (1, 4, 14):
        params = GenerateParams(max_new_tokens=16, batch_size=size, dtype="float32")
        made = Writer(lm, TRAINED, params, 5, WorkDirectory(tmp_path, "w", str(size))).write(asks)
        texts.append({one.id: one.completion for one in made})
    assert texts[0] == texts[1] == texts[2]
    fewer = Writer(lm, TRAINED, params, 5, WorkDirectory(tmp_path, "w", "fewer")).write(asks[3:9])
    assert {one.id: one.completion for one in fewer}.items() <= texts[0].items()


@pytest.mark.parametrize(
    ("wrong", "said"), [({"target_per_type": 60}, "is 420, above max_candidates 336"), ({"sft_candidates": 9}, "at most round_size")]
)
def test_parameters_that_cannot_work_are_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GenerateParams(**wrong)  # type: ignore[arg-type]


def test_invented_choices_must_differ_and_not_repeat_the_right_one() -> None:
    def asked(*others: str) -> Item:
        return Item("i", "b", "f", "Mia wept.\nWhich of these explains why?", ("Mia lost her old kettle at the fair.", *others), 0)

    assert invented_faults(asked("Mia won a prize.", "Mia slept late."), "causal_inference") == []
    assert invented_faults(asked("Mia lost her old kettle at the fair", "Mia slept late."), "causal_inference") == [
        "two choices are the same, but for a few words",
        "a choice says no more than the right one does",
    ]
    assert invented_faults(asked("At the fair, Mia lost a kettle."), "reverse_conversion") == [
        "a choice says no more than the right one does"
    ]
    assert invented_faults(asked("Mia lost her old kettle at the fair"), "negative_transformation") == []
