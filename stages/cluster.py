"""The cluster stage: the concepts that stand out, labelled from their contexts, grouped and named."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command

EXISTING = click.Path(path_type=Path, exists=True)


@stage_command("cluster")
@click.option("--coverage", type=EXISTING_DIR, required=True, help="Directory written by coverage.")
@click.option("--performance", type=EXISTING, required=True, help="What performance wrote: a file or a directory.")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory written by extract-activations.")
@click.option("--sae", type=EXISTING_DIR, required=True, help="SAE in SAELens's own format: its decoder directions.")
@click.option("--output", type=PATH, required=True, help="Parquet file for the clusters.")
@common_options
def main(coverage: Path, performance: Path, activations: Path, sae: Path, output: Path, common: Common) -> None:
    """Group and label the concepts that stand out.

    These are coverage gaps, and each subject's gaps, strengths and ends of the raw ranking. Labels are keywords from
    contexts, with a detection score; groups join concepts of like decoder direction and like label.
    """
    from gapscope.competency.cluster import write_clusters

    with common.stage() as record:
        record.metrics = write_clusters(coverage, performance, activations, sae, output, common.params.cluster)


if __name__ == "__main__":
    main()
