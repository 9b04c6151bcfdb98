"""The grpo stage: the generator after reinforcement, its curves, and what it does on families that it never saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapscope.files import atomic_directory, rounded, stable_hash, write_json, write_jsonl
from gapscope.lm import load_lm
from gapscope.params_variants import GrpoParams
from gapscope.provenance import library_versions
from gapscope.variants.filtering import Judge
from gapscope.variants.finetune import fast_dtype, save_model
from gapscope.variants.grpo import optimise
from gapscope.variants.hacking import attempts, examine
from gapscope.variants.sampling import Sampling
from gapscope.variants.seed_sets import read_split
from gapscope.variants.splits import HELDOUT, TRAIN
from gapscope.variants.tables import CURVES, write_plot
from gapscope.work import WorkDirectory, work_key

LAST = 5
"""Steps whose mean is the headline, at either end of the curve."""


def write_grpo(
    seeds_dir: Path, generator_dir: Path, output: Path, plots: Path, judge: Judge, inputs: list[Path], params: GrpoParams, work_root: Path,
    *, seed: int, device: str, threads: int,
) -> dict[str, Any]:  # fmt: skip
    """Train, write the model, ``report.json`` and ``check.jsonl``, and the plots' data; returns the headline metrics.

    ``inputs`` are what the reward depends on: a run that was killed goes on only where they are the same.

    Raises:
        InputError: as :func:`gapscope.variants.grpo.optimise`.
    """
    _seeds, originals = read_split(seeds_dir, TRAIN)
    _seeds, unseen = read_split(seeds_dir, HELDOUT)
    chosen = sorted(unseen.values(), key=lambda item: (stable_hash(seed, "check", item.id), item.id))[: params.check_families]
    how = Sampling(params.max_new_tokens, params.temperature, params.top_p)
    key = work_key([params.model_dump(), seed, device, threads, library_versions()], [seeds_dir, generator_dir, *inputs])
    work = WorkDirectory(work_root, "grpo", key)
    before, rows_before = examine(attempts(load_lm(generator_dir, fast_dtype(device), device), chosen, how, seed), judge)
    trained = optimise(generator_dir, list(originals.values()), judge, params, work, seed=seed, device=device)
    with atomic_directory(output) as directory:
        save_model(trained.lm, directory)
        after, rows_after = examine(attempts(load_lm(directory, fast_dtype(device), device), chosen, how, seed), judge)
        write_json(directory / "report.json", {"before": before, "after": after, "curve": trained.curve, **trained.counts})
        marked = [{"when": when} | row for when, rows in (("after", rows_after), ("before", rows_before)) for row in rows]
        write_jsonl(directory / "check.jsonl", [rounded(row) for row in marked])
    with atomic_directory(plots) as directory:
        for name, columns in CURVES.items():
            write_plot(directory / f"{name}.json", [{"step": point["step"]} | {c: point[c] for c in columns} for point in trained.curve])
    work.clear()
    return _headline(trained.curve, trained.counts, before, after)


def _headline(curve: list[dict[str, float]], counts: dict[str, int], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    ends = {"first": curve[:LAST], "last": curve[-LAST:]}
    reward = {name: sum(point["reward"] for point in part) / len(part) for name, part in ends.items()}
    return {**counts, "reward": reward, "kl_last": curve[-1]["kl"], "check": {"before": before, "after": after}}
