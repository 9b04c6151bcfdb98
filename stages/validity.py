"""The validity stage: how far the gaps of a run can be trusted."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command


@stage_command("validity")
@click.option("--items", type=EXISTING_FILE, required=True, help="items.jsonl.")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory of extract-activations outputs, one an observer.")
@click.option("--coverage", type=EXISTING_DIR, required=True, help="Directory of coverage outputs, one an observer.")
@click.option("--clusters", type=EXISTING_DIR, required=True, help="Directory of <observer>.parquet written by cluster.")
@click.option("--scores", type=EXISTING_DIR, required=True, help="Directory of score outputs, one a subject.")
@click.option("--sae", type=EXISTING_DIR, required=True, help="Directory of SAEs, one an observer.")
@click.option("--raw", type=EXISTING_DIR, required=True, help="Directory of sources: the observers and validity.encoder.")
@click.option("--corpus", type=EXISTING_FILE, help="corpus.jsonl, for a second SAE. None is trained without it.")
@click.option("--output", type=PATH, required=True, help="Directory for the tables, one directory an observer.")
@click.option("--plots", type=PATH, required=True, help="Directory for the data of the DVC plots.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    items: Path, activations: Path, coverage: Path, clusters: Path, scores: Path, sae: Path, raw: Path, corpus: Path | None,
    output: Path, plots: Path, device: str, common: Common,
) -> None:  # fmt: skip
    """How far the gaps of a run can be trusted.

    Held-out prediction, planted gaps, permuted scores, subsampling, ablation, another SAE, stability of labels and clusters,
    and controls in the concepts' place, for the calibrated gaps and for the raw ranking side by side.
    """
    from gapscope.competency.validity_run import RunPaths, write_validity
    from gapscope.params import Params

    params = common.params
    if not isinstance(params, Params):
        raise click.UsageError("needs --params: it compares what params.yaml configures")
    paths = RunPaths(items, activations, coverage, clusters, scores, sae, raw, corpus)
    with common.stage() as record:
        record.metrics = write_validity(paths, output, plots, params, Path(".work"), device)
        record.details |= {"device": device, "threads": params.threads}


if __name__ == "__main__":
    main()
