"""The seeds stage: labelled variants, valid and invalid, split by family."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command


@stage_command("seeds")
@click.option("--seeds", "directory", type=EXISTING_DIR, required=True, help="Directory of seed files (*.jsonl).")
@click.option("--output", type=PATH, required=True, help="Directory for train.jsonl, development.jsonl, heldout.jsonl and report.json.")
@common_options
def main(directory: Path, output: Path, common: Common) -> None:
    """Split labelled variants by family.

    A family is never on two sides. Gold positions are assigned anew, each equally often in every type. Files of
    HellaSwag-Pro join in through the parameter seeds.import.
    """
    params = common.params
    with common.stage() as record:
        if not params.variants.enabled:
            from gapscope.variants.off import write_off

            record.metrics = write_off(output)
            return
        from gapscope.variants.seed_sets import write_seed_sets

        record.metrics = write_seed_sets(directory, output, params.seeds, params.seed)
        shown = ", ".join(f"{part['n_families']} {name}" for name, part in record.metrics.items() if "n_families" in part)
        click.echo(f"families: {shown}; {output}", err=True)


if __name__ == "__main__":
    main()
