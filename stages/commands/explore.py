"""`gapscope explore`: open the explorer of the last run, alone or beside an earlier revision."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from stages.common import PATH, stage_command


@stage_command("explore")
@click.option("--params", "params_file", type=PATH, default=Path("params.yaml"), show_default=True, help="Parameters of the run.")
@click.option("--explorer", type=PATH, default=Path("plots/explorer.html"), show_default=True, help="The page that the report stage wrote.")
@click.option("--data", type=PATH, default=Path("data"), show_default=True, help="Directory of the artifacts, for --against.")
@click.option("--metrics", type=PATH, default=Path("metrics"), show_default=True, help="Directory of the metrics, for --against.")
@click.option("--against", "--rev", metavar="REV", help="Compare every subject with what it was at a git revision.")
@click.option(
    "--output", type=PATH, default=Path(".work/explore/explorer.html"), show_default=True, help="Where the page to be opened is put."
)
@click.option("--no-open", is_flag=True, help="Write the page and say where it is, but open no browser.")
def main(params_file: Path, explorer: Path, data: Path, metrics: Path, against: str | None, output: Path, no_open: bool) -> None:
    """Open the explorer in a browser, with the commit it belongs to.

    With --against, every subject stands beside itself at an earlier revision; refused where that read other items or
    through another SAE.
    """
    from gapscope.files import read_text, write_bytes
    from gapscope.provenance import git_state
    from gapscope.report.explorer.page import with_commit

    page = read_text(explorer) if against is None else _beside(params_file, data, metrics, against)
    state = git_state()
    commit = state["commit"][:12] + (" and changes after it" if state["dirty"] else "") if state else None
    write_bytes(output, with_commit(page, commit).encode())
    click.echo(output)
    if not no_open and not webbrowser.open(output.resolve().as_uri()):
        click.echo("no browser was found: open the file above in one", err=True)


def _beside(params_file: Path, data: Path, metrics: Path, revision: str) -> str:
    """The page with the present run beside the revision."""
    from gapscope.params import StageParams, load_params
    from gapscope.report.explorer.against import pairs_against
    from gapscope.report.explorer.build import gather
    from gapscope.report.explorer.page import render_run
    from gapscope.report.explorer.sources import about_run, run_paths

    params = load_params(params_file) if params_file.exists() else StageParams()
    paths, about = run_paths(data, metrics), about_run(params)
    meta, blocks = gather(paths, about)
    for observer, entry in meta["observers"].items():
        pairs = pairs_against(paths, observer, sorted(entry["subjects"]), revision, params.performance)
        for pair, block in pairs:
            blocks[f"changes-{observer}-{len(entry['changes'])}"] = block
            entry["changes"].append(pair)
    return render_run(meta, blocks)


if __name__ == "__main__":
    main()
