"""Train an SAE on a model's own activations with SAELens's trainer, and measure it on documents that it never saw.

Two phases. Activations are read once and kept in resumable shards (bf16, in plan order); optimisation is over them, in
memory, several times, and starts again when it was interrupted: SAELens does not restore every random state. With the same
seed, machine and number of threads the saved bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE, BatchTopKTrainingSAEConfig, LoggingConfig
from sae_lens.config import SAETrainerConfig
from sae_lens.saes.sae import SAEMetadata
from sae_lens.training.sae_trainer import SAETrainer

from gapscope.batches import plan_batches, plan_shards
from gapscope.documents import Part, token_windows, usable_tokens
from gapscope.errors import InputError
from gapscope.files import dump_json, stable_hash, write_bytes
from gapscope.lm import LM, check_layer, pad_batch, pad_id, read_residual, special_ids
from gapscope.params import TrainSaeParams
from gapscope.progress import bar
from gapscope.sae import MAX_NORM_RATIO
from gapscope.sae_metrics import Reconstruction, loss_recovered, measure
from gapscope.sae_model import SparseBatchTopK
from gapscope.work import WorkDirectory

DEAD_AFTER_TOKENS = 60_000
"""A latent silent for so many training tokens gets the auxiliary loss."""

CALIBRATION_TOKENS = 16_384
LOSS_WINDOWS = 8
"""Held-out windows on which the model itself is run with the reconstruction in place of its activations."""


@dataclass(frozen=True)
class Trained:
    """A trained SAE's held-out figures, and what the training read."""

    heldout: Reconstruction
    loss_recovered: float | None
    n_train: int
    n_shortened: int
    n_documents: int


def train_sae(
    lm: LM, documents: list[str], layer: int, params: TrainSaeParams, output: Path, work: WorkDirectory, *, name: str, seed: int
) -> Trained:
    """Train an SAE on the residual stream after block ``layer`` and save it in SAELens's format.

    Args:
        lm: the observer.
        documents: the corpus, in the order of :func:`gapscope.documents.read_documents`.
        name: what the SAE's metadata calls the observer.
        output: an existing directory for cfg.json and sae_weights.safetensors.
        work: where activations are kept between runs.
        seed: of the initial weights and of the order of the tokens.

    Raises:
        InputError: the layer does not exist, the corpus is too small, an activation or the loss is not finite.
    """
    check_layer(lm, layer)
    if lm.max_positions is not None and params.context_size > lm.max_positions:
        raise InputError(f"{params.context_size} tokens are more than the model's {lm.max_positions}", field="train_sae.context_size")
    windows = {part: part_windows(lm, documents, part, params) for part in ("train", "heldout")}
    train, n_shortened = shortened(cached_activations(lm, windows["train"], layer, params, work, "train"))
    heldout = cached_activations(lm, windows["heldout"], layer, params, work, "heldout")
    sae = optimise(train, params, seed, lm.device)
    save(sae, output, _metadata(name, layer, params))
    loaded = SAE.load_from_disk(output, device=str(lm.device), dtype="float32")
    return Trained(
        heldout=measure(loaded, heldout, MAX_NORM_RATIO),
        loss_recovered=loss_recovered(lm, loaded, layer, windows["heldout"][:LOSS_WINDOWS]),
        n_train=len(train),
        n_shortened=n_shortened,
        n_documents=len(documents),
    )


def part_windows(lm: LM, documents: list[str], part: Part, params: TrainSaeParams) -> list[list[int]]:
    """One part's token windows within its budget of params.

    Raises:
        InputError: there are too few tokens for one training batch, or none to measure on.
    """
    budget = params.train_tokens if part == "train" else params.heldout_tokens
    bos = params.prepend_bos
    found = token_windows(lm.tokenizer, documents, part, context=params.context_size, prepend_bos=bos, budget=budget)
    windows = [window.ids for window in found]
    needed = params.batch_tokens if part == "train" else 1
    if (n := usable_tokens(windows)) < needed:
        fix = "give a larger corpus, or lower train_sae.batch_tokens"
        raise InputError(f"the {part} part of the corpus has {n} tokens, {needed} are needed", field="corpus", fix=fix)
    return windows


def cached_activations(
    lm: LM, windows: list[list[int]], layer: int, params: TrainSaeParams, work: WorkDirectory, name: str
) -> torch.Tensor:
    """Activations (n, width) of all text tokens of the windows but first positions, bf16, computed once for a work directory."""
    lengths = [len(window) for window in windows]
    shards = plan_shards(plan_batches(lengths, params.batch_tokens), lengths)
    parts: list[torch.Tensor] = []
    with bar(f"activations ({name})", usable_tokens(windows), "tok") as progress:
        for number, batches in enumerate(shards):
            batch_windows = [[windows[index] for index in batch] for batch in batches]
            data = work.shard(f"{name}-{number:05d}.bf16", lambda batch_windows=batch_windows: _shard(lm, batch_windows, layer))  # type: ignore[misc]
            parts.append(torch.frombuffer(bytearray(data), dtype=torch.bfloat16).reshape(-1, lm.width))
            progress.update(len(parts[-1]))
    return torch.cat(parts)


def _shard(lm: LM, batches: list[list[list[int]]], layer: int) -> bytes:
    special = torch.tensor(sorted(special_ids(lm.tokenizer)), device=lm.device)
    rows: list[torch.Tensor] = []
    for windows in batches:
        ids, mask = pad_batch(windows, pad_id(lm.tokenizer), lm.device)
        residual = read_residual(lm, ids, mask, layer)
        keep = mask.bool() & ~torch.isin(ids, special)
        keep[:, 0] = False
        rows.append(residual[keep].to("cpu", torch.bfloat16))
    data = torch.cat(rows)
    if not bool(torch.isfinite(data).all()):
        raise InputError(f"activations after block {layer} are not finite", field="dtype", fix="use float32 or bfloat16")
    return data.view(torch.int16).numpy().tobytes()


def shortened(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Rows with none longer than MAX_NORM_RATIO medians, and how many were cut down to that.

    Attention sinks at full length would rule the loss; without any, the SAE would overshoot on them without bound.
    """
    norms = torch.cat([rows.float().norm(dim=1) for rows in x.split(65_536)])
    limit = MAX_NORM_RATIO * norms.median()
    long = torch.nonzero(norms > limit).squeeze(1)
    x = x.clone()
    x[long] = (x[long].float() * (limit / norms[long])[:, None]).to(x.dtype)
    return x, len(long)


def batches_of(x: torch.Tensor, size: int, seed: int) -> Iterator[torch.Tensor]:
    """Batches (size, width) in fp32 for ever: epochs in an order given by the seed, the rest of an epoch left out."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for rows in torch.randperm(len(x), generator=generator).split(size):
            if len(rows) == size:
                yield x[rows].float()


def optimise(x: torch.Tensor, params: TrainSaeParams, seed: int, device: torch.device) -> SparseBatchTopK:
    """Fit an SAE to activations (n, width), its activation scale folded in and its threshold calibrated."""
    size = params.batch_tokens
    sample = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:CALIBRATION_TOKENS]].float()
    with torch.random.fork_rng():
        torch.manual_seed(stable_hash("train-sae", seed) % 2**63)
        sae = SparseBatchTopK(
            BatchTopKTrainingSAEConfig(
                d_in=x.shape[1],
                d_sae=params.d_sae,
                k=params.k,
                device=str(device),
                normalize_activations="expected_average_only_in",
            )
        )
    config = SAETrainerConfig(
        total_training_samples=params.steps * size,
        train_batch_size_samples=size,
        lr=params.learning_rate,
        lr_end=params.learning_rate / 10,
        lr_warm_up_steps=params.steps // 20,
        lr_decay_steps=params.steps // 3,
        dead_feature_window=max(1, DEAD_AFTER_TOKENS // size),
        device=str(device),
        logger=LoggingConfig(log_to_wandb=False),
    )
    trainer = SAETrainer(config, sae, batches_of(x, size, seed))
    scale = float(x.shape[1] ** 0.5 / sample.norm(dim=1).mean())
    trainer.activation_scaler.scaling_factor = scale
    sae.b_dec.data = (sample.mean(0) * scale).to(device)
    _run(trainer, params.steps)
    sae.fold_activation_norm_scaling_factor(scale)
    sae.calibrate(sample.to(device))
    return sae


def _run(trainer: Any, steps: int) -> None:
    """SAETrainer's own steps. Its ``fit`` does the same behind a progress bar that cannot be silenced or put in our place."""
    with bar("training the SAE", steps, "step") as progress:
        while trainer.n_training_steps < steps:
            output = trainer.step(next(trainer.data_provider))
            trainer.n_training_steps += 1
            progress.update()
            if trainer.n_training_steps % 20 == 0:
                dead = int(trainer.dead_neurons.sum())
                progress.set_postfix(loss=f"{output.losses['mse_loss'].item():.1f}", silent=dead, refresh=False)


def _metadata(name: str, layer: int, params: TrainSaeParams) -> dict[str, Any]:
    return {
        "model_name": name,
        "hook_name": f"blocks.{layer}.hook_resid_post",
        "hook_layer": layer,
        "context_size": params.context_size,
        "prepend_bos": params.prepend_bos,
        "dataset_path": "corpus",
        "training_tokens": params.train_tokens,
        "training_steps": params.steps,
    }


def save(sae: SparseBatchTopK, output: Path, metadata: dict[str, Any]) -> None:
    """Save for inference as SAELens does, with metadata and with a cfg.json of sorted keys (SAELens's order is random)."""
    sae.cfg.metadata = SAEMetadata(**metadata)
    sae.save_inference_model(output)
    config = sae.cfg.get_inference_sae_cfg_dict() | {"device": "cpu"}
    config["metadata"] = config["metadata"] if isinstance(config["metadata"], dict) else config["metadata"].to_dict()
    write_bytes(output / "cfg.json", (dump_json(config, indent=2) + "\n").encode())
