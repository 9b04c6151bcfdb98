"""The sft stage: a verifier and a generator, fine-tuned and written."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.files import atomic_directory, rounded, stable_hash, write_json
from gapscope.variants.finetune import Example, fine_tune, save_model
from gapscope.variants.generator_prompts import generator_completion, generator_prompt
from gapscope.variants.measures import ALL
from gapscope.variants.seed_sets import read_split
from gapscope.variants.splits import DEVELOPMENT, HELDOUT, TRAIN
from gapscope.variants.tables import VERIFIERS, calibration_points, columns, verifier_bars, write_plot
from gapscope.variants.verifier import KINDS
from gapscope.variants.verifier_training import BASELINES, Trained, Workplace, train_verifier

logger = logging.getLogger(__name__)
HEADLINE = ("accuracy", "balanced_accuracy", "f1", "auroc", "ece_before", "ece_after")


def write_sft(seeds_dir: Path, verifier_dir: Path, generator_dir: Path, plots: Path, place: Workplace) -> dict[str, Any]:
    """Train both, write their directories and the plots' data; returns the headline metrics.

    ``verifier_dir`` gets ``verifier.json``, ``scores.parquet``, ``report.json`` and the fine-tuned model where the kept
    verifier uses one; ``generator_dir`` a model directory with ``report.json``.

    Raises:
        InputError: the model, the encoder or the seeds are at fault, or a loss is not finite.
    """
    trained = train_verifier(seeds_dir, place)
    metrics = _headline(trained)
    with atomic_directory(verifier_dir) as directory:
        trained.settings.write(directory)
        VERIFIERS.write(directory / "scores.parquet", columns(trained.scores))
        write_json(directory / "report.json", trained.report | {"heldout": _flat(metrics["heldout"])})
        if trained.tuned is not None:
            save_model(trained.tuned, directory / str(trained.settings.form))
    with atomic_directory(plots) as directory:
        write_plot(directory / "verifiers.json", verifier_bars(trained.scores, HELDOUT))
        write_plot(directory / "calibration.json", calibration_points(trained.heldout[0][:, -1], trained.heldout[1][:, -1]))
    metrics["generator"] = write_generator(seeds_dir, generator_dir, place)
    return metrics


def write_generator(seeds_dir: Path, output: Path, place: Workplace) -> dict[str, Any]:
    """Fine-tune the generator on the valid variants of the training families; returns its first and last losses."""
    seeds, originals = read_split(seeds_dir, TRAIN)
    pairs = [(entry, originals[entry.item.family]) for entry in seeds if entry.valid]
    examples = [Example(generator_prompt(o, entry.type), generator_completion(entry.item, o, entry.type)) for entry, o in pairs]
    random.Random(stable_hash(place.seed, "order", "generator")).shuffle(examples)
    logger.info("fine-tuning the generator on %d variants", len(examples))
    tuned = fine_tune(place.model_dir, examples, place.params.generator, seed=place.seed, device=place.device, threads=place.threads)
    with atomic_directory(output) as directory:
        save_model(tuned.lm, directory)
        write_json(directory / "report.json", {"losses": tuned.losses, **tuned.counts})
    losses = [loss for _step, loss in tuned.losses]
    ends = {"first_loss": float(np.mean(losses[:5])), "last_loss": float(np.mean(losses[-5:]))}
    return {name: tuned.counts[name] for name in ("n_rows", "n_too_long", "n_steps")} | ends


def _headline(trained: Trained) -> dict[str, Any]:
    """The kept verifier on the held-out families, label correctness by itself, the baselines, and all kinds on the others."""
    found = {(row["verifier"], row["split"], row["type"], row["column"]): row for row in trained.scores}
    kept = str(trained.settings.kind)
    valid, label = found[kept, HELDOUT, ALL, "valid"], found[kept, HELDOUT, ALL, "lc"]
    heldout = {"n": valid["n"]} | {name: valid[name] for name in HEADLINE}
    heldout["label_correct"] = {name: label[name] for name in ("balanced_accuracy", "auroc")}
    heldout |= {name: {"balanced_accuracy": found[name, HELDOUT, ALL, "valid"]["balanced_accuracy"]} for name in BASELINES}
    heldout |= {name: {"balanced_accuracy": found[name, HELDOUT, ALL, "valid"]["balanced_accuracy"]} for name in KINDS if name != kept}
    development = {name: {"auroc": found[name, DEVELOPMENT, ALL, "valid"]["auroc"]} for name in (*KINDS, *BASELINES)}
    result: dict[str, Any] = rounded({"heldout": heldout, "development": development}, 5)
    return result


def _flat(heldout: dict[str, Any]) -> dict[str, float]:
    """The kept verifier's own numbers, one level deep."""
    own = {name: heldout[name] for name in ("accuracy", "balanced_accuracy", "f1", "auroc")}
    return own | {f"label_correct_{name}": value for name, value in heldout["label_correct"].items()}
