"""The compare-pairs stage: pairs of subjects compared on every concept."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command


@stage_command("compare-pairs")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory written by extract-activations.")
@click.option("--scores", type=EXISTING_DIR, required=True, help="Directory of the subjects' directories, each with scores.parquet.")
@click.option("--output", type=PATH, required=True, help="Parquet file for the changes of all pairs.")
@click.option("--pair", "pairs", type=(str, str), multiple=True, help="Two subjects; may be given again [default: compare.pairs].")
@click.option("--coverage", type=EXISTING_DIR, help="Directory written by coverage: its dead and structural concepts are not tested.")
@click.option("--items", type=EXISTING_FILE, help="items.jsonl: its families and meta keys; without it each item is a family.")
@common_options
def main(
    activations: Path,
    scores: Path,
    output: Path,
    pairs: tuple[tuple[str, str], ...],
    coverage: Path | None,
    items: Path | None,
    common: Common,
) -> None:
    """How a second subject does on every concept, compared with a first one on the same items.

    Beside the difference of their chi_model stands its paired p, and whether it is more or less than on comparable items.
    """
    from gapscope.competency.compare import write_comparisons
    from gapscope.competency.performance import read_suite

    with common.stage() as record:
        params = common.params
        suite = read_suite(activations, items, coverage, params.performance.strata)
        chosen = list(pairs) or [(first, second) for first, second in params.compare.pairs]
        record.metrics = write_comparisons(suite, scores, chosen, output, params.performance)


if __name__ == "__main__":
    main()
