"""The coverage stage: chi_bench of every concept in every benchmark, and what the suite does not exercise."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command


@stage_command("coverage")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory written by extract-activations.")
@click.option("--output", type=PATH, required=True, help="Directory for coverage.parquet and overlap.parquet.")
@common_options
def main(activations: Path, output: Path, common: Common) -> None:
    """What the suite exercises, and what it does not.

    For each concept and benchmark: chi_bench (masked and unmasked), how often it fires against the reference corpus, and
    a status by the published rule and by ours. How much the benchmarks share is in overlap.parquet.
    """
    from gapscope.competency.coverage import write_coverage

    with common.stage() as record:
        record.metrics = write_coverage(activations, output, common.params.coverage)


if __name__ == "__main__":
    main()
