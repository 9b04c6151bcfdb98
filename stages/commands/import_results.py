"""`gapscope import`: results that a harness has logged, as a subject; says what it understood before it writes anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages.common import EXISTING_FILE, PATH, stage_command

if TYPE_CHECKING:
    from gapscope.results.run_import import Import

FORMATS = click.Choice(["lm_eval", "inspect", "lighteval", "arena", "plain"])
COLUMNS = ("id_column", "score_column", "prediction_column", "prediction_form", "missing")


@stage_command("import")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("--format", "log_format", type=FORMATS, help="What wrote the files [default: found by their content].")
@click.option("--metric", help="Which of several metrics is the score; of an arena, the side to study.")
@click.option("--filter", "filter_name", help="Which of several filters, the ways to parse a reply.")
@click.option("--items", "items_file", type=EXISTING_FILE, help="items.jsonl to join with [default: the log's own questions].")
@click.option("--join", type=click.Choice(["auto", "id", "hash", "text"]), default="auto", show_default=True, help="How items are found.")
@click.option("--id-prefix", default="", help="What to put before the log's ids.")
@click.option("--id-column", help="Of a plain table: the column of the items' ids.")
@click.option("--score-column", help="Of a plain table: a column of scores from 0 to 1.")
@click.option("--prediction-column", help="Of a plain table: a column of answers to compare with gold.")
@click.option("--prediction-form", type=click.Choice(["letter", "index", "text", "exact", "number"]), help="What the answers are.")
@click.option("--missing", type=click.Choice(["unscored", "wrong"]), help="What empty cells of a plain table are.")
@click.option("--output", type=PATH, help="Directory for scores.parquet.")
@click.option("--items-output", type=PATH, help="Directory for items.jsonl, the log's questions.")
@click.option("--into", type=EXISTING_FILE, help="params.yaml to write the log into as a subject, so that dvc repro studies it.")
@click.option("--as", "slug", help="With --into: the subject's key in params.yaml.")
@click.option(
    "--suite",
    type=click.Choice(["replace", "add", "keep"]),
    default="replace",
    show_default=True,
    help="With --into: the log's questions instead of the benchmarks there, beside them, or not at all.",
)
@click.option("--name", help="The subject's name [default: the log's].")
@click.option("--kind", default="other", show_default=True, help="Kind of ability of the log's questions: knowledge, reasoning, ...")
@click.option("--licence", default="unknown", show_default=True, help="Licence of the log's questions.")
@click.option("--dry-run", is_flag=True, help="Say what was understood and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Say it to stdout as JSON.")
def main(paths: tuple[Path, ...], items_file: Path | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Import per-item results as a subject.

    FILE is a log of lm-evaluation-harness (samples_*.jsonl), Inspect (.eval, .json) or lighteval (details_*.parquet), the
    battles of an arena, a directory of them, or a plain table of ids and scores or answers, which needs --items.
    """
    from gapscope.files import dump_json
    from gapscope.results.describe import as_lines
    from gapscope.results.run_import import Choice, understand

    targets = [options[name] for name in ("output", "items_output", "into")]
    if not dry_run and not any(targets):
        raise click.UsageError("nothing to write: give --output, --items-output or --into, or --dry-run")
    if (options["into"] is None) != (options["slug"] is None):
        raise click.UsageError("--into and --as go together")
    if items_file is not None and options["items_output"] is not None:
        raise click.UsageError("--items-output writes the log's own questions; leave --items out")
    names = ("log_format", "metric", "join", "id_prefix", "kind")
    columns = {name: options[name] for name in COLUMNS}
    choice = Choice(filter=options["filter_name"], columns=columns, **{name: options[name] for name in names})
    found = understand(paths, items_file, choice)
    click.echo(dump_json(found.found, indent=2) if as_json else "\n".join(as_lines(found.found)))
    change = None if options["into"] is None else _change(found, options, echo=not as_json)
    if dry_run:
        click.echo("nothing is written (--dry-run)", err=True)
        return
    _write(found, options, change)


def _change(found: Import, options: dict[str, Any], *, echo: bool) -> str:
    """The new text of params.yaml, checked; its diff is printed."""
    from gapscope.files import read_text
    from gapscope.params import parse_params
    from gapscope.presets import diff
    from gapscope.results.into import Entry, check_sizes, into_params

    file = options["into"]
    old = read_text(file)
    name = options["name"] or found.name or options["slug"]
    entry = Entry(options["slug"], name, options["licence"], options["suite"], found.files, found.results, found.benchmarks)
    new = into_params(old, file, entry)
    check_sizes(parse_params(new, file), found.n_items, file)
    if echo:
        click.echo(diff(old, new, os.fspath(file)), nl=False)
    return new


def _write(found: Import, options: dict[str, Any], change: str | None) -> None:
    from gapscope.files import write_bytes

    if options["output"] is not None:
        found.write_scores(options["output"])
        click.echo(f"wrote {options['output'] / 'scores.parquet'}", err=True)
    if options["items_output"] is not None:
        found.write_items(options["items_output"])
        click.echo(f"wrote {options['items_output'] / 'items.jsonl'}", err=True)
    if change is not None:
        write_bytes(options["into"], change.encode())
        click.echo(f"wrote {options['into']}; now run: make repro (or dvc repro)", err=True)


if __name__ == "__main__":
    main()
