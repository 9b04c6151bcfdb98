from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
from click.testing import CliRunner
from safetensors.numpy import save_file

from gapscope.artifacts import CLUSTERS, CONTEXTS
from gapscope.competency.coverage import write_coverage
from gapscope.competency.labels import Label
from gapscope.competency.performance import read_suite, write_performance
from gapscope.files import read_json, read_jsonl, sha256_file
from gapscope.labels.endpoint import EndpointWriter
from gapscope.labels.passages import Reading, mark, readings
from gapscope.labels.prompts import balanced_accuracy, read_cluster, read_label, read_numbers
from gapscope.labels.published import Published
from gapscope.labels.replies import Replies
from gapscope.labels.word_scores import word_scores
from gapscope.labels.write import Evidence, LabelSources, better_labels
from gapscope.params import CoverageParams, PerformanceParams
from gapscope.params_labels import Endpoint
from stages.cluster import main
from tests.competency.made_activations import write_activations, write_contexts, write_scores
from tests.labels.chat_server import Answer, chat_server, completion

ROOT = Path(__file__).parents[2]
N, C = 120, 10
WORDS = [f"topic{c}" for c in range(C)]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def fires(item: int, concept: int) -> bool:
    return item % C in (concept, (concept + 1) % C)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """An observer whose concept c fires on the word topicc, and a subject that is wrong on items of concepts 0 and 1."""
    root = tmp_path_factory.mktemp("run")
    saliency = np.array([[1.0 + (k % 7) / 10 if fires(k, c) else 0.0 for c in range(C)] for k in range(N)])
    activations = write_activations(root / "activations", saliency, ["a"] * N)
    windows = []
    for concept in range(C):
        items = [k for k in range(N) if fires(k, concept)][:14]
        windows += [(concept, f"i{k:04d}", ["see ", WORDS[concept], f" in {k}"], [0.0, 2.0, 0.1], "top") for k in items]
    write_contexts(activations, windows)
    write_coverage(activations, root / "coverage", CoverageParams())
    suite = read_suite(activations, None, None, PerformanceParams().strata)
    scores = {f"i{k:04d}": float(not (fires(k, 0) or fires(k, 1)) or k % 9 == 0) for k in range(N)}
    write_scores(root / "scores" / "sub", scores)
    write_performance(
        suite, root / "scores" / "sub" / "scores.parquet", root / "performance" / "sub.parquet", PerformanceParams(min_n_eff=5)
    )
    (root / "sae").mkdir()
    save_file({"W_dec": np.eye(C, 16, dtype=np.float32) + 0.9}, root / "sae" / "sae_weights.safetensors")
    return root


def reply_to(prompt: str, number: int) -> Answer:
    """A perfect reader: labels a concept by its marked word, and knows it again."""
    usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 4}
    if "between << and >>" in prompt:
        word = re.search(r"<<(\w+)", prompt)
        return completion(f'Label: "mentions of {word[1]}."\nBecause I say so.', usage)
    if "is described as" in prompt:
        word = re.search(r"topic\d+", prompt.split("\n\n")[0])
        hits = [place for place, line in re.findall(r"^(\d+)\. (.*)$", prompt, re.MULTILINE) if f"{word[0]} " in line]
        return completion(", ".join(hits) or "none", usage)
    return completion("Alike topics\nThey mention topics. Questions name them.", usage)


def command(run: Path, params: Path, output: Path) -> list[str]:
    inputs = [f"--{name}={run / name}" for name in ("coverage", "performance", "activations", "sae")]
    outputs = [f"--output={output / 'c.parquet'}", f"--labels-output={output / 'labels'}", f"--metrics={output / 'm.json'}"]
    return [*inputs, *outputs, f"--params={params}", "--observer=eye", f"--raw={run / 'raw'}", f"--provenance={output / 'p.json'}"]


def write_params(path: Path, llm: dict | None, files: dict | None = None) -> Path:
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["observers"] = {"eye": next(iter(raw["observers"].values()))}
    raw["sources"]["published"] = {"kind": "path", "licence": "x", "path": "x", "sha256": "0" * 64}
    raw["labels"] = {"llm": llm, "files": files or {}}
    path.write_text(yaml.safe_dump(raw))
    return path


def endpoint(url: str, **more: object) -> dict:
    return {"kind": "endpoint", "url": url, "model": "m", "shown": 3, "held_out": 3, "retries": 0, **more}


def test_labels_scores_names_and_the_bill(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THE_KEY", "sk-secret-4711")
    (run / "raw").mkdir(exist_ok=True)
    with chat_server(reply_to) as server:
        llm = endpoint(server.url, key_variable="THE_KEY", price_input=2.0, price_output=10.0)
        params = write_params(tmp_path / "params.yaml", llm)
        outputs = []
        for name in ("first", "again"):
            result = CliRunner().invoke(main, command(run, params, tmp_path / name), catch_exceptions=False)
            assert result.exit_code == 0, result.output
            outputs.append(
                {
                    file: sha256_file(tmp_path / name / file)
                    for file in ("c.parquet", "labels/report.json", "labels/replies.jsonl", "m.json")
                }
            )
        asked = len(server.requests)
    assert outputs[0] == outputs[1]
    assert read_json(tmp_path / "first" / "p.json")["n_new_replies"] == asked
    assert read_json(tmp_path / "again" / "p.json")["n_new_replies"] == 0
    rows = {row["concept"]: row for row in CLUSTERS.read(tmp_path / "first" / "c.parquet").to_pylist() if row["subject"] == "sub"}
    assert rows[0]["label"] == "mentions of topic0"
    assert (rows[0]["label_source"], rows[0]["label_score"]) == ("llm", 1.0)
    assert any(row["interpretation"] == "Alike topics: They mention topics. Questions name them." for row in rows.values())
    report = read_json(tmp_path / "first" / "labels" / "report.json")
    replies = [row for _line, row in read_jsonl(tmp_path / "first" / "labels" / "replies.jsonl")]
    assert report["n_replies"] == len(replies) >= asked
    assert report["cost"] == pytest.approx((report["prompt_tokens"] * 2 + report["completion_tokens"] * 10) / 1e6)
    assert {row["purpose"] for row in replies} == {"label", "detect", "cluster"}
    assert read_json(tmp_path / "first" / "m.json")["labels"]["n_llm"] == report["n_llm"] > 0
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"sk-secret-4711" not in file.read_bytes(), file


def test_a_run_killed_between_replies_goes_on(run, tmp_path, monkeypatch):
    (run / "raw").mkdir(exist_ok=True)

    def slow(prompt: str, number: int) -> Answer:
        made = reply_to(prompt, number)
        return Answer(made.status, made.body, wait=0.15 if killing else 0.0)

    killing = True
    with chat_server(slow) as server:
        params = write_params(tmp_path / "params.yaml", endpoint(server.url, parallel=1))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "no_proxy": "127.0.0.1"}
        arguments = [sys.executable, "-m", "stages.cluster", *command(run, params, tmp_path / "out")]
        process = subprocess.Popen(arguments, cwd=tmp_path, env=environment)
        deadline = time.monotonic() + 60
        while len(server.requests) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "out" / "c.parquet").exists()
        kept = len(list((tmp_path / ".work").rglob("*.json")))
        assert kept >= 3
        killing = False
        before = len(server.requests)
        monkeypatch.chdir(tmp_path)
        assert CliRunner().invoke(main, command(run, params, tmp_path / "out"), catch_exceptions=False).exit_code == 0
        report = read_json(tmp_path / "out" / "labels" / "report.json")
        assert len(server.requests) - before <= report["n_replies"] - kept
        whole = tmp_path / "whole"
        whole.mkdir()
        monkeypatch.chdir(whole)
        assert CliRunner().invoke(main, command(run, params, whole / "out"), catch_exceptions=False).exit_code == 0
    for file in ("c.parquet", "labels/replies.jsonl", "labels/report.json"):
        assert (tmp_path / "out" / file).read_bytes() == (whole / "out" / file).read_bytes()


def test_unusable_replies_leave_the_keywords_and_are_counted(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (run / "raw").mkdir(exist_ok=True)
    with chat_server(lambda _prompt, _number: completion("I am afraid " * 40)) as server:
        params = write_params(tmp_path / "params.yaml", endpoint(server.url))
        assert CliRunner().invoke(main, command(run, params, tmp_path), catch_exceptions=False).exit_code == 0
    rows = CLUSTERS.read(tmp_path / "c.parquet").to_pylist()
    assert {row["label_source"] for row in rows} == {"keywords"}
    report = read_json(tmp_path / "labels" / "report.json")
    assert report["n_unusable_labels"] > 0
    assert (report["n_llm"], report["n_detected"]) == (0, 0)
    assert "cost" not in report


def test_published_labels_go_before_and_have_a_score_without_a_language_model(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = run / "raw" / "published"
    source.mkdir(parents=True, exist_ok=True)
    lines = [{"index": "0", "description": "texts about topic0"}, {"index": "3", "description": "legal language"}]
    (source / "labels.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    files = {"eye": {"source": "published", "files": ["labels.jsonl"], "format": "neuronpedia"}}
    params = write_params(tmp_path / "params.yaml", None, files)
    assert CliRunner().invoke(main, command(run, params, tmp_path), catch_exceptions=False).exit_code == 0
    rows = {row["concept"]: row for row in CLUSTERS.read(tmp_path / "c.parquet").to_pylist()}
    assert (rows[0]["label"], rows[0]["label_source"], rows[0]["label_score"]) == ("texts about topic0", "published", 1.0)
    assert (rows[3]["label"], rows[3]["label_score"]) == ("legal language", 0.5)
    assert rows[5]["label_source"] == "keywords"
    assert (tmp_path / "labels" / "replies.jsonl").read_bytes() == b""
    missing = CliRunner().invoke(main, [*command(run, params, tmp_path / "x"), f"--raw={tmp_path / 'labels'}"])
    assert (missing.exit_code, "holds no source 'published'" in missing.output) == (1, True)


def test_a_label_that_is_published_is_not_asked_for_but_tested(run, tmp_path):
    keywords = {concept: Label(WORDS[concept], "keywords", 0.9) for concept in range(3)}
    published = (Published({0: "something about topic0"}), "file")
    with chat_server(reply_to) as server:
        asking = Endpoint(**endpoint(server.url))
        sources = LabelSources(published, Replies.of(EndpointWriter.of(asking), tmp_path), asking)
        labels, report = better_labels(keywords, evidence_of(run), sources)
    assert (labels[0].text, labels[0].source, labels[0].score) == ("something about topic0", "file", 1.0)
    assert (labels[1].text, labels[1].source) == ("mentions of topic1", "llm")
    asked = [(row["purpose"], row["about"]) for row in sources.replies.asked]
    assert asked == [("label", "concept 1"), ("label", "concept 2"), *(("detect", f"concept {concept}") for concept in range(3))]
    assert (report["n_published"], report["n_llm"], report["n_detected"]) == (1, 2, 3)


def evidence_of(run: Path) -> Evidence:
    contexts = CONTEXTS.read(run / "activations" / "contexts.parquet")
    firing = sp.csr_matrix(np.array([[int(fires(k, c)) for c in range(C)] for k in range(N)]))
    return Evidence(contexts, firing, [f"i{k:04d}" for k in range(N)])


def test_readings_keep_items_apart_and_others_silent(run):
    evidence = evidence_of(run)
    reading: Reading = readings(evidence.contexts, [4], evidence.firing, evidence.item_ids, 3, 3)[4]
    sides = [reading.shown, reading.others, reading.held_out, reading.held_out_others]
    assert [len(side) for side in sides] == [3, 3, 3, 3]
    assert not {one.item_id for one in reading.shown} & {one.item_id for one in reading.held_out}
    assert not set(reading.others) & set(reading.held_out_others)
    assert all(not fires(int(one.item_id[1:]), 4) for one in reading.others + reading.held_out_others)
    assert all("<<topic4>>" in one.marked for one in reading.shown + reading.held_out)


def test_marks_are_runs_of_half_the_peak():
    assert mark(["a", "b", "c", "d"], [2.0, 1.0, 0.9, 1.5]) == "<<ab>>c<<d>>"
    assert mark(["a"], [0.0]) == "a"


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("legal terms", "legal terms"),
        ('  "Legal terms."  \nmore', "Legal terms"),
        ("Label: **Legal terms**", "Legal terms"),
        ("<think>hm\nhm</think>\nLegal terms", "Legal terms"),
        ("<think>never ends", None),
        ("", None),
        ("\n \n", None),
        ("...", None),
        ("x" * 121, None),
        ("中文 标签", "中文 标签"),
    ],
)
def test_reading_a_label(reply, label):
    assert read_label(reply) == label


@pytest.mark.parametrize(
    ("reply", "numbers"),
    [
        ("1, 3", {1, 3}),
        ("Passages 2-4 and 6.", {2, 3, 4, 6}),
        ("None", set()),
        ("none of them", set()),
        ("0", None),
        ("7", None),
        ("all of them", None),
        ("", None),
        ("99999999999999999999", None),
        ("<think>1 or 2</think>3", {3}),
    ],
)
def test_reading_numbers(reply, numbers):
    assert read_numbers(reply, 6) == numbers


def test_reading_a_cluster():
    assert read_cluster("Name: Law\nThey are\nabout law.") == ("Law", "They are about law.")
    assert read_cluster("Law") == ("Law", "")
    assert read_cluster("") is None


def test_balanced_accuracy_by_hand():
    assert balanced_accuracy({1, 2}, {1, 2, 3, 4}, 6) == pytest.approx((0.5 + 1) / 2)
    assert balanced_accuracy({1, 2, 3, 4, 5, 6}, {1, 2}, 6) == 0.5


def test_word_scores_by_hand(run):
    evidence = evidence_of(run)
    scores = word_scores({2: "topic2 stuff", 3: "nothing here", 4: "topic5"}, evidence.contexts, evidence.firing, evidence.item_ids)
    assert (scores[2], scores[3]) == (1.0, 0.5)
    assert scores[4] < 0.5
