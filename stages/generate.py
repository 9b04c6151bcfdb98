"""The generate stage: candidates of every variant type, until enough are accepted or the budget is spent."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command


@stage_command("generate")
@click.option("--generator", type=EXISTING_DIR, required=True, help="Directory written by grpo.")
@click.option("--before", type=EXISTING_DIR, required=True, help="The generator that sft wrote, to compare with.")
@click.option("--verifier", type=EXISTING_DIR, required=True, help="Directory written by sft.")
@click.option("--model", "model_dir", type=EXISTING_DIR, required=True, help="Directory of the untuned model, which the verifier asks too.")
@click.option("--embedder", "embedder_dir", type=EXISTING_DIR, required=True, help="Directory of the sentence encoder.")
@click.option("--items", "items_file", type=EXISTING_FILE, required=True, help="items.jsonl, the questions to rewrite.")
@click.option("--sources", type=EXISTING_DIR, help="Directory written by sources; without it all items come in the seed's order.")
@click.option("--output", type=PATH, required=True, help="Directory for candidates.jsonl, sft.jsonl and report.json.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    generator: Path,
    before: Path,
    verifier: Path,
    model_dir: Path,
    embedder_dir: Path,
    items_file: Path,
    sources: Path | None,
    output: Path,
    device: str,
    common: Common,
) -> None:
    """Write candidates and judge them, round by round.

    Rounds go on until every type has generate.target_per_type accepted variants, or generate.max_candidates are written.
    An interrupted run goes on from where it stopped: its finished batches are in .work/.
    """
    import time

    from gapscope.items import read_items
    from gapscope.variants.off import require_on, write_off

    params = common.params
    with common.stage() as record:
        if not params.variants.enabled:
            record.metrics = write_off(output)
            return
        require_on((generator, "grpo"), (before, "sft"), (verifier, "sft"), *([] if sources is None else [(sources, "sources")]))
        from gapscope.loop.order import read_order
        from gapscope.variants.rounds import run_rounds
        from gapscope.variants.verifier import Verifier

        started = time.perf_counter()
        judge = Verifier.load(verifier, model_dir, embedder_dir, device=device)
        order = None if sources is None else read_order(sources)
        record.metrics = run_rounds((generator, before), judge, read_items(items_file), output, params, Path(".work"), device, order)
        accepted, seconds = record.metrics["n_accepted"], time.perf_counter() - started
        record.details |= {"seconds_per_accepted": seconds / accepted} if accepted else {}
        click.echo(f"{accepted} of {record.metrics['n_candidates']} candidates accepted; {output}", err=True)


if __name__ == "__main__":
    main()
