"""`gapscope match A B`: how far two observers see the same concepts, and say the same of the subjects."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, stage_command


@stage_command("match")
@click.argument("first")
@click.argument("second")
@click.option("--params", "params_file", type=PATH, default=Path("params.yaml"), show_default=True, help="Parameters of the run.")
@click.option("--data", type=EXISTING_DIR, default=Path("data"), show_default=True, help="Directory of the artifacts.")
@click.option("--json", "as_json", is_flag=True, help="Print it to stdout as JSON.")
def main(first: str, second: str, params_file: Path, data: Path, as_json: bool) -> None:
    """Match the concepts of observer FIRST with those of observer SECOND, and compare what they say of each subject.

    Concepts are matched by decoder direction where both SAEs decode into the same place of the same model, else by the
    correlation of their saliency. Each figure stands beside what permuted items and random features give.
    """
    from gapscope.competency.observers import as_lines, compare_observers
    from gapscope.files import dump_json, rounded
    from gapscope.params import StageParams, load_params

    params = load_params(params_file) if params_file.exists() else StageParams()
    found = compare_observers(data, first, second, params.performance, params.seed)
    click.echo(dump_json(rounded(found), indent=2) if as_json else "\n".join(as_lines(found)))


if __name__ == "__main__":
    main()
