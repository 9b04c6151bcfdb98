"""The items that the page shows, and what every subject answered to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gapscope.artifacts import SCORES
from gapscope.files import dump_json
from gapscope.items import Item
from gapscope.report.explorer.blocks import Block
from gapscope.report.text import shorten

ANSWER_COLUMNS = 400
"""A free-form answer is cut to so many columns: it may be pages of reasoning."""

SHOWN_META = 200


def items_block(items: list[Item]) -> Block:
    """Texts, choices and golds of items, in the order given."""
    block = Block()
    block.value("id", [item.id for item in items])
    block.value("text", [item.text for item in items])
    block.value("choices", [list(item.choices) for item in items])
    block.value("target", [item.target for item in items])
    block.value("meta", [_meta(item) for item in items])
    block.codes("benchmark", [item.benchmark for item in items])
    # 0 stands for no gold choice.
    block.counts("gold", np.array([0 if item.answer is None else item.answer + 1 for item in items], dtype=np.int64))
    return block


def _meta(item: Item) -> str:
    """What the source says of an item, on one line: only what is short."""
    pairs = [(key, value if isinstance(value, str) else dump_json(value)) for key, value in sorted(item.meta.items())]
    return shorten(", ".join(f"{key} {value}" for key, value in pairs if len(value) <= 60), SHOWN_META)


def answers_block(file: Path, items: list[Item]) -> Block:
    """Score and prediction of one subject on the items: the index of a choice, or its answer as text."""
    table = SCORES.read(file, ["item_id", "score", "prediction", "scored"])
    rows: dict[str, dict[str, Any]] = {row["item_id"]: row for row in table.to_pylist()}
    nothing = {"score": None, "prediction": None, "scored": False}
    found = [rows.get(item.id, nothing) for item in items]
    block = Block()
    block.linear("score", np.array([np.nan if row["score"] is None or not row["scored"] else row["score"] for row in found]))
    # 0 stands for no choice.
    block.counts("choice", np.array([_choice(row["prediction"], item) for row, item in zip(found, items, strict=True)]))
    block.value("answer", [_answer(row["prediction"], item) for row, item in zip(found, items, strict=True)])
    return block


def _choice(prediction: str | None, item: Item) -> int:
    number = prediction is not None and prediction.isascii() and prediction.isdigit() and len(prediction) < 4
    return int(prediction or 0) + 1 if number and int(prediction or 0) < len(item.choices) else 0


def _answer(prediction: str | None, item: Item) -> str | None:
    return None if prediction is None or _choice(prediction, item) else shorten(prediction, ANSWER_COLUMNS)
