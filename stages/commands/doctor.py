"""`gapscope doctor`: what this machine has, and what is missing for the current parameters."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import PATH, stage_command


@stage_command("doctor")
@click.option("--params", "params_file", type=PATH, default=Path("params.yaml"), show_default=True, help="Parameters to check against.")
@click.option("--raw", type=PATH, default=Path("data/raw"), show_default=True, help="Where fetched sources lie.")
@click.option("--offline", is_flag=True, help="Do not try the model hub.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings to stdout as JSON.")
def main(params_file: Path, raw: Path, offline: bool, as_json: bool) -> None:
    """Say what this machine has, and what is missing for the current parameters.

    Exits 1 when something that the parameters need is missing.
    """
    from gapscope.doctor import examine
    from gapscope.files import dump_json

    findings = examine(params_file, raw, try_hub=not offline)
    if as_json:
        click.echo(dump_json(findings.as_dict(), indent=2))
    else:
        for name, value in findings.machine.items():
            click.echo(f"{name:>18}  {value}")
        for fault in findings.missing:
            click.echo(f"{'missing':>18}  {fault}")
        if not findings.missing:
            click.echo(f"{'missing':>18}  nothing that {params_file} needs")
    click.get_current_context().exit(1 if findings.missing else 0)
