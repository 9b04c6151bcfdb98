"""Where an observer's SAE comes from: trained here, the SAELens registry, or a directory. All three end as the same files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapscope.canary import run_canary
from gapscope.documents import read_documents
from gapscope.errors import InputError
from gapscope.files import atomic_directory, dump_json, write_bytes
from gapscope.lm import LM, load_lm
from gapscope.params import TrainSaeParams
from gapscope.params_observers import PathSae, RegistrySae, TrainedSae
from gapscope.sae import LoadedSAE, check_fits, load_sae
from gapscope.sae_registry import load_registry_sae
from gapscope.threads import use_threads
from gapscope.work import WorkDirectory, work_key


def make_sae(
    model_dir: Path,
    output: Path,
    params: TrainSaeParams,
    work_root: Path,
    *,
    name: str,
    layer: int | None,
    source: TrainedSae | RegistrySae | PathSae | None,
    sae_dir: Path | None,
    corpus: Path | None,
    seed: int,
    dtype: str,
    device: str,
    threads: int,
) -> dict[str, Any]:
    """Train an SAE, or load and pin a published one, and write it to ``output`` in SAELens's format.

    Returns:
        The headline metrics: held-out figures of a trained SAE, the canary's of a published one.

    Raises:
        InputError: model, SAE or corpus is absent, damaged or does not fit the others.
    """
    use_threads(threads)
    lm = load_lm(model_dir, dtype, device)
    published = _published(source, sae_dir, str(lm.device))
    if published is not None:
        return _pin(lm, published, layer, output)
    if corpus is None:
        raise InputError("a corpus is needed to train an SAE", field="--corpus")
    layer = lm.n_layers // 2 if layer is None else layer
    settings = params.model_dump() | {
        "layer": layer,
        "name": name,
        "seed": seed,
        "dtype": dtype,
        "threads": threads,
        "device": str(lm.device),
    }
    work = WorkDirectory(work_root, "train-sae", work_key(settings, [model_dir, corpus]))
    metrics = _train(lm, list(read_documents(corpus)), layer, params, output, work, name, seed)
    work.clear()
    return metrics


def _train(
    lm: LM, documents: list[str], layer: int, params: TrainSaeParams, output: Path, work: WorkDirectory, name: str, seed: int
) -> dict[str, Any]:
    from gapscope.sae_training import train_sae

    with atomic_directory(output) as directory:
        trained = train_sae(lm, documents, layer, params, directory, work, name=name, seed=seed)
    metrics: dict[str, Any] = {"layer": layer, "d_sae": params.d_sae, "heldout": asdict(trained.heldout)}
    if trained.loss_recovered is not None:
        metrics["heldout"]["loss_recovered"] = trained.loss_recovered
    metrics["train"] = {"n_tokens": trained.n_train, "n_shortened": trained.n_shortened}
    metrics["n_documents"] = trained.n_documents
    return metrics


def _published(source: TrainedSae | RegistrySae | PathSae | None, sae_dir: Path | None, device: str) -> LoadedSAE | None:
    """The SAE that others made, or None where one is to be trained."""
    match source:
        case RegistrySae():
            return load_registry_sae(source, device)
        case PathSae() if sae_dir is None:
            raise InputError("the observer's SAE is a directory, which is not given", field="--sae")
        case PathSae() if sae_dir is not None:
            factor = source.norm_scaling_factor
            return load_sae(sae_dir / source.directory, device, prepend_bos=source.prepend_bos, norm_scaling_factor=factor)
        case _:
            return None if sae_dir is None else load_sae(sae_dir, device)


def _pin(lm: LM, sae: LoadedSAE, layer: int | None, output: Path) -> dict[str, Any]:
    check_fits(lm, sae, layer)
    with atomic_directory(output) as directory:
        sae.sae.save_model(directory)
        config = sae.sae.cfg.to_dict() | {"device": "cpu"}
        write_bytes(directory / "cfg.json", (dump_json(config, indent=2) + "\n").encode())
    return {"layer": sae.layer, "d_sae": sae.d_sae, "canary": asdict(run_canary(lm, sae))}
