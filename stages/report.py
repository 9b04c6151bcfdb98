"""Stage report: DVC plots, figures, the explorer and a written report of the whole run."""

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
@click.option("--sae", type=EXISTING_DIR, help="Directory of SAEs, one an observer, for a concept's neighbours.")
@click.option("--changes", type=EXISTING_DIR, help="Directory of compare-pairs outputs, one an observer.")
@click.option("--validity", type=PATH, help="Metrics file of the validity stage.")
@click.option("--variants", type=EXISTING_DIR, help="Directory written by filter.")
@click.option("--robustness", type=EXISTING_DIR, help="Directory written by evaluate.")
@click.option("--reach", type=EXISTING_DIR, help="Directory written by reach.")
@click.option("--plots", type=PATH, required=True, help="Directory for the data of the DVC plots.")
@click.option("--figures", type=PATH, required=True, help="Directory for the figures, SVG and PNG.")
@click.option("--explorer", type=PATH, help="HTML file for the explorer.")
@click.option("--report", "document", type=PATH, help="Markdown file for the written report.")
@common_options
def main(
    items: Path,
    activations: Path,
    coverage: Path,
    performance: Path,
    clusters: Path,
    scores: Path,
    sae: Path | None,
    changes: Path | None,
    validity: Path | None,
    variants: Path | None,
    robustness: Path | None,
    reach: Path | None,
    plots: Path,
    figures: Path,
    explorer: Path | None,
    document: Path | None,
    common: Common,
) -> None:
    """Plots, figures, explorer and written report of a run."""
    from gapscope.report.build import Setup, write_report
    from gapscope.report.explorer.build import write_explorer
    from gapscope.report.explorer.sources import ExplorerPaths, about_run
    from gapscope.report.inputs import ArtifactPaths
    from gapscope.report.markdown import write_markdown
    from gapscope.report.reach import reach_section

    about = about_run(common.params)
    setup = Setup(common.params.report, about.min_n_eff, about.alpha, about.confidence, about.observers, about.models)
    paths = ExplorerPaths(
        ArtifactPaths(items, activations, coverage, performance, clusters, scores), sae, changes, validity, variants, robustness
    )
    with common.stage() as record:
        record.metrics = write_report(paths.artifacts, plots, figures, setup)
        if explorer is not None:
            record.metrics |= write_explorer(explorer, paths, about)
            click.echo(f"wrote {explorer} ({record.metrics['kib_explorer']} KiB); gapscope explore opens it", err=True)
        if document is not None:
            write_markdown(document, paths, about, [] if reach is None else reach_section(reach, about.models))
        click.echo(f"wrote {record.metrics['n_plots']} plots to {plots} and {record.metrics['n_figures']} figures to {figures}", err=True)


if __name__ == "__main__":
    main()
