"""Supervised fine-tuning of a causal LM on prompts and completions, by TRL's SFTTrainer.

Rows are tokenised here and handed over as ids and labels, so that training reads exactly what scoring reads: text stays
text, prompts are an exact prefix of their rows and never cut, only the completion is supervised, and its last token is
the end-of-text token.
"""

from __future__ import annotations

import contextlib
import logging
import math
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gapscope.choice_tokens import adds_bos
from gapscope.errors import InputError
from gapscope.lm import LM, blocks, encode_text, load_lm, pad_id, pick_device
from gapscope.params_variants import FineTuneParams

logger = logging.getLogger(__name__)
IGNORED = -100


@dataclass(frozen=True)
class Example:
    """One prompt and the completion to learn, as text."""

    prompt: str
    completion: str


@dataclass
class FineTuned:
    """A fine-tuned model in evaluation mode, and how it went.

    ``losses`` are (step, mean loss since the last entry); ``counts`` holds n_rows, n_too_long, n_steps, n_supervised.
    """

    lm: LM
    losses: list[tuple[int, float]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def encode_example(tokenizer: Any, example: Example, bos: bool) -> tuple[list[int], list[int]]:
    """Token ids and labels of a row; labels are IGNORED on the prompt, and the last one is the end-of-text token.

    Raises:
        InputError: nothing of the row would be supervised, or the tokenizer has no end-of-text token.
    """
    if tokenizer.eos_token_id is None:
        raise InputError("this tokenizer has no end-of-text token, so the model would never learn to stop", field="sft")
    prompt = encode_text(tokenizer, example.prompt, prepend_bos=bos).ids
    encoding = encode_text(tokenizer, example.prompt + example.completion, prepend_bos=bos)
    # A token that spans the boundary belongs to the completion; the rest of the prompt is a prefix by construction.
    start = sum(end <= len(example.prompt) for _begin, end in encoding.offsets)
    if encoding.ids[:start] != prompt[:start] or len(encoding.ids) == start:
        raise InputError(f"a row has no supervised token after its prompt: {example.completion!r}", field="sft")
    ids = [*encoding.ids, int(tokenizer.eos_token_id)]
    return ids, [IGNORED] * start + ids[start:]


def encode_examples(lm: LM, examples: Sequence[Example], max_tokens: int) -> tuple[list[dict[str, list[int]]], int]:
    """Rows of input_ids and labels, and how many were left out because they exceed ``max_tokens``.

    Raises:
        InputError: as :func:`encode_example`, or no row is left.
    """
    bos = adds_bos(lm.tokenizer)
    rows = []
    for example in examples:
        ids, labels = encode_example(lm.tokenizer, example, bos)
        if len(ids) <= max_tokens:
            rows.append({"input_ids": ids, "labels": labels})
    if not rows:
        raise InputError(f"every training row is longer than {max_tokens} tokens", field="sft.max_tokens", fix="raise it")
    return rows, len(examples) - len(rows)


def cut(lm: LM, layers: int | None) -> None:
    """Drop the blocks after the first ``layers`` of them: the final norm and the output layer then read an earlier state."""
    held = blocks(lm.model)
    if layers is None or layers >= len(held):
        return
    del held[layers:]
    config = lm.model.config.get_text_config()
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]


def freeze(lm: LM, trained_layers: int | None) -> None:
    """Let only the last ``trained_layers`` blocks and what follows them learn, or everything where that is None.

    What learns is held in float32 (the master weights that bfloat16 updates would lose); tied input and output
    embeddings stay as they are unless everything learns.
    """
    model = lm.model
    if trained_layers is None:
        model.float().requires_grad_(True)
        return
    model.requires_grad_(False)
    layers = blocks(model)
    learning = list(layers[max(0, len(layers) - trained_layers) :])
    norm = getattr(getattr(model, model.base_model_prefix), "norm", None)
    for module in [*learning, *([norm] if norm is not None else [])]:
        module.float().requires_grad_(True)


def fine_tune(model_dir: Path, examples: Sequence[Example], params: FineTuneParams, *, seed: int, device: str, threads: int) -> FineTuned:
    """Fine-tune the model in a directory on the examples, in the order that the seed gives, for ``params.steps`` steps.

    Where that is null, one pass is made. The forward pass runs in bfloat16 where the device is fast at it.

    Raises:
        InputError: as :func:`encode_examples`, or the loss is not finite.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    lm = load_lm(model_dir, "float32", device)
    rows, n_too_long = encode_examples(lm, examples, params.max_tokens)
    cut(lm, params.layers)
    freeze(lm, params.trained_layers)
    steps = params.steps or math.ceil(len(rows) / params.batch_size)
    losses = _train(lm, rows, params, steps, seed)
    lm.model.eval().requires_grad_(False)
    supervised = sum(label != IGNORED for row in rows for label in row["labels"])
    counts = {"n_rows": len(rows), "n_too_long": n_too_long, "n_steps": steps, "n_supervised": supervised}
    return FineTuned(lm, losses, counts)


def _trainer_class() -> Any:
    """TRL's SFTTrainer, with the loss at the supervised positions alone.

    TRL runs the output layer at every position: with 12 supervised tokens in a row of 250, that is most of a step.
    """
    from trl import SFTTrainer

    class Trainer(SFTTrainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:  # noqa: ARG002
            labels = inputs["labels"]
            rows, columns = torch.nonzero(labels[:, 1:] != IGNORED, as_tuple=True)
            with _output_layer_at(self.accelerator.unwrap_model(model), rows, columns):
                output = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
            logits, targets = output.logits[0].float(), labels[rows, columns + 1]
            total = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
            return total / (len(targets) if num_items_in_batch is None else num_items_in_batch)

    return Trainer


@contextlib.contextmanager
def _output_layer_at(model: Any, rows: torch.Tensor, columns: torch.Tensor) -> Iterator[None]:
    """While open, the output layer sees the given positions only, as one row: (1, positions, width)."""
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _module, inputs: (inputs[0][rows, columns].unsqueeze(0),))
    try:
        yield
    finally:
        handle.remove()


def _train(lm: LM, rows: list[dict[str, list[int]]], params: FineTuneParams, steps: int, seed: int) -> list[tuple[int, float]]:
    from datasets import Dataset
    from trl import SFTConfig
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    with tempfile.TemporaryDirectory() as scratch, quiet_libraries():
        config = SFTConfig(
            output_dir=scratch,
            max_steps=steps,
            per_device_train_batch_size=params.batch_size,
            learning_rate=params.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=max(1, steps // 10),
            weight_decay=0.0,
            max_grad_norm=1.0,
            max_length=None,
            packing=False,
            completion_only_loss=True,
            dataset_kwargs={"skip_prepare_dataset": True},
            bf16=resolve_bf16(lm.device),
            fp16=False,
            gradient_checkpointing=False,
            use_cpu=lm.device.type == "cpu",
            seed=seed,
            data_seed=seed,
            save_strategy="no",
            report_to="none",
            logging_steps=1,
            # Left on, a loss that is no number would be logged as the mean of those before it.
            logging_nan_inf_filter=False,
            disable_tqdm=True,
            dataloader_num_workers=0,
            dataloader_pin_memory=False,
        )
        trainer = _trainer_class()(
            model=lm.model,
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=lm.tokenizer,
            data_collator=DataCollatorForLanguageModeling(pad_token_id=pad_id(lm.tokenizer)),
        )
        trainer.train()
        # Left wrapped, the model would go on to compute as in training, and otherwise than when it is loaded again.
        trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
        losses = [(int(entry["step"]), float(entry["loss"])) for entry in trainer.state.log_history if "loss" in entry]
    if not losses or not all(math.isfinite(loss) for _step, loss in losses):
        raise InputError("the loss is not finite", field="sft.learning_rate", fix="lower it")
    return losses


def resolve_bf16(device: torch.device) -> bool:
    """Whether to run the forward pass in bfloat16: on a GPU that has it, and on a CPU with instructions for it."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.backends.cpu.get_cpu_capability() != "DEFAULT" and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def fast_dtype(device: str) -> str:
    """The precision in which models are only asked: bfloat16 where the device is fast at it, else float32."""
    return "bfloat16" if resolve_bf16(pick_device(device)) else "float32"


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """While open, training libraries print nothing and do not warn of names that newer releases will spell otherwise."""
    with contextlib.redirect_stdout(None), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
        yield


def save_model(lm: LM, directory: Path) -> None:
    """Write a model and its tokenizer by save_pretrained: safetensors, no pickle."""
    lm.model.save_pretrained(directory, safe_serialization=True)
    lm.tokenizer.save_pretrained(directory)
