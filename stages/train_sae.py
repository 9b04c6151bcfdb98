"""The train-sae stage: an SAE of the observer's residual stream, trained here or a published one pinned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command

if TYPE_CHECKING:
    from gapscope.params_observers import Observer


@stage_command("train-sae")
@click.option("--model", "model_dir", type=EXISTING_DIR, required=True, help="Directory of the observer in the Hugging Face layout.")
@click.option("--corpus", type=EXISTING_FILE, help="corpus.jsonl, documents to train on; not needed for a published SAE.")
@click.option("--sae", "sae_dir", type=EXISTING_DIR, help="Directory of the fetched SAE, where the observer's sae is of kind path.")
@click.option("--output", type=PATH, required=True, help="Directory for cfg.json and sae_weights.safetensors.")
@click.option("--observer", "key", help="Observer under observers: in --params; its layer, dtype and SAE are used.")
@click.option("--layer", type=click.IntRange(0), help="Block whose output the SAE reads [default: the middle one].")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Precision of the weights [default: float32].")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    model_dir: Path, corpus: Path | None, sae_dir: Path | None, output: Path, key: str | None, layer: int | None, dtype: str | None,
    device: str, common: Common,
) -> None:  # fmt: skip
    """Train an SAE on an observer, or load and pin a published one.

    Trains on the observer's activations over one part of the corpus and measures on another. The result is in SAELens's own
    format. An interrupted run goes on from its cached activations in .work/.
    """
    from gapscope.sae_source import make_sae

    params = common.params
    observer = find_observer(params, key)
    with common.stage() as record:
        how = {"dtype": dtype or (observer.dtype if observer else "float32"), "device": device, "threads": params.threads}
        record.metrics = make_sae(
            model_dir,
            output,
            params.train_sae,
            Path(".work"),
            name=observer.name if observer else model_dir.resolve().name,
            layer=layer if layer is not None or observer is None else observer.layer,
            source=observer.sae if observer else None,
            sae_dir=sae_dir or _fetched_sae(observer, model_dir),
            corpus=corpus,
            seed=params.seed,
            **how,
        )
        record.details |= how
        found = record.metrics.get("heldout", record.metrics.get("canary", {}))
        click.echo(f"SAE in {output}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()), err=True)


def find_observer(params: object, key: str | None) -> Observer | None:
    """The observer named by ``--observer``, or None without that option."""
    from gapscope.params import Params

    if key is None:
        return None
    if not isinstance(params, Params):
        raise click.UsageError("--observer needs --params")
    if key not in params.observers:
        raise click.BadParameter(f"no {key!r} under observers: (known: {', '.join(params.observers)})", param_hint="--observer")
    return params.observers[key]


def _fetched_sae(observer: Observer | None, model_dir: Path) -> Path | None:
    """The fetched source that holds the observer's SAE: it lies beside the observer's own."""
    return model_dir.parent / observer.sae.source if observer is not None and observer.sae.kind == "path" else None


if __name__ == "__main__":
    main()
