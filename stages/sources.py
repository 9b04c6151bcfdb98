"""The sources stage: which items are rewritten: those of the seed's order, or those that carry the gaps of the first half."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command


@stage_command("sources")
@click.option("--items", "items_file", type=EXISTING_FILE, required=True, help="items.jsonl, the questions to choose from.")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory of extract-activations outputs, one an observer.")
@click.option("--coverage", type=EXISTING_DIR, required=True, help="Directory of coverage outputs, one an observer.")
@click.option("--performance", type=EXISTING_DIR, required=True, help="Directory of performance outputs, one an observer.")
@click.option("--output", type=PATH, required=True, help="Directory for report.json, which generate reads.")
@common_options
def main(items_file: Path, activations: Path, coverage: Path, performance: Path, output: Path, common: Common) -> None:
    """Choose the items to rewrite.

    With generate.source: items nothing is read, and the report is the same whatever the first half found, so that generate
    does not run again for it. With gaps the items come in the order of how much they carry of the concepts that the suite
    under-exercises and of those on which a subject does worse, as generate.observer sees them.
    """
    from gapscope.params import Params
    from gapscope.variants.off import write_off

    params = common.params
    if not isinstance(params, Params):
        raise click.UsageError("sources needs --params, whose observers: it looks through")
    with common.stage() as record:
        if not params.variants.enabled:
            record.metrics = write_off(output)
            return
        from gapscope.loop.sources import write_gap_order, write_seeded

        if params.generate.source == "items":
            record.metrics = write_seeded(output)
            return
        from gapscope.items import read_items
        from gapscope.loop.gaps import read_gaps

        observer = params.loop_observer
        gaps = read_gaps(activations / observer, coverage / observer, performance / observer)
        record.metrics = write_gap_order(output, gaps, read_items(items_file), params.rewritten, observer, params.seed)
        click.echo(f"{record.metrics['n_items']} items carry some of the gap concepts; {output}", err=True)


if __name__ == "__main__":
    main()
