"""Real results, where GAPSCOPE_SHARED names their directory: imported accuracies equal the files' own to the last digit."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path

import pytest

from gapscope.items import Item
from gapscope.params import Results
from gapscope.results.bring import items_of
from gapscope.results.plain import import_results
from gapscope.results.select import select
from gapscope.results.subject import detect, match, read_log

SHARED = Path(os.environ.get("GAPSCOPE_SHARED", ""))
pytestmark = pytest.mark.skipif("GAPSCOPE_SHARED" not in os.environ, reason="GAPSCOPE_SHARED is not set")


def benchmark(name: str) -> list[Item]:
    with gzip.open(SHARED / "benchmarks" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return [Item(row["id"], name, row["id"], row["question"], tuple(row["choices"]), row["answer"]) for row in rows]


@pytest.mark.parametrize("metric", ["acc", "acc_norm"])
def test_sample_logs(metric: str) -> None:
    files = sorted((SHARED / "results" / "lm_eval").glob("samples_*.jsonl"))
    assert {detect(file) for file in files} == {"lm_eval"}
    log = read_log(files, "lm_eval")
    stated = json.loads(next((SHARED / "results" / "lm_eval").glob("results_*.json")).read_text())["results"]
    for task in select(log, metric, None):
        assert task.recomputed == stated[task.task][f"{metric},none"] == task.stated
        items, dropped = items_of(task.answers, "b", "other")
        assert (len(items), dropped) == (task.n_rows, {})
        everything = benchmark(task.task.removesuffix("_local"))
        for way in ("auto", "id", "text"):
            matched = match(log, [task], everything, way)
            assert matched.counts["n_without_item"] == 0
            assert sum(score.score or 0 for score in matched.scores) / task.n_rows == task.stated


def test_inspect_log() -> None:
    file = next((SHARED / "results" / "inspect").glob("*.json"))
    log = read_log([file], "inspect")
    (task,) = select(log, None, None)
    assert detect(file) == "inspect"
    assert task.recomputed == task.stated == 5 / 24
    assert match(log, [task], benchmark("arc_easy_test"), "text").counts["n_by_text"] == 24


def test_nine_subjects_of_mmlu_pro() -> None:
    file = SHARED / "results" / "mmlu_pro" / "predictions.csv.gz"
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    items = benchmark("mmlu_pro_test")
    names = [name for name in rows[0] if name not in ("question_id", "answer")]
    assert len(names) == 9
    for name in names:
        how = {
            "id_column": "question_id",
            "id_prefix": "mmlupro-",
            "prediction_column": name,
            "prediction_form": "letter",
            "missing": "wrong",
        }
        scores, counts = import_results(file, items, Results(file=file.name, **how))
        assert counts["n_without_result"] == counts["n_without_item"] == 0
        assert sum(score.score or 0 for score in scores) / len(scores) == sum(row[name] == row["answer"] for row in rows) / len(rows)
