"""A robustness benchmark for others: a folder that ``datasets`` loads, and tasks that lm-evaluation-harness runs.

Both hold the variants as they were put to the subjects here, choices in the same order, one file a type, and the
originals beside them, so that a run elsewhere gives the same accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gapscope.artifacts import EXPORT
from gapscope.files import write_bytes, write_jsonl
from gapscope.items import Item
from gapscope.params import ScoreParams
from gapscope.variants.cards import Provenance, dataset_card
from gapscope.variants.types import TYPES

ORIGINALS = "original"
GROUP = "gapscope_robustness"
LOADER = "gapscope_tasks"
METRICS = {"none": "acc", "char": "acc_norm", "byte": "acc_bytes"}
"""The harness's name of each normaliser; it has none for tokens."""


def parts(originals: Mapping[str, Item], variants: Sequence[Item]) -> dict[str, list[Item]]:
    """The originals, and the variants of each type that has any, sorted by id."""
    groups = {ORIGINALS: list(originals.values())} | {slug: [v for v in variants if v.meta["type"] == slug] for slug in TYPES}
    return {name: sorted(group, key=lambda item: item.id) for name, group in groups.items() if group}


def row(item: Item, part: str) -> dict[str, Any]:
    """One line of an exported file; an original has no level and no verdict, whatever its ``meta`` holds."""
    meta = {} if part == ORIGINALS else item.meta
    return {
        "id": item.id,
        "family": item.family,
        "benchmark": item.benchmark,
        "type": part,
        "bloom": meta.get("bloom"),
        "text": item.text,
        "choices": list(item.choices),
        "answer": item.answer,
        "p_valid": (meta.get("verdict") or {}).get("p"),
    }


def write_export(
    directory: Path, originals: Mapping[str, Item], variants: Sequence[Item], score: ScoreParams, provenance: Provenance
) -> None:
    """Write ``datasets/`` and ``lm_eval/`` into an existing directory; both are empty but for a card where nothing was accepted."""
    groups = parts(originals, variants)
    for name, group in groups.items():
        rows = [row(item, name) for item in group]
        EXPORT.write(directory / "datasets" / f"{name}.parquet", {c.name: [each[c.name] for each in rows] for c in EXPORT.columns})
        write_jsonl(directory / "lm_eval" / f"{name}.jsonl", rows)
        _write_yaml(directory / "lm_eval" / f"{GROUP}_{name}.yaml", task(name, score))
    write_bytes(
        directory / "datasets" / "README.md", dataset_card({name: len(group) for name, group in groups.items()}, provenance).encode()
    )
    if groups:
        _write_yaml(directory / "lm_eval" / f"_{GROUP}.yaml", group_task([name for name in groups if name != ORIGINALS], score))
        write_bytes(directory / "lm_eval" / f"{LOADER}.py", LOADER_CODE.encode())


def metrics_of(score: ScoreParams) -> list[str]:
    """The harness's metrics, that of gapscope's own normaliser first where it has one."""
    names = list(METRICS.values())
    own = METRICS.get(score.normaliser)
    return names if own is None else [own, *(name for name in names if name != own)]


@dataclass(frozen=True)
class Tag:
    """A YAML value that is written as ``!function value``, which the harness resolves beside the file."""

    value: str


class _Dumper(yaml.SafeDumper):
    """Writes tags as tags."""


_Dumper.add_representer(Tag, lambda dumper, tag: dumper.represent_scalar("!function", tag.value))


def _write_yaml(path: Path, value: dict[str, Any]) -> None:
    write_bytes(path, yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000).encode())


def task(name: str, score: ScoreParams) -> dict[str, Any]:
    """A task of the harness: the same prompt, separator and choices as gapscope's own scorer uses."""
    return {
        "task": f"{GROUP}_{name}",
        "custom_dataset": Tag(f"{LOADER}.load"),
        "dataset_kwargs": {"part": name},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": _jinja(score.prompt),
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "target_delimiter": score.separator,
        "metric_list": [{"metric": metric, "aggregation": "mean", "higher_is_better": True} for metric in metrics_of(score)],
        "metadata": {"version": 1},
    }


def group_task(names: Sequence[str], score: ScoreParams) -> dict[str, Any]:
    """The group of all types: its accuracy is the mean over variants, as ara is."""
    own = metrics_of(score)[0]
    return {
        "group": GROUP,
        "task": [f"{GROUP}_{name}" for name in names],
        "aggregate_metric_list": [{"metric": own, "aggregation": "mean", "weight_by_size": True}],
        "metadata": {"version": 1},
    }


def _jinja(prompt: str) -> str:
    """The prompt as a template that puts the item's text in and takes everything else as it is."""
    quoted = ["{{ " + repr(part) + " }}" if any(mark in part for mark in ("{{", "{%", "{#")) else part for part in prompt.split("{text}")]
    return "{{text}}".join(quoted)


LOADER_CODE = '''"""Reads a task's items from beside this file, wherever the harness is started."""

from pathlib import Path

import datasets


def load(part, **_metadata):
    """The test split of one task."""
    file = Path(__file__).parent / f"{part}.jsonl"
    return {"test": datasets.Dataset.from_json(str(file), keep_in_memory=True)}
'''
