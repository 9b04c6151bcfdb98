"""The extract-activations stage: how much every concept is present in every item, read by the observer."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command
from stages.train_sae import find_observer


@stage_command("extract-activations")
@click.option("--model", "model_dir", type=EXISTING_DIR, required=True, help="Directory of the observer in the Hugging Face layout.")
@click.option("--sae", "sae_dir", type=EXISTING_DIR, required=True, help="Directory of its SAE in SAELens's own format.")
@click.option("--items", "items_file", type=EXISTING_FILE, required=True, help="items.jsonl, the questions.")
@click.option("--corpus", type=EXISTING_FILE, help="corpus.jsonl; one part of it is the reference. No reference without it.")
@click.option("--output", type=PATH, required=True, help="Directory for saliency, firing counts and contexts.")
@click.option("--observer", "key", help="Observer under observers: in --params; its name, layer and dtype are used.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Precision of the weights [default: float32].")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    model_dir: Path, sae_dir: Path, items_file: Path, corpus: Path | None, output: Path, key: str | None, dtype: str | None,
    device: str, common: Common,
) -> None:  # fmt: skip
    """Saliency of every concept on every item.

    Writes item by concept matrices, special tokens masked and not, example contexts, and firing on a reference corpus. A
    canary stops the run where the SAE does not fit. An interrupted run goes on from where it was.
    """
    from gapscope.competency.extraction import write_activations

    params = common.params
    observer = find_observer(params, key)
    with common.stage() as record:
        how = {"dtype": dtype or (observer.dtype if observer else "float32"), "device": device, "threads": params.threads}
        record.metrics = write_activations(
            model_dir,
            sae_dir,
            items_file,
            corpus,
            params.extract_activations,
            output,
            Path(".work"),
            name=observer.name if observer else model_dir.resolve().name,
            layer=observer.layer if observer else None,
            seed=params.seed,
            **how,
        )
        record.details |= how
        found = record.metrics
        seen = f"{found['n_concepts_seen']} concepts on {found['n_tokens']} tokens of {found['n_items']} items"
        click.echo(f"{seen}; {found['n_items_truncated']} items cut to fit; {output}", err=True)


if __name__ == "__main__":
    main()
