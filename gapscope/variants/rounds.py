"""Rounds of generation with real models: what the generate stage calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from gapscope.items import Item
from gapscope.lm import load_lm
from gapscope.params import Params, StageParams
from gapscope.provenance import library_versions
from gapscope.threads import use_threads
from gapscope.variants.filtering import Judge, Screen
from gapscope.variants.generation import BEFORE, TRAINED, Writer, generate, pick_sources, write_candidates
from gapscope.variants.sampling import encode_prompt
from gapscope.work import WorkDirectory, work_key


def run_rounds(
    models: tuple[Path, Path],
    judge: Judge,
    items: Sequence[Item],
    output: Path,
    params: Params | StageParams,
    work_root: Path,
    device: str,
    order: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Write and judge candidates with the trained generator and, for comparison, the one before; returns the headline metrics.

    Args:
        models: directories of both generators, the trained one first.
        judge: the verifier.
        items: of the whole suite.
        output: directory to write.
        params: ``rewritten`` (all benchmarks without it), ``generate``, ``filter``, ``threads`` and ``seed``.
        work_root: where finished batches are kept for a restart.
        device: of the generators.
        order: ids of the items to rewrite, in order; None for all, in the seed's order.

    Raises:
        InputError: see :func:`gapscope.variants.generation.pick_sources`, or a model cannot be loaded.
    """
    use_threads(params.threads)
    # One after the other would need less memory, but they are small, and the tokenizer of the first counts for both.
    loaded = [load_lm(directory, params.generate.dtype, device) for directory in models]

    def count(text: str) -> int:
        return len(encode_prompt(loaded[0], text))

    rewritten = params.rewritten if isinstance(params, Params) else None
    sources = pick_sources(items, rewritten, params.generate.max_prompt_tokens, count, params.seed, order)
    depends = {
        "generate": params.generate.model_dump(),
        "seed": params.seed,
        "items": [asdict(item) for item in sources.items],
        "threads": params.threads,
        "device": loaded[0].device.type,
        "versions": library_versions(),
    }
    work = WorkDirectory(work_root, "generate", work_key(depends, list(models)))
    trained, before = (Writer(lm, name, params.generate, params.seed, work) for lm, name in zip(loaded, (TRAINED, BEFORE), strict=True))
    screen = partial(Screen, judge, {item.id: item for item in sources.items}, params.filter)
    found = generate(trained, before, sources, screen, params.generate, count)
    metrics = write_candidates(output, found, sources, params.generate)
    work.clear()
    return metrics
