"""The filter stage: which candidates become variants, and why the others do not."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command


@stage_command("filter")
@click.option("--candidates", type=EXISTING_DIR, required=True, help="Directory written by generate.")
@click.option("--verifier", type=EXISTING_DIR, required=True, help="Directory written by sft.")
@click.option("--model", "model_dir", type=EXISTING_DIR, required=True, help="Directory of the untuned model, which the verifier asks too.")
@click.option("--embedder", "embedder_dir", type=EXISTING_DIR, required=True, help="Directory of the sentence encoder.")
@click.option("--items", "items_file", type=EXISTING_FILE, required=True, help="items.jsonl, which the candidates rewrite.")
@click.option("--output", type=PATH, required=True, help="Directory for variants.jsonl, rejected.jsonl and report.json.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    candidates: Path, verifier: Path, model_dir: Path, embedder_dir: Path, items_file: Path, output: Path, device: str, common: Common
) -> None:
    """Judge every candidate and keep the valid ones.

    A candidate is rejected as unparsable, as a copy of its original, for its type's rule, for the verifier's verdict (tc,
    lc or au), or as a duplicate of an accepted one.
    """
    from gapscope.items import read_items
    from gapscope.variants.off import require_on, write_off

    params = common.params
    with common.stage() as record:
        if not params.variants.enabled:
            record.metrics = write_off(output)
            return
        require_on((candidates, "generate"), (verifier, "sft"))
        from gapscope.threads import use_threads
        from gapscope.variants.filtering import read_candidates, write_variants
        from gapscope.variants.verifier import Verifier

        use_threads(params.threads)
        judge = Verifier.load(verifier, model_dir, embedder_dir, device=device)
        originals = {item.id: item for item in read_items(items_file)}
        found = read_candidates(candidates / "candidates.jsonl", originals)
        record.metrics = write_variants(output, found, originals, judge, params.filter)
        click.echo(f"{record.metrics['n_accepted']} of {len(found)} candidates accepted; {output}", err=True)


if __name__ == "__main__":
    main()
