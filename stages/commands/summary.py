"""`gapscope summary`: what came out of the last run, and where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stages.common import PATH, stage_command


@stage_command("summary")
@click.option("--params", "params_file", type=PATH, default=Path("params.yaml"), show_default=True, help="Parameters of the run.")
@click.option("--data", type=PATH, default=Path("data"), show_default=True, help="Directory of the artifacts.")
@click.option("--metrics", type=PATH, default=Path("metrics"), show_default=True, help="Directory of the metrics.")
@click.option("--plots", type=PATH, default=Path("plots"), show_default=True, help="Directory of plot data and figures.")
@click.option("--concepts", type=click.IntRange(1), default=5, show_default=True, help="Worst and best concepts to list.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary to stdout as JSON.")
def main(params_file: Path, data: Path, metrics: Path, plots: Path, concepts: int, as_json: bool) -> None:
    """Say what came out of the last run, and where it is; what is absent is named."""
    from gapscope.files import dump_json, rounded
    from gapscope.report.summary import Where, gather

    names, performance, second_half = _parameters(params_file)
    where = Where(data, metrics, plots, names["observers"], names["models"], performance.min_n_eff, performance.confidence, second_half)
    gathered = gather(where, concepts)
    if as_json:
        click.echo(dump_json(rounded(gathered.found), indent=2))
        return
    from gapscope.report.summary_text import print_summary

    print_summary(gathered.found)


def _parameters(file: Path) -> tuple[dict[str, dict[str, str]], Any, bool]:
    """Names of observers and models, the parameters of performance, whether the second half is on; defaults without params.yaml."""
    from gapscope.params import StageParams, load_params

    if not file.exists():
        return {"observers": {}, "models": {}}, StageParams().performance, True
    params = load_params(file)
    names = {kind: {slug: entry.name for slug, entry in getattr(params, kind).items()} for kind in ("observers", "models")}
    return names, params.performance, params.variants.enabled


if __name__ == "__main__":
    main()
