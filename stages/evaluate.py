"""The evaluate stage: who survives the variants, and whether the set can be trusted to say so."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command


@stage_command("evaluate")
@click.option("--variants", "variants_dir", type=EXISTING_DIR, required=True, help="Directory written by filter.")
@click.option("--verifier", type=EXISTING_DIR, help="Directory written by sft: its accuracy goes to the exported card.")
@click.option("--raw", type=EXISTING_DIR, required=True, help="Directory of the fetched sources: the subjects.")
@click.option("--items", "items_file", type=EXISTING_FILE, required=True, help="items.jsonl, the originals.")
@click.option("--output", type=PATH, required=True, help="Directory for the tables, quality.json and export/.")
@click.option("--plot", type=PATH, required=True, help="JSON file for the accuracies as a plot's data.")
@common_options
def main(variants_dir: Path, verifier: Path | None, raw: Path, items_file: Path, output: Path, plot: Path, common: Common) -> None:
    """Ask every local subject the originals and their variants.

    Accuracy on both (OA, ARA), what is lost between them (RLA) and what stays consistent (CRA), by type and with
    intervals over families; tests between subjects; what the set gives away to whoever does not read the question. The set
    itself goes to export/, for datasets and for lm-evaluation-harness.
    """
    from gapscope.params import Params
    from gapscope.variants.off import require_on, write_off

    params = common.params
    if not isinstance(params, Params):
        raise click.UsageError("evaluate needs --params, whose models: are the subjects")
    with common.stage() as record:
        if not params.variants.enabled:
            row = {"subject": "none", "asked": "off", "accuracy": 0, "low": None, "high": None, "chance": None, "n": 0}
            record.metrics = write_off(output, plots={plot: row})
            return
        require_on((variants_dir, "filter"), *([] if verifier is None else [(verifier, "sft")]))
        from gapscope.variants.evaluation import read_families, read_made, write_evaluation

        families = read_families(variants_dir / "variants.jsonl", items_file, params.seed)
        made = read_made(variants_dir, verifier)
        record.metrics = write_evaluation(families, raw, output, plot, params, made, Path(".work"))
        shown = ", ".join(f"{slug} {row['oa']:.3f} to {row['ara']:.3f}" for slug, row in record.metrics["subjects"].items() if "oa" in row)
        click.echo(f"accuracy on originals and on variants: {shown or 'none'}; {output}", err=True)


if __name__ == "__main__":
    main()
