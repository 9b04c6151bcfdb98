"""The items stage: the suite, its report, and a corpus that shares nothing with it.

What must hold:
- counts add up: rows = usable + dropped, in the report and in the metrics;
- running it twice gives the same bytes; a higher limit leaves the corpus as it is;
- a document that quotes a benchmark, sampled or not, is not in the corpus, and one that does not is;
- faults name the benchmark and the key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from made_sources import jsonl

from gapscope.benchmarks.suite import write_suite
from gapscope.corpus import OverlapIndex
from gapscope.errors import InputError
from gapscope.files import sha256_tree
from gapscope.items import read_items
from gapscope.params import Params
from stages.items import main

WORDS = [f"w{n}" for n in range(400)]
PASSAGE = " ".join(WORDS[:40])


def run(first: int, last: int) -> str:
    return " ".join(WORDS[first:last])


DOCUMENTS = {
    "apart": run(300, 340),
    "quotes a passage": f"Once, {run(300, 320)}: {run(0, 40).upper()}!",
    "quotes thirteen words of a passage": f"{run(200, 220)} {run(5, 18)} {run(220, 240)}",
    "shares twelve words only": f"{run(240, 260)} {run(5, 17)} {run(260, 280)}",
    "holds a question of nine words": f"{run(100, 120)} {run(60, 69)} {run(120, 140)}",
    "holds a question of seven words": f"{run(140, 160)} {run(80, 87)} {run(160, 180)}",
    "short": run(340, 345),
    "apart, spaced otherwise": run(300, 340).replace(" ", "\n"),
}


def raw_params(limit: int | None = None, **changes: Any) -> dict[str, Any]:
    sources = {"s": {"kind": "path", "licence": "CC0", "path": "s", "sha256": "0" * 64}}
    rows = {"source": "s", "files": ["q.jsonl"], "format": "rows", "kind": "reading", "licence": "MIT"}
    rows |= {"limit": limit, "options": {"passage": "passage", "id": "id", "choices": "choices", "answer": "answer"}}
    yes_no = {"source": "s", "files": ["y.jsonl"], "format": "yes_no", "kind": "social"}
    corpus = {"source": "s", "files": [{"file": "d.jsonl", "column": "body"}], "min_words": 10}
    observer = {"source": "s", "name": "M", "layer": 1, "sae": {"kind": "train"}}
    return {
        "variants": {"enabled": False},
        "items": {"min_items": 2},
        "sources": sources,
        "benchmarks": {"reader": rows, "asker": yes_no},
        "corpus": corpus,
        "observers": {"m": observer},
        "models": {"m": {"source": "s", "name": "M"}},
    } | changes


def made_raw(tmp_path: Path) -> Path:
    questions = [{"id": n, "passage": None, "question": f"What is {n}?", "choices": ["a", "b"], "answer": n % 2} for n in range(12)]
    questions[3]["passage"] = PASSAGE
    questions[4]["answer"] = 2
    jsonl(tmp_path / "raw" / "s" / "q.jsonl", questions)
    asked = [{"question": run(60, 69), "answer": "yes"}, {"question": run(80, 87), "answer": "no"}, {"question": "Q?", "answer": "?"}]
    jsonl(tmp_path / "raw" / "s" / "y.jsonl", asked)
    jsonl(tmp_path / "raw" / "s" / "d.jsonl", [{"body": text, "id": name} for name, text in DOCUMENTS.items()])
    return tmp_path / "raw"


def test_counts_add_up(tmp_path: Path) -> None:
    metrics = write_suite(Params.model_validate(raw_params(5)), made_raw(tmp_path), tmp_path / "items", tmp_path / "corpus")
    assert metrics == {
        "n_items": 7,
        "n_benchmarks": 2,
        "n_rows": 15,
        "n_dropped": {"answer_out_of_range": 1, "no_gold": 1},
        "items": {"reader": 5, "asker": 2},
        "corpus": {"n_documents": 3, "n_rows": 8, "n_dropped": {"duplicate": 1, "short": 1, "shared_with_items": 3}},
    }
    report = json.loads((tmp_path / "items" / "report.json").read_text())
    assert report["benchmarks"]["reader"] == {
        "kind": "reading",
        "licence": "MIT",
        "source": "s",
        "n_rows": 12,
        "n_dropped": {"answer_out_of_range": 1},
        "n_usable": 11,
        "n_items": 5,
    }
    assert report["benchmarks"]["asker"]["licence"] == "CC0"
    items = read_items(tmp_path / "items" / "items.jsonl")
    assert {item.benchmark: item.kind for item in items} == {"reader": "reading", "asker": "social"}
    assert len(items) == 7


def test_a_benchmark_of_several_sources(tmp_path: Path) -> None:
    """The same rows in one file and in the files of two sources are the same benchmark; the licences are joined."""
    raw = made_raw(tmp_path)
    whole = (raw / "s" / "q.jsonl").read_text().splitlines()
    jsonl(raw / "first" / "q.jsonl", whole[:5])
    jsonl(raw / "second" / "q.jsonl", whole[5:])
    params = raw_params()
    write_suite(Params.model_validate(params), raw, tmp_path / "one", None)
    params["sources"] |= {name: params["sources"]["s"] | {"licence": licence} for name, licence in (("first", "MIT"), ("second", "CC0"))}
    params["benchmarks"]["reader"] |= {"source": "first", "more_sources": ["second"], "licence": None}
    write_suite(Params.model_validate(params), raw, tmp_path / "two", None)
    assert (tmp_path / "two" / "items.jsonl").read_bytes() == (tmp_path / "one" / "items.jsonl").read_bytes()
    report = json.loads((tmp_path / "two" / "report.json").read_text())["benchmarks"]["reader"]
    assert (report["source"], report["licence"], report["n_rows"]) == ("first, second", "MIT; CC0", 12)
    params["benchmarks"]["reader"]["more_sources"] = ["third"]
    params["sources"]["third"] = params["sources"]["s"]
    with pytest.raises(InputError, match=r"no file matches 'q\.jsonl'"):
        write_suite(Params.model_validate(params), raw, tmp_path / "three", None)


def test_corpus_holds_what_is_apart_and_nothing_else(tmp_path: Path) -> None:
    write_suite(Params.model_validate(raw_params(5)), made_raw(tmp_path), tmp_path / "items", tmp_path / "corpus")
    rows = [json.loads(line) for line in (tmp_path / "corpus" / "corpus.jsonl").read_text().splitlines()]
    kept = {"apart, spaced otherwise", "shares twelve words only", "holds a question of seven words"}
    assert {row["text"] for row in rows} == {DOCUMENTS[name] for name in kept}
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)


def test_bytes_are_stable_and_the_limit_does_not_touch_the_corpus(tmp_path: Path) -> None:
    raw = made_raw(tmp_path)
    hashes = []
    for name, limit in (("one", 5), ("two", 5), ("more", 11)):
        write_suite(Params.model_validate(raw_params(limit)), raw, tmp_path / name / "items", tmp_path / name / "corpus")
        hashes.append((sha256_tree(tmp_path / name / "items"), sha256_tree(tmp_path / name / "corpus")))
    assert hashes[0] == hashes[1]
    assert hashes[0][1] == hashes[2][1]
    fewer, more = ({item.id for item in read_items(tmp_path / name / "items" / "items.jsonl")} for name in ("one", "more"))
    assert fewer < more


def test_limit_of_the_corpus_keeps_a_prefix(tmp_path: Path) -> None:
    raw = made_raw(tmp_path)
    corpus = raw_params()["corpus"] | {"max_documents": 2}
    metrics = write_suite(Params.model_validate(raw_params(5, corpus=corpus)), raw, tmp_path / "items", tmp_path / "few")
    assert metrics["corpus"]["n_dropped"]["over_limit"] == 1
    write_suite(Params.model_validate(raw_params(5)), raw, tmp_path / "items", tmp_path / "all")
    few, everything = ((tmp_path / name / "corpus.jsonl").read_text() for name in ("few", "all"))
    assert everything.startswith(few)
    assert few != everything


def test_shared_text_is_found_whatever_the_case_width_and_punctuation() -> None:
    index = OverlapIndex(8, ["Eins zwei, drei vier — fünf sechs sieben ACHT neun"])
    assert index.shares_text("so: ｅｉｎｓ “zwei” drei-vier fünf\nsechs sieben acht.")
    assert index.shares_text("zwei drei vier fünf sechs sieben acht neun zehn")
    assert not index.shares_text("eins zwei drei vier fünf sechs sieben neun acht")
    assert not index.shares_text("")
    assert not OverlapIndex(13, []).shares_text("anything at all")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"items": {"min_items": 3}}, "benchmarks.asker: 2 usable items of 3 rows; dropped {'no_gold': 1}"),
        ({"corpus": {"source": "s", "files": [{"file": "d.jsonl", "column": "text"}]}}, "d.jsonl: text: no row has this column"),
        ({"corpus": {"source": "s", "files": [{"file": "d.jsonl", "column": "id"}]}}, "corpus: no document is left"),
        ({"corpus": {"source": "s", "files": [{"file": "e.jsonl", "column": "text"}]}}, "no file matches 'e.jsonl'"),
    ],
)
def test_faults_name_the_key(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        write_suite(Params.model_validate(raw_params(**change)), made_raw(tmp_path), tmp_path / "items", tmp_path / "corpus")
    assert words in str(caught.value)
    assert not (tmp_path / "corpus").exists()


def test_one_id_in_two_benchmarks_is_refused(tmp_path: Path) -> None:
    raw = raw_params()
    raw["benchmarks"]["reader"]["options"]["keep_id"] = True
    raw["benchmarks"]["again"] = raw["benchmarks"]["reader"]
    with pytest.raises(InputError, match=r"benchmarks\.again: id '\d+' is also in reader"):
        write_suite(Params.model_validate(raw), made_raw(tmp_path), tmp_path / "items", None)


def test_command_writes_items_without_a_corpus_and_says_one_line_of_a_fault(tmp_path: Path) -> None:
    raw = made_raw(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params(5)))
    arguments = ["--params", str(tmp_path / "params.yaml"), "--raw", str(raw), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["n_items"] == 7
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["items.jsonl", "report.json"]
    before = sha256_tree(tmp_path / "out")
    (raw / "s" / "y.jsonl").write_text('{"question": "Q?", "answer": "yes"')
    failed = CliRunner().invoke(main, arguments)
    assert failed.exit_code == 1
    assert failed.stderr.splitlines()[-1].startswith(f"gapscope items: {raw}/s/y.jsonl:1: not valid JSON")
    assert sha256_tree(tmp_path / "out") == before
    assert CliRunner().invoke(main, arguments[2:]).exit_code == 2


def test_corpus_stays_the_same_for_another_suite_where_it_is_kept_apart_from_the_first(tmp_path: Path) -> None:
    both = raw_params()
    both["corpus"]["apart_from"] = [{"file": "q.jsonl", "column": "passage"}, {"file": "y.jsonl", "column": "question"}]
    one = {**both, "benchmarks": {"asker": both["benchmarks"]["asker"]}}
    alone = {**one, "corpus": raw_params()["corpus"]}
    for name, params in (("both", both), ("one", one), ("alone", alone)):
        write_suite(Params.model_validate(params), made_raw(tmp_path), tmp_path / "items", tmp_path / name)
    kept = {name: (tmp_path / name / "corpus.jsonl").read_bytes() for name in ("both", "one", "alone")}
    assert kept["both"] == kept["one"]
    assert DOCUMENTS["quotes a passage"].encode() not in kept["one"]
    assert DOCUMENTS["quotes a passage"].encode() in kept["alone"]
