"""The sft stage: fine-tunes the verifier and the generator of variants."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command


@stage_command("sft")
@click.option("--seeds", type=EXISTING_DIR, required=True, help="Directory written by seeds.")
@click.option("--model", "model_dir", type=EXISTING_DIR, required=True, help="Directory of the model in the Hugging Face layout.")
@click.option("--embedder", "embedder_dir", type=EXISTING_DIR, required=True, help="Directory of the sentence encoder.")
@click.option(
    "--verifier-output", "verifier", type=PATH, required=True, help="Directory for verifier.json, scores.parquet and report.json."
)
@click.option("--generator-output", "generator", type=PATH, required=True, help="Directory for the generator.")
@click.option("--plots", type=PATH, required=True, help="Directory for the data of plots.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    seeds: Path, model_dir: Path, embedder_dir: Path, verifier: Path, generator: Path, plots: Path, device: str, common: Common
) -> None:
    """Fine-tune a verifier and a generator of variants.

    Four verifiers are trained on the training families and compared on the development families: two fine-tuned models
    (ERA asks about each dimension by itself, IRA writes the whole verdict), a classifier on evidence, and a stack of
    both. The best is kept, and only then scored on the held-out families.
    """
    from gapscope.variants.off import require_on, write_off

    params = common.params
    with common.stage() as record:
        if not params.variants.enabled:
            bars, points = {"group": "valid", "verifier": "off", "balanced_accuracy": 0}, {"stated": 0, "observed": 0, "n": 0}
            record.metrics = write_off(verifier, generator, plots={plots / "verifiers.json": bars, plots / "calibration.json": points})
            return
        require_on((seeds, "seeds"))
        from gapscope.threads import use_threads
        from gapscope.variants.sft import write_sft
        from gapscope.variants.verifier_training import Workplace

        use_threads(params.threads)
        place = Workplace(model_dir, embedder_dir, params.sft, params.seed, params.threads, device, Path(".work"))
        record.metrics = write_sft(seeds, verifier, generator, plots, place)
        record.details |= {"device": device, "threads": params.threads}
        heldout = record.metrics["heldout"]
        shown = (
            f"balanced accuracy {heldout['balanced_accuracy']:.3f}, label correctness {heldout['label_correct']['balanced_accuracy']:.3f}"
        )
        click.echo(f"verifier in {verifier}: on {heldout['n']} held-out variants {shown}; generator in {generator}", err=True)


if __name__ == "__main__":
    main()
