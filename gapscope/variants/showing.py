"""Variants beside their originals, for a person to read."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from gapscope.items import Item
from gapscope.variants.types import TYPES, gold

WIDTH = 100


def pick(variants: Sequence[Item], types: Sequence[str], sample: int) -> dict[str, list[Item]]:
    """The first ``sample`` variants of each type by id: the first, not the best."""
    ordered = sorted(variants, key=lambda item: item.id)
    return {slug: [item for item in ordered if item.meta.get("type") == slug][:sample] for slug in types}


def as_rows(picked: Mapping[str, Sequence[Item]], originals: Mapping[str, Item]) -> list[dict[str, Any]]:
    """JSON-like rows, each a variant with what it was made from."""
    return [
        {
            "id": item.id,
            "type": slug,
            "original": _question(originals[str(item.meta["original"])]),
            "variant": _question(item),
            "verdict": item.meta.get("verdict"),
        }
        for slug, items in picked.items()
        for item in items
    ]


def as_text(picked: Mapping[str, Sequence[Item]], originals: Mapping[str, Item], n_all: Mapping[str, int]) -> str:
    """A heading a type, and each variant below its original; a star marks the gold choice."""
    lines: list[str] = []
    for slug, items in picked.items():
        lines += [f"== {slug}: {len(items)} of {n_all[slug]}. {TYPES[slug].instruction}", ""]
        for item in items:
            verdict = item.meta.get("verdict") or {}
            p = f"  (the verifier's p {verdict['p']:.2f})" if verdict.get("p") is not None else ""
            lines += [f"{item.id}{p}", *_shown("original", originals[str(item.meta["original"])]), *_shown("variant", item), ""]
    return "\n".join(lines).rstrip("\n")


def _question(item: Item) -> dict[str, Any]:
    return {"text": item.text, "choices": list(item.choices), "answer": item.answer, "gold": gold(item)}


def _plain(text: str) -> str:
    """Without control characters and marks of direction: what a model wrote must not move the cursor of who reads it."""
    return "".join(char for char in text if char == "\n" or not unicodedata.category(char).startswith("C"))


def _shown(name: str, item: Item) -> list[str]:
    text = [line for part in _plain(item.text).split("\n") for line in textwrap.wrap(part, WIDTH - 12) or [""]]
    rows = [f"  {name if k == 0 else '':<9} {line}" for k, line in enumerate(text)]
    return rows + [f"            {'*' if k == item.answer else ' '} {_plain(choice)}" for k, choice in enumerate(item.choices)]
