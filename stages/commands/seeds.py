"""`gapscope seeds`: check the form of hand-written seed variants, and split them by family."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import CONTEXT, PATH, OneLineErrors
from stages.seeds import main as split


@click.group("seeds", context_settings=CONTEXT)
def main() -> None:
    """Check seed variants, and split them by family (the stage seeds)."""


main.add_command(split, "split")


@main.command("check", cls=OneLineErrors)
@click.argument("path", type=PATH, default=Path("data/seeds"))
@click.option("--json", "as_json", is_flag=True, help="Print counts and faults to stdout as JSON.")
def check(path: Path, as_json: bool) -> None:
    """Check each type's rule, gold positions and shortcuts of the seed files in PATH (a directory or one file).

    Exits 1 when anything is at fault.
    """
    from gapscope.files import dump_json, rounded
    from gapscope.variants.seeds import check_seeds, read_seeds

    report = check_seeds(read_seeds(sorted(path.glob("*.jsonl")) if path.is_dir() else [path]))
    if as_json:
        click.echo(dump_json(rounded({"counts": report.counts, "faults": report.faults}, 4), indent=2))
    else:
        counts = report.counts
        click.echo(f"{counts['families']} families, {counts['valid_variants']} valid variants, {counts['invalid_variants']} invalid ones")
        for name, share in counts["shortcuts"].items():
            click.echo(f"  {name:<9} {share:.1%}")
        for fault in report.faults:
            click.echo(f"fault: {fault}")
    click.get_current_context().exit(1 if report.faults else 0)
