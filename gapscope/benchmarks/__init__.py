"""Benchmarks in their sources' formats, read into items: one module a format, one way through for all of them.

A row that cannot become an item is left out under a counted reason; a damaged file is an error.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gapscope.benchmarks import lettered, rows, yes_no
from gapscope.benchmarks.question import Gold, UnusableRowError, as_text, field_at, has_field, item_text, normalised
from gapscope.benchmarks.reading import Row, read_rows, table_suffix
from gapscope.errors import InputError
from gapscope.files import stable_hash
from gapscope.items import Item, item_faults, read_items
from gapscope.params_data import (
    Benchmark,
    ItemsBenchmark,
    LetteredBenchmark,
    ResultsBenchmark,
    RowsBenchmark,
    RowsOptions,
    TextOptions,
    YesNoBenchmark,
)
from gapscope.progress import track

__all__ = ["BenchmarkItems", "matching_files", "read_benchmark", "sample"]


UNIQUE = "give every question its own id, or leave the id column out"


@dataclass(frozen=True)
class BenchmarkItems:
    """What a benchmark's files yield.

    Attributes:
        items: every usable item, sorted by id, before any limit.
        n_rows: rows read.
        dropped: rows left out, by reason.
    """

    items: list[Item]
    n_rows: int
    dropped: dict[str, int]


def matching_files(directory: Path, patterns: Iterable[str]) -> list[Path]:
    """The files inside a source that the patterns name, sorted.

    Raises:
        InputError: a pattern matches nothing.
    """
    found: set[Path] = set()
    for pattern in patterns:
        files = {path for path in directory.glob(pattern) if path.is_file()}
        if not files:
            raise InputError(f"no file matches {pattern!r}", file=directory, fix="correct files:, or include: of the source")
        found |= files
    return sorted(found)


def read_benchmark(slug: str, benchmark: Benchmark, directory: Path, *more: Path) -> BenchmarkItems:
    """Read a benchmark from its sources' directories; the order of rows and files has no influence on the result.

    Raises:
        InputError: a file is absent or damaged, no row has a column that the parameters name, or an id stands for two
            different questions.
    """
    files = [file for source in (directory, *more) for file in matching_files(source, benchmark.files)]
    if isinstance(benchmark, ItemsBenchmark):
        items = [replace(item, benchmark=slug) for file in files for item in _items_of(file)]
        n_rows, dropped = len(items), Counter[str]()
    elif isinstance(benchmark, ResultsBenchmark):
        from gapscope.results.bring import bring_benchmark

        items, dropped, n_rows = bring_benchmark(slug, benchmark, files)
    else:
        options, gold = _reader(benchmark)
        items, dropped = _items_of_rows(slug, benchmark.kind, options, gold, files)
        n_rows = len(items) + dropped.total()
    unique = without_duplicates(items, dropped, directory)
    return BenchmarkItems(unique, n_rows, dict(sorted(dropped.items())))


def sample(items: list[Item], limit: int | None, seed: int) -> list[Item]:
    """At most ``limit`` items, sorted by id, chosen by hash: a higher limit, or one more item, moves no other."""
    if limit is None:
        return items
    chosen = sorted(items, key=lambda item: (stable_hash(seed, item.id), item.id))[:limit]
    return sorted(chosen, key=lambda item: item.id)


def _items_of(file: Path) -> list[Item]:
    if table_suffix(file) != ".jsonl":
        raise InputError("the item schema is JSON lines", file=file, fix="use a .jsonl or .jsonl.gz file, or format: rows")
    return read_items(file)


def _reader(
    benchmark: LetteredBenchmark | YesNoBenchmark | RowsBenchmark,
) -> tuple[TextOptions, Callable[[Row], Gold]]:
    # Each format's own function, with its own options bound; a lambda in each branch keeps the types apart.
    match benchmark:
        case LetteredBenchmark(options=letters):
            return letters, lambda row: lettered.read_gold(row, letters)
        case YesNoBenchmark(options=answers):
            return answers, lambda row: yes_no.read_gold(row, answers)
        case RowsBenchmark(options=columns):
            return columns, lambda row: rows.read_gold(row, columns)


def _items_of_rows(
    slug: str, kind: str, options: TextOptions, gold: Callable[[Row], Gold], files: list[Path]
) -> tuple[list[Item], Counter[str]]:
    items: list[Item] = []
    dropped: Counter[str] = Counter()
    absent, names = _columns(options), set[str]()
    seen: dict[str, tuple[str, ...]] = {}
    for file, line, row in _rows_of(slug, files):
        absent = {column for column in absent if not has_field(row, column)}
        names |= row.keys()
        try:
            item = _item(slug, kind, options, gold(row), row, file)
        except UnusableRowError as fault:
            dropped[fault.reason] += 1
            continue
        if seen.setdefault(item.id, _key(item.text, item.choices)) != _key(item.text, item.choices):
            raise InputError(f"id {item.id!r} was another question's before", file=file, line=line, field=options.id, fix=UNIQUE)
        items.append(item)
    if absent:
        raise InputError("no row has this column", file=files[0], field=min(absent), fix=f"it has {', '.join(sorted(names))}")
    return items, dropped


def _rows_of(slug: str, files: list[Path]) -> Iterator[tuple[Path, int, Row]]:
    for file in track(files, f"reading {slug}", unit="file"):
        for line, row in read_rows(file):
            yield file, line, row


def _columns(options: TextOptions) -> set[str]:
    columns = {options.question, options.passage, options.id, options.family, *options.meta.values()}
    if isinstance(options, RowsOptions):
        choices = options.choices if isinstance(options.choices, list) else [options.choices]
        columns |= {*choices[:2], options.labels, options.answer, options.target}
    else:
        columns |= {getattr(options, name, None) for name in ("options", "answer")}
    return {column for column in columns if column}


def _item(slug: str, kind: str, options: TextOptions, gold: Gold, row: Row, file: Path) -> Item:
    text = item_text(row, options)
    name = as_text(field_at(row, options.id)) if options.id else _content_hash(text, gold)
    if options.id and not name:
        raise UnusableRowError("no_id")
    item_id = name if options.keep_id else f"{slug}-{name}"
    family = as_text(field_at(row, options.family)) if options.family else ""
    meta = {key: field_at(row, column) for key, column in options.meta.items()}
    if options.file_as:
        meta[options.file_as] = file.name.removesuffix(".gz").removesuffix(table_suffix(file))
    item = Item(
        id=item_id,
        benchmark=slug,
        family=f"{slug}-{family}" if family else item_id,
        text=text,
        choices=gold.choices,
        answer=gold.answer,
        target=gold.target,
        kind=kind,
        meta={key: value for key, value in meta.items() if value is not None},
    )
    for reason, _explanation in item_faults(item)[:1]:
        raise UnusableRowError(reason)
    return item


def _key(text: str, choices: Iterable[str]) -> tuple[str, ...]:
    return (normalised(text), *sorted(normalised(choice) for choice in choices))


def _content_hash(text: str, gold: Gold) -> str:
    return hashlib.sha256("\x1f".join(_key(text, gold.choices)).encode()).hexdigest()[:12]


def without_duplicates(items: list[Item], dropped: Counter[str], directory: Path) -> list[Item]:
    """One item of each question, sorted by id; none of a question that occurs with different golds."""
    same: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        same.setdefault(_key(item.text, item.choices), []).append(item)
    kept: dict[str, Item] = {}
    for group in same.values():
        golds = {normalised(item.choices[item.answer]) for item in group if item.answer is not None}
        if len(golds) > 1:
            dropped["contradictory_golds"] += len(group)
            continue
        first = min(group, key=lambda item: (item.id, item.text, item.choices))
        dropped["duplicate"] += len(group) - 1
        if first.id in kept:
            raise InputError(f"id {first.id!r} stands for two different questions", file=directory, field="id", fix=UNIQUE)
        kept[first.id] = first
    dropped += Counter()  # forgets reasons that no row has
    return [kept[item_id] for item_id in sorted(kept)]
