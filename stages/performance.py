"""The performance stage: chi_model of every subject on every concept, its uncertainty and its gaps."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command


@stage_command("performance")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory written by extract-activations.")
@click.option("--scores", type=EXISTING_DIR, required=True, help="A subject's directory (with scores.parquet), or one of subjects.")
@click.option("--output", type=PATH, required=True, help="Parquet file for one subject; directory for several.")
@click.option("--coverage", type=EXISTING_DIR, help="Directory written by coverage: its dead and structural concepts are not tested.")
@click.option("--items", type=EXISTING_FILE, help="items.jsonl: its families and meta keys; without it each item is a family.")
@common_options
def main(activations: Path, scores: Path, output: Path, coverage: Path | None, items: Path | None, common: Common) -> None:
    """How a subject does on every concept.

    Scores are joined to items on their ids. Beside the published chi_model stand its support and interval, the effect
    adjusted for benchmark, length and chance, and whether it is a gap or a strength at the false-discovery rate
    performance.alpha.
    """
    from gapscope.competency.performance import read_suite, subject_files, write_performance, write_performances
    from gapscope.params import Params

    with common.stage() as record:
        params = common.params
        suite = read_suite(activations, items, coverage, params.performance.strata)
        if (scores / "scores.parquet").exists():
            record.metrics = write_performance(suite, scores / "scores.parquet", output, params.performance)
        else:
            files = subject_files(scores, sorted(params.models) if isinstance(params, Params) else None)
            record.metrics = write_performances(suite, files, output, params.performance)


if __name__ == "__main__":
    main()
