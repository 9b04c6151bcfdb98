"""HellaSwag-Pro's own files (arXiv 2502.11393) as seeds: human-made variants of seven types, all meant to be valid.

A file holds JSON lines, variants ``{id, original_context, original_choices, original_label, perturbation_type, context,
choices, label}`` and, there or in a file of their own, originals ``{id, context, choices, label}``. One id joins an
original and its variants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import read_jsonl
from gapscope.items import Item, item_faults
from gapscope.variants.seeds import DIMENSIONS, ORIGINAL, Seed
from gapscope.variants.types import gold, rule_faults
from gapscope.variants.wording import normalise

DOMAIN = "hellaswag_pro"
TYPE_NAMES = {
    "problem_reparagraphing": "problem_restatement",
    "reverse_conversion": "reverse_conversion",
    "abductive_reasoning": "causal_inference",
    "sentence_sorting": "sentence_ordering",
    "scene_transition": "scenario_refinement",
    "negative_testing": "negative_transformation",
    "critical_thinking": "critical_testing",
}
WIDTH = 4


def read_hellaswag_pro(paths: Sequence[Path]) -> tuple[list[Seed], dict[str, int]]:
    """Seeds of the files and how many rows were odd, by what is odd about them.

    Rows that can be used are kept as they are and labelled by what is known of them: valid, but for a choice that
    occurs twice (fails AU) and a scenario whose right answer did not change (fails TC). Rows of another width than four
    choices are kept. Rows that no rule can repair (gold out of range, an empty choice, the same type twice for one id,
    no original) are left out. Each kind is counted.

    Raises:
        InputError: a line is damaged, a field has the wrong type, or a variant type is unknown.
    """
    counts: Counter[str] = Counter()
    originals: dict[str, Seed] = {}
    variants: dict[tuple[str, str], Seed] = {}
    for path in paths:
        for line, row in read_jsonl(path):
            counts["n_rows"] += 1
            name = row.get("perturbation_type")
            if name is None:
                _keep_original(originals, _seed(row, ORIGINAL, "", path, line), counts)
                continue
            if not isinstance(name, str) or name not in TYPE_NAMES:
                raise InputError(f"is {name!r}", file=path, line=line, field="perturbation_type", fix=f"one of: {', '.join(TYPE_NAMES)}")
            if "original_context" in row:
                _keep_original(originals, _seed(row, ORIGINAL, "original_", path, line), counts)
            seed = _seed(row, TYPE_NAMES[name], "", path, line)
            if (seed.item.family, seed.type) in variants:
                counts["left_out_repeated"] += 1
            else:
                variants[seed.item.family, seed.type] = seed
    kept = [judged for seed in variants.values() if (judged := _judge(seed, originals, counts)) is not None]
    families = {seed.item.family for seed in kept}
    return [*(seed for family, seed in originals.items() if family in families), *kept], dict(sorted(counts.items()))


def _seed(row: dict[str, Any], slug: str, prefix: str, path: Path, line: int) -> Seed:
    def field(name: str, *types: type) -> Any:
        value = row.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            wanted = " or ".join(kind.__name__ for kind in types)
            raise InputError(f"must be {wanted}", file=path, line=line, field=name)
        return value

    family = f"{DOMAIN}-{field('id', int, str)}"
    choices = field(f"{prefix}choices", list)
    if not all(isinstance(choice, str) for choice in choices):
        raise InputError("must be a list of texts", file=path, line=line, field=f"{prefix}choices")
    label = field(f"{prefix}label", int, str)
    if isinstance(label, str) and not label.isdigit():
        raise InputError(f"is {label!r}, the index of the right choice is needed", file=path, line=line, field=f"{prefix}label")
    verdict = dict.fromkeys(DIMENSIONS, True)
    item = Item(
        id=f"{family}-{slug}",
        benchmark="seeds",
        family=family,
        text=field(f"{prefix}context", str),
        choices=tuple(choice.strip() for choice in choices),
        answer=int(label),
        kind="choice",
        meta={"type": slug, "domain": DOMAIN, "verdict": {**verdict, "valid": True}},
    )
    return Seed(item, slug, verdict, path, line)


def _keep_original(originals: dict[str, Seed], seed: Seed, counts: Counter[str]) -> None:
    """Keep the first original of a family; another one that differs is counted."""
    first = originals.setdefault(seed.item.family, seed)
    if (first.item.text, first.item.choices, first.item.answer) != (seed.item.text, seed.item.choices, seed.item.answer):
        counts["original_differs"] += 1


def _judge(seed: Seed, originals: dict[str, Seed], counts: Counter[str]) -> Seed | None:
    """The seed with its labels, or None where it cannot be used."""
    original = originals.get(seed.item.family)
    if original is None or item_faults(original.item):
        counts["left_out_no_original"] += 1
        return None
    faults = {reason for reason, _explanation in item_faults(seed.item)}
    if faults - {"duplicate_choice"}:
        counts[f"left_out_{min(faults - {'duplicate_choice'})}"] += 1
        return None
    verdict = dict(seed.verdict)
    if faults:
        verdict["au"] = False
        counts["duplicate_choice"] += 1
    if seed.type == "scenario_refinement" and normalise(gold(seed.item)) == normalise(gold(original.item)):
        verdict["tc"] = False
        counts["scenario_gold_unchanged"] += 1
    if len(seed.item.choices) != WIDTH:
        counts[f"choices_{len(seed.item.choices)}"] += 1
    if all(verdict.values()) and rule_faults(seed.item, original.item, seed.type):
        counts["breaks_rule"] += 1
    meta = {**seed.item.meta, "verdict": {**verdict, "valid": all(verdict.values())}}
    item = Item(**{**vars(seed.item), "meta": meta})
    return Seed(item, seed.type, verdict, seed.file, seed.line)
