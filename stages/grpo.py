"""The grpo stage: optimises the generator with the verifier as its reward."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command


@stage_command("grpo")
@click.option("--seeds", type=EXISTING_DIR, required=True, help="Directory written by seeds.")
@click.option("--generator", type=EXISTING_DIR, required=True, help="Directory of the fine-tuned generator, written by sft.")
@click.option("--verifier", type=EXISTING_DIR, required=True, help="Directory of the verifier, written by sft.")
@click.option("--model", "model_dir", type=EXISTING_DIR, required=True, help="Directory of the model that sft was run with.")
@click.option(
    "--embedder", "embedder_dir", type=EXISTING_DIR, required=True, help="Directory of the sentence encoder that sft was run with."
)
@click.option("--output", type=PATH, required=True, help="Directory for the trained generator.")
@click.option("--plots", type=PATH, required=True, help="Directory for the data of plots.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@common_options
def main(
    seeds: Path, generator: Path, verifier: Path, model_dir: Path, embedder_dir: Path, output: Path, plots: Path, device: str,
    common: Common,
) -> None:  # fmt: skip
    """Optimise the generator with the verifier as its reward.

    The reward is the verifier's probability that a variant is valid, and 0 where it cannot be parsed, breaks its type's
    rule, copies the original or repeats its group. An interrupted run goes on from its last checkpoint in .work/.
    """
    from gapscope.variants.off import require_on, write_off

    params = common.params
    with common.stage() as record:
        if not params.variants.enabled:
            from gapscope.variants.tables import CURVES

            rows = {plots / f"{name}.json": {"step": 0, **dict.fromkeys(columns, 0)} for name, columns in CURVES.items()}
            record.metrics = write_off(output, plots=rows)
            return
        require_on((seeds, "seeds"), (generator, "sft"), (verifier, "sft"))
        from gapscope.threads import use_threads
        from gapscope.variants.grpo import require_vllm
        from gapscope.variants.grpo_stage import write_grpo
        from gapscope.variants.verifier import Verifier

        require_vllm(params.grpo)
        use_threads(params.threads)
        judge = Verifier.load(verifier, model_dir, embedder_dir, device=device)
        how = {"seed": params.seed, "device": device, "threads": params.threads}
        inputs = [verifier, model_dir, embedder_dir]
        record.metrics = write_grpo(seeds, generator, output, plots, judge, inputs, params.grpo, Path(".work"), **how)
        record.details |= how
        reward = record.metrics["reward"]
        click.echo(f"generator in {output}: reward {reward['first']:.3f} at first, {reward['last']:.3f} at last", err=True)


if __name__ == "__main__":
    main()
