"""Published explanations of an SAE's latents: exports of Neuronpedia, and label files as Goodfire gives them.

Neuronpedia exports are JSON lines in gzipped batches (``v1/<model>/<source>/explanations/batch-*.jsonl.gz``), one explanation a
line with ``modelId``, ``layer`` (the SAE's source id), ``index`` (a number, often as text), ``description``, ``typeName`` and
``explanationModelName``; an older export is one JSON list of the same. Goodfire labels are ``index_in_sae`` and ``label`` in
its client's objects, or a plain object of labels by index.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import read_json, read_jsonl, read_text
from gapscope.params_labels import LabelFile

FIELDS = {"neuronpedia": (("index",), ("description",)), "goodfire": (("index_in_sae", "feature_index", "index"), ("label",))}
"""The fields of index and text in each format, the first that is there."""

MAX_TEXT = 400
"""Characters of a label that are kept; a longer one is a page, not a label."""


@dataclass(frozen=True)
class Published:
    """Published labels.

    Attributes:
        texts: label of each concept that has one.
        n_empty: entries without a text; n_repeated: entries of a concept that had one before (the first stays).
        n_other: entries of another SAE or of another explainer than asked for.
    """

    texts: dict[int, str]
    n_empty: int = 0
    n_repeated: int = 0
    n_other: int = 0


@dataclass(frozen=True)
class _Entry:
    file: Path
    line: int
    index: Any
    text: Any
    layer: str | None
    explainer: str | None


def read_published(source: Path, spec: LabelFile, n_concepts: int) -> Published:
    """Read the label files of an SAE of ``n_concepts`` concepts from a source's directory (or from the one file it is).

    Raises:
        InputError: a file is absent or damaged, holds labels of several SAEs or explainers of which none is chosen, an index
            that the SAE does not have, or no label at all.
    """
    entries = [entry for file in _files(source, spec) for entry in _entries(file, spec)]
    wanted = _chosen(_chosen(entries, "layer", spec.layer, source), "explainer", spec.explainer, source)
    texts: dict[int, str] = {}
    n_empty = n_repeated = 0
    for entry in wanted:
        index = _index(entry, n_concepts)
        text = clean(entry.text) if isinstance(entry.text, str) else ""
        if not text:
            n_empty += 1
        elif index in texts:
            n_repeated += 1
        else:
            texts[index] = text
    if not texts:
        raise InputError("holds no label", file=source, field=f"labels ({spec.format})", fix="check the format and the files")
    return Published(texts, n_empty, n_repeated, len(entries) - len(wanted))


def clean(text: str) -> str:
    """One line of printable characters, bounded in length."""
    line = " ".join("".join(char if char.isprintable() or char.isspace() else " " for char in text).split())
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1].rstrip() + "…"


def _files(source: Path, spec: LabelFile) -> list[Path]:
    if source.is_file():
        return [source]
    found: list[Path] = []
    for pattern in spec.files:
        matches = sorted(source.glob(pattern))
        if not matches:
            raise InputError(f"holds no {pattern}", file=source, field="labels files", fix="name files of the source")
        found += matches
    return sorted(set(found))


def _entries(file: Path, spec: LabelFile) -> Iterator[_Entry]:
    indices, texts = FIELDS[spec.format]
    for line, row in _rows(file, spec.format):
        if not isinstance(row, dict):
            raise InputError("an entry must be an object", file=file, line=line, fix=f"is it of the format {spec.format}?")
        index, text = (next((name for name in names if name in row), None) for names in (indices, texts))
        if index is None or text is None:
            missing = " or ".join(indices if index is None else texts)
            raise InputError("the field is missing", file=file, line=line, field=missing, fix=f"is it of the format {spec.format}?")
        layer, explainer = (None if row.get(name) is None else str(row[name]) for name in ("layer", "explanationModelName"))
        yield _Entry(file, line, row[index], row[text], layer, explainer)


def _rows(file: Path, form: str) -> Iterator[tuple[int, Any]]:
    """Line (or place, of one JSON list) and object of each entry."""
    name = file.name.removesuffix(".gz")
    if name.endswith(".csv"):
        reader = csv.DictReader(io.StringIO(read_text(file)))
        for row in reader:
            yield reader.line_num, row
    elif name.endswith(".jsonl"):
        yield from read_jsonl(file)
    else:
        found = read_json(file)
        if isinstance(found, dict) and form == "goodfire":
            found = [{"index": index, "label": label} for index, label in found.items()]
        if not isinstance(found, list):
            raise InputError("must be a list of explanations", file=file, fix=f"is it of the format {form}?")
        yield from enumerate(found, start=1)


def _chosen(entries: list[_Entry], name: str, wanted: str | None, source: Path) -> list[_Entry]:
    """The entries of one SAE, or of one explainer."""
    found = sorted({value for entry in entries if (value := getattr(entry, name)) is not None})
    if wanted is None:
        if len(found) > 1:
            raise InputError(f"holds several: {', '.join(found[:8])}", file=source, field=name, fix=f"name one in the label file's {name}")
        return entries
    kept = [entry for entry in entries if getattr(entry, name) == wanted]
    if not kept:
        raise InputError(f"holds none of {wanted!r}, but {', '.join(found[:8]) or 'no such field'}", file=source, field=name)
    return kept


def _index(entry: _Entry, n_concepts: int) -> int:
    try:
        index = int(str(entry.index).strip())
    except ValueError as error:
        raise InputError(f"is {entry.index!r}, must be a whole number", file=entry.file, line=entry.line, field="index") from error
    if not 0 <= index < n_concepts:
        message = f"is {index}, the SAE has {n_concepts} concepts"
        raise InputError(message, file=entry.file, line=entry.line, field="index", fix="give the labels of this very SAE")
    return index
