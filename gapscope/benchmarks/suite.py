"""The whole suite: every benchmark read, checked against the others, sampled, and reported on."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.benchmarks import BenchmarkItems, read_benchmark, sample
from gapscope.corpus import Documents, build_corpus
from gapscope.errors import InputError
from gapscope.files import atomic_directory, write_json, write_jsonl
from gapscope.items import Item, write_items
from gapscope.params import Params

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Suite:
    """What the benchmarks yield.

    Attributes:
        read: everything usable, by benchmark.
        sampled: the items of the suite, by benchmark.
        report: how many rows each benchmark had, what was dropped and why, its licence.
    """

    read: dict[str, BenchmarkItems]
    sampled: dict[str, list[Item]]
    report: dict[str, Any]

    @property
    def items(self) -> list[Item]:
        """The items of the suite."""
        return [item for items in self.sampled.values() for item in items]

    @property
    def metrics(self) -> dict[str, Any]:
        """The headline counts."""
        dropped: Counter[str] = Counter()
        for benchmark in self.read.values():
            dropped.update(benchmark.dropped)
        return {
            "n_items": len(self.items),
            "n_benchmarks": len(self.sampled),
            "n_rows": sum(benchmark.n_rows for benchmark in self.read.values()),
            "n_dropped": dict(dropped),
            "items": {slug: len(items) for slug, items in self.sampled.items()},
        }


def build_suite(params: Params, raw: Path) -> Suite:
    """Read and sample every benchmark from the sources under ``raw``.

    Raises:
        InputError: a file is at fault, a benchmark has too few items, or two benchmarks share an id.
    """
    read: dict[str, BenchmarkItems] = {}
    sampled: dict[str, list[Item]] = {}
    report: dict[str, Any] = {}
    owner: dict[str, str] = {}
    for slug, benchmark in params.benchmarks.items():
        sources = (benchmark.source, *benchmark.more_sources)
        found = read_benchmark(slug, benchmark, *(raw / source for source in sources))
        if len(found.items) < params.items.min_items:
            message = f"{len(found.items)} usable items of {found.n_rows} rows; dropped {found.dropped}"
            raise InputError(message, field=f"benchmarks.{slug}", fix=f"items.min_items is {params.items.min_items}")
        for item in found.items:
            if owner.setdefault(item.id, slug) != slug:
                raise InputError(f"id {item.id!r} is also in {owner[item.id]}", field=f"benchmarks.{slug}", fix="turn keep_id off")
        read[slug], sampled[slug] = found, sample(found.items, benchmark.limit, params.seed)
        report[slug] = {
            "kind": benchmark.kind,
            "licence": benchmark.licence or "; ".join(dict.fromkeys(params.sources[source].licence for source in sources)),
            "source": ", ".join(sources),
            "n_rows": found.n_rows,
            "n_dropped": found.dropped,
            "n_usable": len(found.items),
            "n_items": len(sampled[slug]),
        }
        logger.info("%s: %d of %d rows usable, %d taken", slug, len(found.items), found.n_rows, len(sampled[slug]))
    return Suite(read, sampled, report)


def write_suite(params: Params, raw: Path, output: Path, corpus_output: Path | None) -> dict[str, Any]:
    """Write items.jsonl and report.json to ``output``, corpus.jsonl to ``corpus_output``; return the headline counts.

    Raises:
        InputError: as :func:`build_suite` and :func:`gapscope.corpus.build_corpus`, or a corpus is asked for that the
            parameters do not name.
    """
    suite = build_suite(params, raw)
    report: dict[str, Any] = {"benchmarks": suite.report}
    metrics = suite.metrics
    if corpus_output is not None:
        documents = _corpus(params, raw, suite)
        with atomic_directory(corpus_output) as directory:
            write_jsonl(directory / "corpus.jsonl", ({"id": key, "text": text} for key, text in documents.texts.items()))
        counts = {"n_documents": len(documents.texts), "n_rows": documents.n_rows, "n_dropped": documents.dropped}
        report["corpus"] = counts
        metrics["corpus"] = counts
    with atomic_directory(output) as directory:
        write_items(directory / "items.jsonl", suite.items)
        write_json(directory / "report.json", report)
    return metrics


def _corpus(params: Params, raw: Path, suite: Suite) -> Documents:
    if params.corpus is None:
        raise InputError("there is no corpus in the parameters", field="corpus", fix="add it, or leave --corpus-output out")
    everything = (item for benchmark in suite.read.values() for item in benchmark.items)
    return build_corpus(params.corpus, raw / params.corpus.source, everything)
