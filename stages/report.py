"""Stage report: DVC plots and figures of the whole run."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command


@stage_command("report")
@click.option("--items", type=EXISTING_DIR, required=True, help="Directory with items.jsonl.")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory of extract-activations outputs, one an observer.")
@click.option("--coverage", type=EXISTING_DIR, required=True, help="Directory of coverage outputs, one an observer.")
@click.option("--performance", type=EXISTING_DIR, required=True, help="Directory of performance outputs, one an observer.")
@click.option("--clusters", type=EXISTING_DIR, required=True, help="Directory of <observer>.parquet written by cluster.")
@click.option("--scores", type=EXISTING_DIR, required=True, help="Directory of score outputs, one a subject.")
@click.option("--plots", type=PATH, required=True, help="Directory for the data of the DVC plots.")
@click.option("--figures", type=PATH, required=True, help="Directory for the figures, SVG and PNG.")
@common_options
def main(
    items: Path,
    activations: Path,
    coverage: Path,
    performance: Path,
    clusters: Path,
    scores: Path,
    plots: Path,
    figures: Path,
    common: Common,
) -> None:
    """Plots and figures of a run: coverage, performance, worst and best concepts, benchmarks."""
    from gapscope.params import Params
    from gapscope.report.build import Setup, write_report
    from gapscope.report.inputs import ArtifactPaths

    params = common.params
    named = params if isinstance(params, Params) else None
    setup = Setup(
        report=params.report,
        min_n_eff=params.performance.min_n_eff,
        alpha=params.performance.alpha,
        confidence=params.performance.confidence,
        observers={} if named is None else {slug: observer.name for slug, observer in named.observers.items()},
        models={} if named is None else {slug: model.name for slug, model in named.models.items()},
    )
    paths = ArtifactPaths(items, activations, coverage, performance, clusters, scores)
    with common.stage() as record:
        record.metrics = write_report(paths, plots, figures, setup)
        click.echo(f"wrote {record.metrics['n_plots']} plots to {plots} and {record.metrics['n_figures']} figures to {figures}", err=True)


if __name__ == "__main__":
    main()
