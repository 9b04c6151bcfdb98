"""Choice log-likelihoods are those of a plain forward pass over each whole sequence, however items are batched.

The reference everywhere is `plain`: one choice, one sequence, no cache, no padding, log-softmax over all positions.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from transformers import Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

from gapscope import scoring
from gapscope.artifacts import SCORES
from gapscope.choice_tokens import MAX_LOGITS, Query, encode_item, plan_batches
from gapscope.files import sha256_file
from gapscope.items import Item, write_items
from gapscope.lm import LM, load_lm
from gapscope.params import ScoreParams
from gapscope.scores import ItemScore, choose, first_of_each, summarise, wilson_interval
from gapscope.scoring import context_window, keeps_branches_apart, score_batch, score_items
from gapscope.threads import use_threads
from gapscope.work import WorkDirectory
from stages.score import main

PARAMS = ScoreParams(normaliser="none")
WORDS = ["the", "river", "old", "tree", "bridge", "water", "steam", "bread", "rice", "which", "answer", "flew", "slept", "ünï", "日本"]


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks for as many threads as the parameters say, which for a model this small is only in the way."""
    monkeypatch.setattr(scoring, "use_threads", lambda threads: use_threads(1))


def item(text: str, *choices: str, answer: int = 0, name: str = "a", benchmark: str = "b") -> Item:
    return Item(name, benchmark, name, text, choices, answer if choices else None, None if choices else "gold")


def made_items(n: int = 23) -> list[Item]:
    draw = random.Random(5)
    items = [
        item(
            " ".join(draw.choices(WORDS, k=draw.randint(1, 40))),
            *{" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(4)},
            name=f"i{k:02d}",
        )
        for k in range(n)
    ]
    # A choice that begins like another, choices of one token, and a choice that is the beginning of another.
    return [
        *items,
        item("Which?", "owl one", "owl two", name="x"),
        item("Which?", "a", "b", name="y"),
        item("Which?", "owl", "owl flew", name="z"),
    ]


def plain(lm: LM, ids: list[int], start: int) -> float:
    with torch.inference_mode():
        rows = lm.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(rows[k - 1, ids[k]].item() for k in range(start, len(ids)))


def plain_item(lm: LM, one: Item, prompt: str = "Question: {}\nAnswer:") -> list[float]:
    context = prompt.format(one.text)
    start = len(lm.tokenizer(context)["input_ids"])
    return [plain(lm, lm.tokenizer(f"{context} {choice}")["input_ids"], start) for choice in one.choices]


def logprobs(scores: list[ItemScore]) -> dict[str, tuple[float, ...]]:
    return {score.item_id: score.logprobs or () for score in scores}


def work(path: Path) -> WorkDirectory:
    return WorkDirectory(path, "score", "key")


def test_log_probabilities_are_those_of_a_plain_forward_pass(lm: LM, tmp_path: Path) -> None:
    items = made_items()
    scores = logprobs(score_items(lm, items, PARAMS, work(tmp_path)))
    for one in items:
        assert scores[one.id] == pytest.approx(plain_item(lm, one), abs=1e-4)


@pytest.mark.parametrize(
    "changed", [{"batch_size": 1}, {"batch_size": 3}, {"batch_tokens": 1}, {"batch_tokens": 100}, {"batch_tokens": 10**6}]
)
def test_batches_do_not_matter(lm: LM, tmp_path: Path, changed: dict[str, int]) -> None:
    items = made_items()
    whole = score_items(lm, items, PARAMS, work(tmp_path / "whole"))
    other = score_items(lm, items, PARAMS.model_copy(update=changed), work(tmp_path / "other"))
    assert [score.prediction for score in whole] == [score.prediction for score in other]
    for a, b in zip(whole, other, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_order_of_items_does_not_matter(lm: LM, tmp_path: Path) -> None:
    items = made_items()
    backwards = score_items(lm, items[::-1], PARAMS, work(tmp_path / "b"))
    assert backwards[::-1] == score_items(lm, items, PARAMS, work(tmp_path / "a"))


def other_model(kind: str, size: int) -> torch.nn.Module:
    shape = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 4, "initializer_range": 0.3}
    heads = {"intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        match kind:
            case "soft_caps":
                return Gemma2ForCausalLM(Gemma2Config(**shape, **heads, final_logit_softcapping=2.0, sliding_window=24)).eval()
            case "eager":
                return Gemma2ForCausalLM(Gemma2Config(**shape, **heads, sliding_window=999, attn_implementation="eager")).eval()
            case "learned_positions":
                return GPT2LMHeadModel(
                    GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=140, initializer_range=0.3)
                ).eval()
        return MambaForCausalLM(MambaConfig(**shape, state_size=4)).eval()


@pytest.mark.parametrize(("kind", "shares"), [("soft_caps", True), ("eager", True), ("learned_positions", True), ("state_space", False)])
def test_other_architectures(lm: LM, tmp_path: Path, kind: str, shares: bool) -> None:
    """Soft-capped logits and sliding windows shorter than some items, eager attention, learned positions, no attention at all."""
    other = LM(other_model(kind, len(lm.tokenizer)), lm.tokenizer, torch.device("cpu"), torch.float32)
    items = made_items(12)
    assert keeps_branches_apart(other) == shares
    assert context_window(other) == {"soft_caps": 24, "eager": 999}.get(kind, math.inf)
    scores = logprobs(score_items(other, items, PARAMS, work(tmp_path)))
    for one in items:
        assert scores[one.id] == pytest.approx(plain_item(other, one), abs=1e-4)


def test_a_model_that_mixes_branches_is_found_out(lm: LM, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = lm.model.forward

    def blind(input_ids: torch.Tensor, position_ids: torch.Tensor | None = None, **others: object) -> object:
        return forward(input_ids=input_ids, position_ids=position_ids)

    assert keeps_branches_apart(lm)
    monkeypatch.setattr(lm.model, "forward", blind)
    assert not keeps_branches_apart(lm)


def test_a_row_that_is_too_long_for_a_mask_is_split(lm: LM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = made_items(6)
    whole = score_items(lm, items, PARAMS, work(tmp_path / "whole"))
    monkeypatch.setattr(scoring, "LONGEST_ROW", 60)
    for a, b in zip(whole, score_items(lm, items, PARAMS, work(tmp_path / "split")), strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("prompt", "separator", "max_tokens"),
    [("Question: {text}\nAnswer:", " ", 512), ("{text}", "\n", 512), ("{text}  ", "", 512), ("Question: {text}\nAnswer:", " ", 40)],
)
def test_agrees_with_lm_eval(lm: LM, tiny_lm_dir: Path, tmp_path: Path, prompt: str, separator: str, max_tokens: int) -> None:
    """The same log-likelihoods as lm-evaluation-harness; of an item that is too long, for its longest choice."""
    instance = pytest.importorskip("lm_eval.api.instance")
    hflm = pytest.importorskip("lm_eval.models.huggingface").HFLM
    peer = hflm(pretrained=str(tiny_lm_dir), device="cpu", dtype="float32", batch_size=4, max_length=max_tokens)
    items = made_items()
    pairs = [(prompt.replace("{text}", one.text), separator + choice) for one in items for choice in one.choices]
    requests = [instance.Instance("loglikelihood", {}, pair, k) for k, pair in enumerate(pairs)]
    theirs = iter(value for value, _greedy in peer.loglikelihood(requests, disable_tqdm=True))
    params = PARAMS.model_copy(update={"prompt": prompt, "separator": separator, "max_tokens": max_tokens})
    scores = score_items(lm, items, params, work(tmp_path))
    assert any(score.n_truncated for score in scores) == (max_tokens == 40)
    for one, score in zip(items, scores, strict=True):
        query, expected = encode_item(lm, one, params), [next(theirs) for _ in one.choices]
        assert isinstance(query, Query)
        fair = [k for k, tail in enumerate(query.tails) if not query.n_truncated or len(query.prefix) + len(tail) == query.span]
        assert [(score.logprobs or ())[k] for k in fair] == pytest.approx([expected[k] for k in fair], abs=1e-4)


def test_nan_makes_an_item_unscored_and_spoils_no_other(tiny_lm_dir: Path, tmp_path: Path) -> None:
    lm = load_lm(tiny_lm_dir, device="cpu")
    items = [
        item("Which one?", "owl", "tree", name="good"),
        item("Which one Z?", "owl", "tree", name="bad"),
        item("Old?", "no Z", "rice", name="half"),
    ]
    before = logprobs(score_items(lm, items, PARAMS, work(tmp_path / "before")))
    (token,) = lm.tokenizer("Z")["input_ids"]
    lm.model.get_input_embeddings().weight[token] = math.nan
    after = score_items(lm, items, PARAMS, work(tmp_path / "after"))
    assert after[0].logprobs == pytest.approx(before["good"], abs=1e-6)
    assert [score.reason for score in after] == [None, "not_finite", None]
    assert after[1].score is None
    lm.model.get_output_embeddings().weight[token] = math.nan
    broken = score_items(lm, items, PARAMS, work(tmp_path / "broken"))
    assert [score.score for score in broken] == [None] * 3
    assert summarise(items, broken) == {
        "n_items": 3, "n": 0, "n_unscored": 3, "n_truncated": 0, "unscored": {"not_finite": 3}, "benchmarks": {"b": {"n": 0, "n_unscored": 3}},
    }  # fmt: skip


def test_what_cannot_be_scored_says_why(lm: LM, tmp_path: Path) -> None:
    params = PARAMS.model_copy(update={"max_tokens": 12, "prompt": "{text}", "separator": ""})
    items = [item("Free?", name="f"), item("x", "a", " ", name="e"), item("Which?", "a", "long " * 12, name="l")]
    assert [score.reason for score in score_items(lm, items, params, work(tmp_path))] == ["no_choices", "empty_choice", "choice_too_long"]
    # A context that is wholly inside the first token of a choice leaves nothing to condition on.
    assert encode_item(lm, item("h", "e"), params) == "no_context"


@pytest.mark.parametrize("adds_bos", [False, True])
def test_long_items_lose_their_left_and_keep_the_begin_token(tmp_path: Path, adds_bos: bool) -> None:
    from tiny_lm import save_tiny_lm

    lm = load_lm(save_tiny_lm(tmp_path / "lm", adds_bos=adds_bos), device="cpu")
    one = item("the river and the old tree " * 5, "steam", "bread and rice")
    full = encode_item(lm, one, PARAMS)
    short = encode_item(lm, one, PARAMS.model_copy(update={"max_tokens": 24}))
    assert isinstance(full, Query)
    assert isinstance(short, Query)
    assert full.n_truncated == 0
    assert short.span - 1 == 24
    assert short.n_truncated == len(full.prefix) - len(short.prefix)
    bos = [lm.tokenizer.bos_token_id] * adds_bos
    assert short.prefix == bos + full.prefix[adds_bos + short.n_truncated :]
    assert full.prefix.count(lm.tokenizer.bos_token_id) == short.prefix.count(lm.tokenizer.bos_token_id) == adds_bos
    assert score_batch(lm, [short]) == pytest.approx([plain(lm, short.prefix + tail, short.start) for tail in short.tails], abs=1e-4)
    score = score_items(lm, [one], PARAMS.model_copy(update={"max_tokens": 24}), work(tmp_path))[0]
    assert score.n_truncated == short.n_truncated > 0
    assert summarise([one], [score])["n_truncated"] == 1


def test_the_begin_token_can_be_asked_for(lm: LM) -> None:
    query = encode_item(lm, item("Which?", "a", "b"), PARAMS.model_copy(update={"prepend_bos": True}))
    assert isinstance(query, Query)
    assert query.prefix.count(lm.tokenizer.bos_token_id) == 1
    assert query.prefix[0] == lm.tokenizer.bos_token_id


def test_control_strings_in_an_item_are_text(lm: LM) -> None:
    query = encode_item(lm, item("What is <|im_end|>?", "a <|im_start|>", "<|endoftext|>"), PARAMS)
    assert isinstance(query, Query)
    assert not {*query.prefix, *query.tails[0], *query.tails[1]} & set(lm.tokenizer.all_special_ids)


def test_a_token_across_the_boundary_is_scored_from_the_last_common_point(lm: LM) -> None:
    params = PARAMS.model_copy(update={"prompt": "{text}", "separator": ""})
    one = item("the ri", "ver", "xx")
    query = encode_item(lm, one, params)
    assert isinstance(query, Query)
    # "river" is one token: nothing of "ri" is context to it, so neither may it be to the other choice.
    assert lm.tokenizer.decode(query.prefix) == "the"
    assert query.start == len(query.prefix)
    for choice, tail in zip(one.choices, query.tails, strict=True):
        assert lm.tokenizer.decode(query.prefix + tail) == one.text + choice


def test_batches_keep_their_budgets(lm: LM) -> None:
    queries = [query for one in made_items(60) if isinstance(query := encode_item(lm, one, PARAMS), Query)]
    batches = plan_batches(queries, 300, 5, 1000)
    assert sorted(query.item_id for batch in batches for query in batch) == sorted(query.item_id for query in queries)
    for batch in batches:
        assert len(batch) <= 5
        if len(batch) > 1:
            assert len(batch) * max(query.n_tokens for query in batch) <= 300
    assert plan_batches(queries[::-1], 300, 5, 1000) == batches
    # A vocabulary so large that one item's logits fill the budget.
    assert all(len(batch) == 1 for batch in plan_batches(queries, 10**6, None, MAX_LOGITS))


def test_a_killed_run_goes_on_and_ends_the_same(lm: LM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items, params = made_items(), PARAMS.model_copy(update={"batch_size": 5})
    whole = score_items(lm, items, params, work(tmp_path / "whole"))
    shard, done, left = scoring._shard, [], []

    def killed(lm: LM, batch: list[Query]) -> bytes:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(batch)
        return shard(lm, batch)

    def going_on(lm: LM, batch: list[Query]) -> bytes:
        left.append(batch)
        return shard(lm, batch)

    monkeypatch.setattr(scoring, "_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        score_items(lm, items, params, work(tmp_path / "killed"))
    monkeypatch.setattr(scoring, "_shard", going_on)
    assert score_items(lm, items, params, work(tmp_path / "killed")) == whole
    assert sorted(query.item_id for batch in done + left for query in batch) == sorted(one.id for one in items)


def test_normalisers() -> None:
    one = item("?", "日本", "water", "abc", answer=1)
    # Sums -6, -9, -5; characters 2, 5, 3; bytes 6, 5, 3; tokens 1, 3, 2.
    given = [-6.0, -9.0, -5.0]
    predictions = {name: choose(one, given, name, [1, 3, 2]).prediction for name in ("none", "char", "byte", "token")}  # type: ignore[arg-type]
    assert predictions == {"none": "2", "char": "2", "byte": "0", "token": "2"}
    assert choose(one, [-6.0, -6.0, -9.0], "token", [2, 4, 3]) == ItemScore("a", 1.0, "1", (-6.0, -6.0, -9.0))
    assert choose(one, [-6.0, -9.0, -math.inf], "none", [1, 1, 1]) == ItemScore("a", reason="not_finite")


def test_wilson_interval() -> None:
    # 8 of 10, from the formula by hand: (0.8 + 0.19207 +- 1.96 sqrt(0.016 + 0.0096036)) / 1.38415.
    assert wilson_interval(0.8, 10) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert wilson_interval(0.0, 5)[0] == 0.0
    assert wilson_interval(1.0, 5)[1] == 1.0


def test_summary_by_hand() -> None:
    items = [item("?", "a", "b", name=f"p{k}", benchmark="p") for k in range(4)] + [item("?", *"abcd", name="q0", benchmark="q")]
    scores = [
        ItemScore("p0", 1.0),
        ItemScore("p1", 1.0),
        ItemScore("p2", 0.0),
        ItemScore("p3", reason="not_finite"),
        ItemScore("q0", 0.0, n_truncated=3),
    ]
    found = summarise(items, scores)
    assert found["accuracy"]["macro"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["accuracy"]["micro"] == pytest.approx(2 / 4)
    assert found["chance"] == pytest.approx({"macro": (0.5 + 0.25) / 2, "micro": (0.5 * 3 + 0.25) / 4})
    assert (found["n_items"], found["n"], found["n_unscored"], found["n_truncated"]) == (5, 4, 1, 1)
    assert (found["accuracy"]["micro_low"], found["accuracy"]["micro_high"]) == pytest.approx(wilson_interval(1 / 2, 4))
    low, high = wilson_interval(2 / 3, 3)
    assert found["benchmarks"]["p"] == pytest.approx({"n": 3, "n_unscored": 1, "accuracy": 2 / 3, "low": low, "high": high, "chance": 0.5})
    assert first_of_each(items, 2) == [items[0], items[1], items[4]]


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_command_is_byte_stable_and_writes_what_it_says(tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    items = [*made_items(), item("Free?", name="free", benchmark="c")]
    write_items(tmp_path / "items.jsonl", items)
    for name in ("one", "two"):
        code, output = run(
            "--model", tiny_lm_dir, "--items", "items.jsonl", "--output", name, "--metrics", f"{name}.json", "--normaliser", "char"
        )
        assert code == 0, output
    assert sha256_file(tmp_path / "one/scores.parquet") == sha256_file(tmp_path / "two/scores.parquet")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    table = SCORES.read(tmp_path / "one/scores.parquet").to_pydict()
    assert table["item_id"] == sorted(one.id for one in items)
    assert table["scored"].count(False) == 1
    assert table["chance"][table["item_id"].index("x")] == 0.5
    metrics = json.loads((tmp_path / "one.json").read_text())
    right = [score for score, scored in zip(table["score"], table["scored"], strict=True) if scored]
    assert metrics["accuracy"]["micro"] == pytest.approx(sum(right) / len(right))
    assert metrics["benchmarks"]["c"] == {"n": 0, "n_unscored": 1}
    assert metrics["unscored"] == {"no_choices": 1}
    assert not list((tmp_path / ".work/score").iterdir())


def test_command_takes_the_flags_of_lm_eval(tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_items(tmp_path / "items.jsonl", made_items())
    code, output = run(
        "--model", tiny_lm_dir, "--items", "items.jsonl", "--output", "out", "--batch_size", 4, "--limit", 7, "--device", "cpu"
    )
    assert code == 0, output
    assert SCORES.read(tmp_path / "out/scores.parquet").num_rows == 7


def test_command_scores_the_subject_of_a_key(tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_items(tmp_path / "items.jsonl", made_items(4))
    (tmp_path / "r.csv").write_text("id,right\ni00,1\ni01,0\n")
    source = {"kind": "path", "licence": "MIT", "path": "x", "sha256": "0" * 64}
    params = {
        "sources": {"here": source},
        "benchmarks": {"b": {"source": "here", "files": ["f"], "format": "items", "kind": "reading"}},
        "observers": {"o": {"source": "here", "name": "o", "layer": 1, "sae": {"kind": "path", "source": "here", "pin": "0" * 64}}},
        "models": {
            "tiny": {"source": "here", "name": "tiny"},
            "table": {"source": "here", "name": "table", "results": {"file": "r.csv", "score_column": "right"}},
        },
        "score": {"normaliser": "token"},
        "variants": {"enabled": False},
    }
    (tmp_path / "params.yaml").write_text(json.dumps(params))
    common = ("--params", "params.yaml", "--items", "items.jsonl")
    assert run(*common, "--model-key", "tiny", "--source", tiny_lm_dir, "--output", "tiny")[0] == 0
    assert run("--model", tiny_lm_dir, "--items", "items.jsonl", "--normaliser", "token", "--output", "same")[0] == 0
    assert sha256_file(tmp_path / "tiny/scores.parquet") == sha256_file(tmp_path / "same/scores.parquet")
    assert run(*common, "--model-key", "table", "--source", tmp_path, "--output", "table")[0] == 0
    assert SCORES.read(tmp_path / "table/scores.parquet")["score"].to_pylist()[:3] == [1.0, 0.0, None]
    code, output = run(*common, "--model-key", "other", "--source", tmp_path, "--output", "no")
    assert code == 2
    assert "known: tiny, table" in output


def test_command_refuses_in_one_line(tiny_lm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gapscope"])
    (tmp_path / "items.jsonl").write_text('{"id": "a", "text": "?", "choices": ["x", "y"], "answer": 5}\n')
    code, output = run("--model", tiny_lm_dir, "--items", "items.jsonl", "--output", "out")
    assert code == 1
    assert output == "gapscope score: items.jsonl:1: a: answer 5 with 2 choices\n"
    code, output = run("--model", tiny_lm_dir, "--results", "items.jsonl", "--items", "items.jsonl", "--output", "out")
    assert code == 2
    assert not (tmp_path / "out").exists()
