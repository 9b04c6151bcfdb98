"""GRPO on a tiny random model: same bytes twice and after a kill, and what cannot work is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from tiny_models import save_long_lm, seed_sets

from gapscope.errors import InputError
from gapscope.files import sha256_tree
from gapscope.items import Item
from gapscope.lm import load_lm
from gapscope.params_variants import FineTuneParams, GrpoParams, VerifierParams
from gapscope.variants import grpo
from gapscope.variants.finetune import Example, fine_tune, save_model
from gapscope.variants.generator_prompts import generator_prompt
from gapscope.variants.grpo_stage import write_grpo
from gapscope.variants.rewards import Attempt, Reward
from gapscope.variants.seed_sets import read_split
from gapscope.variants.tables import CURVES
from gapscope.variants.types import TYPES
from gapscope.variants.verifier import Verdict

PARAMS = GrpoParams(
    steps=4, num_generations=2, batch_size=4, max_new_tokens=8, max_prompt_tokens=2000, trained_layers=1, learning_rate=0.01, save_steps=2,
    check_families=1,
)  # fmt: skip


class Judge:
    def judge(self, pairs: Sequence[tuple[Item, Item, str]]) -> list[Verdict]:
        return [Verdict(True, True, True, True, 0.5) for _ in pairs]


def by_letters(attempts: Sequence[Attempt], _judge: object) -> list[Reward]:
    """A random model writes nothing that parses: reward the letter e instead, so that groups differ."""
    return [Reward(one.completion.count("e") / 10, None) for one in attempts]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("grpo")
    seeds = seed_sets(root)
    # A random model never comes to an end, and what is cut does not enter the loss: teach it to stop first.
    prompts = [generator_prompt(item, slug) for item in read_split(seeds, "train")[1].values() for slug in TYPES]
    examples = [Example(prompt, "e" * (1 + place % 3)) for place, prompt in enumerate(prompts)]
    how = FineTuneParams(steps=40, batch_size=4, learning_rate=0.02, trained_layers=2, max_tokens=2000)
    save_model(fine_tune(save_long_lm(root / "random"), examples, how, seed=0, device="cpu", threads=1).lm, root / "generator")
    return root


def run(inputs: Path, where: Path, params: GrpoParams = PARAMS, work: Path | None = None) -> dict[str, Any]:
    place = work or where / "work"
    how: dict[str, Any] = {"seed": 3, "device": "cpu", "threads": 1}
    return write_grpo(inputs / "split", inputs / "generator", where / "out", where / "plots", Judge(), [], params, place, **how)


@pytest.fixture(scope="module")
def whole(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "rewards", by_letters)
        metrics = run(inputs, where)
    (where / "metrics.json").write_text(json.dumps(metrics))
    return where


def test_it_learns_something_and_says_how(whole: Path, inputs: Path) -> None:
    metrics = json.loads((whole / "metrics.json").read_text())
    report = json.loads((whole / "out/report.json").read_text())
    assert metrics["n_steps"] == 4 and [point["step"] for point in report["curve"]] == [1, 2, 3, 4]
    assert report["curve"][-1]["kl"] > 0 and 0 <= report["curve"][0]["ended"] <= 1
    assert metrics["check"]["before"]["n"] == metrics["check"]["after"]["n"] == 7
    assert metrics["check"]["after"]["unparsable"] == 1.0
    assert {path.stem for path in (whole / "plots").glob("*.json")} == set(CURVES)
    before, after = load_lm(inputs / "generator"), load_lm(whole / "out")
    learnt = "model.layers.2.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"
    same = [torch.equal(before.model.state_dict()[name], after.model.state_dict()[name]) for name in learnt]
    assert same == [False, True], "the last block learns and the others stay"
    assert not list((whole / "work").rglob("checkpoint-*"))


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(
    inputs: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {"n": 0}

    def killed(attempts: Sequence[Attempt], judge: object) -> list[Reward]:
        calls["n"] += 1
        if calls["n"] == 4:
            raise KeyboardInterrupt
        return by_letters(attempts, judge)

    monkeypatch.setattr(grpo, "rewards", killed)
    with pytest.raises(KeyboardInterrupt):
        run(inputs, tmp_path)
    assert [path.name for path in (tmp_path / "work").rglob("checkpoint-*")] == ["checkpoint-2"]
    assert not (tmp_path / "out").exists()
    run(inputs, tmp_path)
    assert calls["n"] == 6, "steps 3 and 4 alone are done again"
    assert sha256_tree(tmp_path / "out") == sha256_tree(whole / "out")
    assert sha256_tree(tmp_path / "plots") == sha256_tree(whole / "plots")


def test_groups_without_a_difference_are_counted_and_stop_the_stage_in_the_end(inputs: Path, tmp_path: Path) -> None:
    metrics = run(inputs, tmp_path, PARAMS.model_copy(update={"steps": 2}))
    assert metrics["n_groups_without_difference"] == 4 and metrics["reward"] == {"first": 0.0, "last": 0.0}
    with pytest.raises(InputError, match="for 2 steps all completions of a prompt earned the same"):
        run(inputs, tmp_path, PARAMS.model_copy(update={"max_zero_variance": 2}))


def test_a_loss_that_is_no_number_stops(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(attempts: Sequence[Attempt], _judge: object) -> list[Reward]:
        return [Reward(float("inf") if k else 0.0, None) for k, _one in enumerate(attempts)]

    monkeypatch.setattr(grpo, "rewards", endless)
    with pytest.raises(InputError, match="step 1: the loss is not finite"):
        run(inputs, tmp_path)


def test_prompts_that_are_too_long_are_counted(inputs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"grpo\.max_prompt_tokens: every prompt is longer"):
        run(inputs, tmp_path, PARAMS.model_copy(update={"max_prompt_tokens": 5}))


def test_vllm_is_refused_before_anything_loads() -> None:
    with pytest.raises(InputError, match=r"grpo\.vllm: vllm"):
        grpo.require_vllm(GrpoParams(vllm=True))
    grpo.require_vllm(GrpoParams())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GrpoParams(batch_size=12), r"batch_size \(12\) must be a multiple of num_generations \(8\): 8, 16, 24"),
        (lambda: GrpoParams(num_generations=1, batch_size=1), "greater than or equal to 2"),
        (lambda: GrpoParams(beta=0.0), "greater than 0"),
        (lambda: GrpoParams(epsilon=1.0), "less than 1"),
        (lambda: GrpoParams(temperature=0.0), "greater than 0"),
        (lambda: FineTuneParams(layers=4, trained_layers=5), r"trained_layers \(5\) is more than the 4 layers"),
        (lambda: VerifierParams(tuned_share=0.8, stack_share=0.3), "together at most 1"),
    ],
)
def test_parameters_that_cannot_work_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()
