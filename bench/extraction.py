"""Extraction against the bare forward pass up to the hook layer: same batches, dtype and threads, in one run.

    python -m bench.extraction --model DIR --sae DIR --items FILE [--texts 200] [--threads 2] [--dtype bfloat16]

Prints tokens a second of both and their ratio; at least 0.8 is the bar. Whole rounds of the two alternate and the median of
each is taken, so that other load on the machine weighs on both. Extraction here is everything done to a batch: the forward pass,
encoding, sparse codes, pooling, peaks for the contexts, and the shard's bytes; with --control the random dictionary too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import click


@click.command()
@click.option("--model", "model_dir", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--sae", "sae_dir", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--items", "items_file", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--texts", default=200, show_default=True, help="Items to read, evenly spaced.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--batch-tokens", default=2048, show_default=True)
@click.option("--control/--no-control", default=True, show_default=True)
def main(
    model_dir: Path, sae_dir: Path, items_file: Path, texts: int, rounds: int, threads: int, dtype: str, batch_tokens: int, control: bool
) -> None:
    """Measure extraction against the bare forward pass."""
    from gapscope.batches import plan_batches
    from gapscope.canary import run_canary
    from gapscope.competency.contexts import peaks_of
    from gapscope.competency.extraction import make_policy
    from gapscope.competency.random_dictionary import RandomDictionary
    from gapscope.competency.reading import Reader
    from gapscope.competency.saliency import Assembly, read_shard
    from gapscope.items import read_items
    from gapscope.lm import load_lm, pad_batch, pad_id, read_residual
    from gapscope.params import ExtractActivationsParams
    from gapscope.sae import load_sae
    from gapscope.threads import use_threads

    use_threads(threads)
    lm, sae = load_lm(model_dir, dtype), load_sae(sae_dir)
    policy = make_policy(lm, sae, run_canary(lm, sae), ExtractActivationsParams())
    items = read_items(items_file)
    items = items[:: max(1, len(items) // texts)][:texts]
    encodings = [policy.encode(lm, item.text) for item in items]
    lengths = [len(encoding.ids) for encoding in encodings]
    batches = plan_batches(lengths, batch_tokens)
    plain = Reader(lm, sae, policy)
    sample = plain.tokens([encodings[index] for index in batches[0]]).x
    reader = Reader(lm, sae, policy, {"random": RandomDictionary.like(sae, sample, 0)} if control else {})

    def bare() -> None:
        for batch in batches:
            ids, mask = pad_batch([encodings[index].ids for index in batch], pad_id(lm.tokenizer), lm.device)
            read_residual(lm, ids, mask, sae.layer)

    def extraction() -> None:
        assembly = Assembly(len(items), sae.d_sae)
        shard = read_shard(reader, batches, encodings.__getitem__)
        shard.to_bytes()
        assembly.add(shard)
        peaks_of(shard.codes, shard.texts, shard.n_tokens, ~shard.masked)

    seconds: dict[str, list[float]] = {"bare": [], "extraction": []}
    for _round in range(rounds + 1):
        for name, work in (("bare", bare), ("extraction", extraction)):
            seconds[name].append(_timed(work))
    n = sum(lengths)
    # The first round warms up allocators and caches.
    rates = {name: n / statistics.median(found[1:]) for name, found in seconds.items()}
    for name, rate in rates.items():
        click.echo(f"{name:>11}: {rate:8.0f} tokens/s  ({n} tokens, {len(batches)} batches, {dtype}, {threads} threads)")
    click.echo(f"      ratio: {rates['extraction'] / rates['bare']:8.3f}")


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
