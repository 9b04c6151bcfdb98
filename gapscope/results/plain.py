"""A subject from a plain table of results: an id and a score, or an id and a prediction that is compared with gold.

Rows are joined with items by id and never by position. Which column holds what, and in which form, is named in the
parameters (:class:`gapscope.params.Results`); a cell that does not fit is an error that names its line.
"""

from __future__ import annotations

import logging
import math
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gapscope.benchmarks.reading import Row, read_rows
from gapscope.errors import InputError
from gapscope.items import Item
from gapscope.params import Results
from gapscope.results.policies import apply_policy, references_of
from gapscope.scores import ItemScore

logger = logging.getLogger(__name__)

POINTING = ("letter", "index", "text")
"""Forms of an answer that name one of the item's choices."""

TRUTH = {"true": 1.0, "false": 0.0}


def import_results(path: Path, items: list[Item], results: Results) -> tuple[list[ItemScore], dict[str, int]]:
    """Read one subject's results for the items: a score each, in the order of `items`, and counts of what did not fit.

    The counts are `n_without_result` (items), `n_without_item` (rows of the file), `n_missing` (matched rows with an
    empty cell) and `n_not_a_choice` (predictions that name none of the item's choices: wrong, since they are answers).

    Raises:
        InputError: the file is damaged, lacks a column, has an id twice, shares no id with the items, or holds a cell
            that is not of the stated form.
    """
    rows = _by_id(path, results)
    scores, n_missing, n_not_a_choice = [], 0, 0
    for item in items:
        if item.id not in rows:
            scores.append(ItemScore(item.id, reason="no_result"))
            continue
        line, cell = rows[item.id]
        if _is_empty(cell, results):
            n_missing += 1
            scores.append(ItemScore(item.id, 0.0) if results.missing == "wrong" else ItemScore(item.id, reason="missing"))
            continue
        score = _from_score(item, cell, path, line, results) if results.score_column else _from_prediction(item, cell, path, line, results)
        n_not_a_choice += results.prediction_form in POINTING and bool(item.choices) and score.prediction not in _indices(item)
        scores.append(score)
    n_matched = sum(item.id in rows for item in items)
    counts = {"n_without_result": len(items) - n_matched, "n_without_item": len(rows) - n_matched}
    _check_match(path, items, rows, n_matched, n_not_a_choice, n_missing)
    return scores, {**counts, "n_missing": n_missing, "n_not_a_choice": n_not_a_choice}


def _by_id(path: Path, results: Results) -> dict[str, tuple[int, Any]]:
    """Line and cell of every row by item id."""
    column = results.score_column or results.prediction_column or ""
    found: dict[str, tuple[int, Any]] = {}
    for line, row in read_rows(path):
        for name in (results.id_column, column):
            if name not in row:
                raise InputError(f"no column {name!r}; there are {_some(row)}", file=path, line=line, fix="name the column in results")
        key = _item_id(row, path, line, results)
        if key in found:
            raise InputError(f"duplicate id {key!r}, first on line {found[key][0]}", file=path, line=line, field=results.id_column)
        found[key] = (line, row[column])
    return found


def _item_id(row: Row, path: Path, line: int, results: Results) -> str:
    value = row[results.id_column]
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise InputError(f"{value!r} is no id", file=path, line=line, field=results.id_column, fix="ids are text or whole numbers")
    return results.id_prefix + str(value).strip()


def _is_empty(cell: Any, results: Results) -> bool:
    """Whether nothing stands in the cell; a NaN does stand for nothing among predictions, but is a value among scores."""
    if isinstance(cell, float) and math.isnan(cell):
        return results.prediction_column is not None
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _from_score(item: Item, cell: Any, path: Path, line: int, results: Results) -> ItemScore:
    text = str(cell).strip().lower()
    try:
        value = TRUTH[text] if text in TRUTH else float(text)
    except ValueError:
        value = math.inf
    if math.isnan(value):
        return ItemScore(item.id, reason="not_finite")
    if not 0 <= value <= 1:
        raise InputError(f"{cell!r} is no score from 0 to 1", file=path, line=line, field=results.score_column)
    return ItemScore(item.id, value)


def _from_prediction(item: Item, cell: Any, path: Path, line: int, results: Results) -> ItemScore:
    field = results.prediction_column
    if not isinstance(cell, (str, int, float)):
        raise InputError(f"{cell!r} is no answer", file=path, line=line, field=field)
    # A column of whole numbers with a gap in it is a column of floats to most writers of Parquet.
    text = str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()
    if results.prediction_form in ("exact", "number"):
        return ItemScore(item.id, apply_policy(results.prediction_form, text, references_of(item)), text)
    if results.prediction_form == "text":
        chosen = [str(k) for k, choice in enumerate(item.choices) if choice.strip() == text]
        prediction = chosen[0] if chosen else text
        right = bool(chosen) and int(prediction) == item.answer if item.choices else text == (item.target or "").strip()
        return ItemScore(item.id, float(right), prediction)
    if not item.choices:
        raise InputError(f"item {item.id!r} has no choices to point at", file=path, line=line, field=field, fix="use prediction_form: text")
    if results.prediction_form == "letter":
        if len(text) != 1 or text.upper() not in string.ascii_uppercase:
            raise InputError(f"{text!r} is not one letter", file=path, line=line, field=field, fix="check prediction_form")
        number = string.ascii_uppercase.index(text.upper())
    else:
        if not text.isascii() or not text.isdigit():
            raise InputError(f"{text!r} is not an index from 0", file=path, line=line, field=field, fix="check prediction_form")
        number = int(text)
    return ItemScore(item.id, float(number == item.answer), str(number))


def _indices(item: Item) -> set[str]:
    return {str(k) for k in range(len(item.choices))}


def _check_match(path: Path, items: list[Item], rows: dict[str, Any], n_matched: int, n_not_a_choice: int, n_missing: int) -> None:
    """Refuse a file that is about other items, or whose predictions are of another form; tell of a partial match."""
    if not n_matched:
        example = f"the file has {_some(rows)}, the items have {_some(item.id for item in items)}"
        raise InputError(f"no id is an item's: {example}", file=path, fix="set id_column and id_prefix")
    if n_not_a_choice and n_not_a_choice == n_matched - n_missing:
        raise InputError("no prediction names a choice of its item", file=path, fix="check prediction_column and prediction_form")
    if n_matched < len(items) or n_matched < len(rows):
        logger.warning(
            "%s: %d of %d items have a result, %d of %d results have an item",
            path.name, n_matched, len(items), n_matched, len(rows),
        )  # fmt: skip


def _some(names: Iterable[str], most: int = 3) -> str:
    listed = list(names)
    return ", ".join(map(repr, listed[:most])) + (", ..." if len(listed) > most else "")
