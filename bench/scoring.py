"""Choice scoring against lm-evaluation-harness: the same model, items, dtype and threads, in one run.

    python -m bench.scoring --model data/raw/smollm2_135m --items data/items/items.jsonl --threads 2

Both score the same prompts and choices by log-likelihood, tokenising included; the peer's task layer, its metrics and
the loading of the weights are left out. The two take turns, so that a busy machine slows both, and each one's fastest
turn counts. The bar is twice the peer's items a second, and equal predictions. Seconds of the processors are shown
beside, since they hold still where other work takes its turns on the same cores. In bfloat16 a near tie may fall the
other way with another batch, in the peer as here: predictions are equal in float32.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np

BAR = 2.0

Turn = Callable[[list[Any]], list[list[float]]]


def evenly(items: list[Any], limit: int) -> list[Any]:
    """So many items, spread evenly over the list (which is sorted by id, hence by benchmark)."""
    count = min(limit, len(items))
    return [items[k * len(items) // count] for k in range(count)]


def gapscope_turn(lm: Any, params: Any, items: list[Any]) -> list[list[float]]:
    """Log-probabilities of every item's choices by gapscope."""
    from gapscope.scoring import score_items
    from gapscope.work import WorkDirectory

    with tempfile.TemporaryDirectory() as directory:
        return [list(score.logprobs or ()) for score in score_items(lm, items, params, WorkDirectory(Path(directory), "score", "bench"))]


def peer_turn(peer: Any, params: Any, items: list[Any]) -> list[list[float]]:
    """The same by lm-eval's HFLM."""
    from lm_eval.api.instance import Instance

    pairs = [(params.prompt.replace("{text}", item.text), params.separator + choice) for item in items for choice in item.choices]
    requests = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    values = iter(value for value, _greedy in peer.loglikelihood(requests, disable_tqdm=True))
    return [[next(values) for _ in item.choices] for item in items]


def compare(mine: list[list[float]], theirs: list[list[float]], items: list[Any]) -> tuple[int, int, float]:
    """Items predicted alike without a normaliser and per character, and the greatest difference of a log-probability."""
    sizes = [[len(choice) for choice in item.choices] for item in items]
    pairs = list(zip(mine, theirs, sizes, strict=True))
    alike = sum(np.argmax(a) == np.argmax(b) for a, b, _ in pairs)
    alike_char = sum(np.argmax(np.divide(a, n)) == np.argmax(np.divide(b, n)) for a, b, n in pairs)
    return int(alike), int(alike_char), max(float(np.abs(np.subtract(a, b)).max()) for a, b, _ in pairs)


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True, help="Model directory.")
@click.option("--items", "items_file", type=click.Path(path_type=Path, exists=True), required=True, help="items.jsonl.")
@click.option("--limit", default=100, show_default=True, help="Items, spread evenly over the file.")
@click.option("--threads", default=2, show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--turns", default=2, show_default=True, help="Turns of each.")
@click.option("--batch-size", default=8, show_default=True, help="The peer's requests in a batch.")
@click.option("--batch-tokens", default=512, show_default=True, help="Tokens in one of gapscope's batches.")
def main(model: Path, items_file: Path, limit: int, threads: int, dtype: str, turns: int, batch_size: int, batch_tokens: int) -> None:
    """Items a second of gapscope and of lm-eval, their ratio, and whether they predict the same."""
    import torch
    from lm_eval.models.huggingface import HFLM

    from gapscope.items import read_items
    from gapscope.lm import load_lm
    from gapscope.params import ScoreParams

    torch.set_num_threads(threads)
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    items = evenly([item for item in read_items(items_file) if item.choices], limit)
    params = ScoreParams(normaliser="none", batch_tokens=batch_tokens)
    lm = load_lm(model, dtype, "cpu")
    peer = HFLM(pretrained=str(model), dtype=dtype, device="cpu", batch_size=batch_size)
    turn: dict[str, Turn] = {"gapscope": partial(gapscope_turn, lm, params), "lm-eval": partial(peer_turn, peer, params)}
    best, found = dict.fromkeys(turn, (float("inf"), float("inf"))), {}
    for run in turn.values():
        run(items[:2])
    for number in range(turns):
        for name in sorted(turn, reverse=number % 2 == 1):
            wall, processors = time.perf_counter(), time.process_time()
            found[name] = turn[name](items)
            best[name] = min(best[name], (time.perf_counter() - wall, time.process_time() - processors))
    alike, alike_char, difference = compare(found["gapscope"], found["lm-eval"], items)
    ratio, ratio_processors = (theirs / mine for theirs, mine in zip(best["lm-eval"], best["gapscope"], strict=True))
    click.echo(f"{len(items)} items, {sum(len(item.choices) for item in items)} choices, {dtype}, {threads} threads")
    for title, (wall, processors) in (("gapscope", best["gapscope"]), (f"lm-eval {version('lm_eval')}", best["lm-eval"])):
        click.echo(f"{title:18} {len(items) / wall:8.2f} items/s {len(items) / processors:8.2f} items/processor second")
    click.echo(f"{'ratio':18} {ratio:8.2f} (bar {BAR}) {ratio_processors:7.2f}")
    click.echo(
        f"same prediction    {alike} of {len(items)} (acc), {alike_char} (acc_norm); greatest log-probability difference {difference:.1e}"
    )
    sys.exit(0 if ratio >= BAR and min(alike, alike_char) == len(items) else 1)


if __name__ == "__main__":
    main()
