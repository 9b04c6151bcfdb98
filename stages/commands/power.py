"""`gapscope power`: what a suite can show, before any subject is scored."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import CONTEXT, EXISTING_DIR, EXISTING_FILE, OneLineErrors


@click.command("power", cls=OneLineErrors, context_settings=CONTEXT)
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory written by extract-activations.")
@click.option("--items", type=EXISTING_FILE, required=True, help="items.jsonl.")
@click.option("--coverage", type=EXISTING_DIR, help="Directory written by coverage: its dead and structural concepts are not tested.")
@click.option("--accuracy", type=float, required=True, help="Accuracy to be expected of the subject, 0 to 1.")
@click.option("--gap", type=float, default=0.2, show_default=True, help="Chance-corrected drop that should be found.")
@click.option("--power", type=float, default=0.8, show_default=True, help="How often it should be found.")
@click.option("--discoveries", type=click.IntRange(1), default=10, show_default=True, help="True gaps and strengths expected in all.")
@click.option("--params", "params_file", type=EXISTING_FILE, help="params.yaml, for performance:; its defaults without it.")
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
def main(
    activations: Path, items: Path, coverage: Path | None, accuracy: float, gap: float, power: float, discoveries: int,
    params_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """How small a gap a suite could show, and how many items more it would take.

    Reads only what the observer made of the questions, so that a benchmark can be planned before it is run.
    """
    from gapscope.competency.power_table import Expected, power_table, power_text
    from gapscope.files import dump_json, rounded
    from gapscope.params import StageParams, load_params

    params = StageParams() if params_file is None else load_params(params_file)
    expected = Expected(accuracy, gap, power, discoveries)
    table = power_table(activations, items, coverage, expected, params.performance)
    click.echo(dump_json(rounded(table)) if as_json else power_text(table, expected))


if __name__ == "__main__":
    main()
