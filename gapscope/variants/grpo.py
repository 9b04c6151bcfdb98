"""Group-relative policy optimisation of the generator (GRPO, arXiv 2402.03300) by TRL, rewarded by the verifier.

Completions are sampled here and handed to TRL: prompts are encoded as text, and each row draws from numbers of its own
that depend on the seed and the step alone. A run that goes on from a checkpoint therefore ends in the same bytes.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from gapscope.errors import InputError
from gapscope.files import stable_hash
from gapscope.items import Item
from gapscope.lm import DTYPES, LM, load_lm
from gapscope.params_variants import GrpoParams
from gapscope.variants.filtering import Judge
from gapscope.variants.finetune import fast_dtype, freeze, quiet_libraries, resolve_bf16
from gapscope.variants.generator_prompts import generator_prompt
from gapscope.variants.rewards import PARTS, Attempt, rewards
from gapscope.variants.sampling import Sampling, encode_prompt, sample_tokens
from gapscope.variants.types import TYPES
from gapscope.work import WorkDirectory

logger = logging.getLogger(__name__)


@dataclass
class Optimised:
    """The generator after training, a row of measures a step, and counts of prompts and of groups without a difference."""

    lm: LM
    curve: list[dict[str, float]]
    counts: dict[str, int] = field(default_factory=dict)


def require_vllm(params: GrpoParams) -> None:
    """Refuse ``grpo.vllm`` where it cannot work; costs nothing and comes before any model is loaded."""
    if not params.vllm:
        return
    if importlib.util.find_spec("vllm") is None:
        raise InputError("vllm is not installed", field="grpo.vllm", fix="pip install vllm, or set grpo.vllm to false")
    if not torch.cuda.is_available():
        raise InputError("vllm needs a GPU and there is none", field="grpo.vllm", fix="set grpo.vllm to false")


def ask_rows(lm: LM, originals: Sequence[Item], params: GrpoParams, seed: int) -> tuple[list[dict[str, str]], int]:
    """Prompts in seeded order, the types in turn, each with its original's id; and how many were too long.

    Raises:
        InputError: none is left.
    """
    order = sorted(originals, key=lambda item: (stable_hash(seed, "grpo", item.id), item.id))
    asks = [(order[(place + shift) % len(order)], slug) for place in range(len(order)) for shift, slug in enumerate(TYPES)]
    kept = [(item, slug) for item, slug in asks if len(encode_prompt(lm, generator_prompt(item, slug))) <= params.max_prompt_tokens]
    if not kept:
        raise InputError("every prompt is longer than that", field="grpo.max_prompt_tokens", fix="raise it")
    return [{"prompt": generator_prompt(item, slug), "original": item.id, "slug": slug} for item, slug in kept], len(asks) - len(kept)


def optimise(
    generator_dir: Path, originals: Sequence[Item], judge: Judge, params: GrpoParams, work: WorkDirectory, *, seed: int, device: str
) -> Optimised:
    """Train the generator in a directory for ``params.steps`` steps, going on from a checkpoint in ``work`` if there is one.

    Raises:
        InputError: no prompt is short enough, the loss is not finite, or for ``max_zero_variance`` steps no group had
            rewards that differ.
    """
    lm = load_lm(generator_dir, "float32", device)
    if lm.tokenizer.eos_token_id is None:
        raise InputError("this tokenizer has no end-of-text token, so no completion would end", file=generator_dir)
    rows, n_too_long = ask_rows(lm, originals, params, seed)
    torch.manual_seed(seed)
    freeze(lm, params.trained_layers)
    last = max(work.path.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]), default=None)
    with quiet_libraries():
        trainer = _trainer(lm, rows, _reward({item.id: item for item in originals}, judge), params, work.path, seed)
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    curve = [_point(entry) for entry in trainer.state.log_history if "reward" in entry]
    lm.model.eval().requires_grad_(False)
    zero = sum(round(point["zero_variance"] * params.batch_size / params.num_generations) for point in curve)
    return Optimised(
        lm, curve, {"n_prompts": len(rows), "n_too_long": n_too_long, "n_steps": len(curve), "n_groups_without_difference": zero}
    )


def _point(entry: dict[str, Any]) -> dict[str, float]:
    """One step of TRL's log in our words."""
    point = {
        "step": int(entry["step"]),
        "reward": entry["reward"],
        "reward_spread": entry["reward_std"],
        "zero_variance": entry["frac_reward_zero_std"],
        "tokens": entry["completions/mean_length"],
        "ended": 1 - entry["completions/clipped_ratio"],
        "kl": entry["kl"],
        "loss": entry["loss"],
    }
    parts = {part: float(entry[part]) for part in PARTS}
    return {**point, **parts, "earning": 1 - sum(parts.values())}


def _reward(originals: dict[str, Item], judge: Judge) -> Callable[..., list[float]]:
    """A reward function as TRL calls it."""

    def valid(
        completions: list[str], completion_ids: list[list[int]], original: list[str], slug: list[str], ended: list[bool], log_metric: Any,
        **_others: Any,
    ) -> list[float]:  # fmt: skip
        tried = [
            Attempt(originals[name], kind, text, len(ids), end)
            for name, kind, text, ids, end in zip(original, slug, completions, completion_ids, ended, strict=True)
        ]
        found = rewards(tried, judge)
        for part in PARTS:
            log_metric(part, sum(one.reason == part for one in found) / len(found))
        return [one.value for one in found]

    return valid


def _trainer(lm: LM, rows: list[dict[str, str]], reward: Callable[..., list[float]], params: GrpoParams, place: Path, seed: int) -> Any:
    from datasets import Dataset
    from trl import GRPOTrainer

    return GRPOTrainer(
        model=lm.model,
        reward_funcs=[reward],
        args=_config(lm, params, place, seed),
        train_dataset=Dataset.from_list(rows),
        processing_class=lm.tokenizer,
        rollout_func=None if params.vllm else _Rollouts(lm, params, seed),
        callbacks=[_guard(params)],
    )


def _config(lm: LM, params: GrpoParams, place: Path, seed: int) -> Any:
    """Every setting of TRL's that matters, given and not left to a default of its release."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(place),
        max_steps=params.steps,
        per_device_train_batch_size=params.batch_size,
        num_generations=params.num_generations,
        gradient_accumulation_steps=1,
        num_iterations=1,
        max_completion_length=params.max_new_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=0,
        repetition_penalty=1.0,
        learning_rate=params.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=max(1, params.steps // 10),
        weight_decay=0.0,
        max_grad_norm=1.0,
        beta=params.beta,
        epsilon=params.epsilon,
        loss_type="dapo",
        scale_rewards="group",
        importance_sampling_level="token",
        mask_truncated_completions=True,
        use_bias_correction_kl=True,
        disable_dropout=True,
        shuffle_dataset=False,
        remove_unused_columns=False,
        model_init_kwargs=None,
        # Master weights are float32, as loaded; only the arithmetic of a step is bfloat16.
        bf16=resolve_bf16(lm.device),
        fp16=False,
        gradient_checkpointing=False,
        use_cpu=lm.device.type == "cpu",
        use_vllm=params.vllm,
        vllm_mode="colocate",
        seed=seed,
        data_seed=seed,
        save_strategy="steps",
        save_steps=params.save_steps,
        save_total_limit=1,
        report_to="none",
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        log_completions=False,
        disable_tqdm=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
    )


class _Rollouts:
    """Samples a step's completions from the policy, in the precision that is fast on the device."""

    def __init__(self, lm: LM, params: GrpoParams, seed: int) -> None:
        dtype = DTYPES[fast_dtype(lm.device.type)]
        self._policy, self._seed = lm, seed
        self._how = Sampling(params.max_new_tokens, params.temperature, params.top_p)
        self._fast = replace(lm, model=copy.deepcopy(lm.model).to(dtype).eval().requires_grad_(False), dtype=dtype)

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Token ids of prompts and completions, and which completions ended."""
        with torch.no_grad():
            for mine, theirs in zip(self._fast.model.parameters(), self._policy.model.parameters(), strict=True):
                if theirs.requires_grad:
                    mine.copy_(theirs)
        ids = [encode_prompt(self._fast, prompt) for prompt in prompts]
        seeds = [stable_hash(self._seed, "rollout", trainer.state.global_step, row) for row in range(len(prompts))]
        written = sample_tokens(self._fast, ids, seeds, self._how)
        end = int(self._fast.tokenizer.eos_token_id)
        return {"prompt_ids": ids, "completion_ids": written, "logprobs": None, "ended": [row[-1] == end for row in written]}


def _guard(params: GrpoParams) -> Any:
    """Stops a training that has nothing to learn from, or whose loss is no number."""
    from transformers import TrainerCallback

    class Guard(TrainerCallback):  # type: ignore[misc]
        idle = 0

        def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, Any] | None = None, **_others: Any) -> None:
            if logs is None or "reward" not in logs:
                return
            if not all(math.isfinite(logs[name]) for name in ("loss", "grad_norm", "kl", "reward")):
                raise InputError(f"step {state.global_step}: the loss is not finite", field="grpo.learning_rate", fix="lower it")
            self.idle = self.idle + 1 if logs["frac_reward_zero_std"] == 1.0 else 0
            if self.idle >= params.max_zero_variance:
                message = f"for {self.idle} steps all completions of a prompt earned the same, so there was nothing to learn"
                raise InputError(message, field="grpo.max_zero_variance", fix="raise grpo.temperature, or train the generator for longer")

    return Guard()
