"""The reach stage: what the variants reach of the suite's gaps, and whether a subject's gaps hold on them."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command


@stage_command("reach")
@click.option("--robustness", type=EXISTING_DIR, required=True, help="Directory written by evaluate: the set, and who answered what.")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory of extract-activations outputs, one an observer.")
@click.option("--coverage", type=EXISTING_DIR, required=True, help="Directory of coverage outputs, one an observer.")
@click.option("--performance", type=EXISTING_DIR, required=True, help="Directory of performance outputs, one an observer.")
@click.option("--sae", type=EXISTING_DIR, required=True, help="Directory of SAEs, one an observer.")
@click.option("--raw", type=EXISTING_DIR, required=True, help="Directory of the fetched sources: the observer.")
@click.option("--output", type=PATH, required=True, help="Directory for concepts.parquet, coverage.parquet, activations/ and report.json.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    robustness: Path, activations: Path, coverage: Path, performance: Path, sae: Path, raw: Path, output: Path, device: str, common: Common
) -> None:
    """Read the variants as the suite was read, and look for its gaps.

    On how many of the concepts that the suite under-exercises the variants fire, against their originals and against random
    items of the suite; how often; and whether each subject's gaps are there on the variants too, with intervals over families.
    """
    from gapscope.params import Params
    from gapscope.variants.off import require_on, write_off

    params = common.params
    if not isinstance(params, Params):
        raise click.UsageError("reach needs --params, whose observers: it reads with")
    with common.stage() as record:
        if not params.variants.enabled:
            record.metrics = write_off(output)
            return
        require_on((robustness, "evaluate"))
        from gapscope.loop.reach import ReachPaths, write_reach

        observer = params.loop_observer
        model = raw / params.observers[observer].source
        paths = ReachPaths(activations / observer, coverage / observer, performance / observer, model, sae / observer, robustness)
        record.metrics = write_reach(paths, output, params, Path(".work"), device)
        found = record.metrics["reached"]["under"]
        click.echo(f"the variants fire on {found['variants']} of {found['n']} concepts that the suite under-exercises; {output}", err=True)


if __name__ == "__main__":
    main()
