from __future__ import annotations

import json
import subprocess
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from dvc.repo import Repo

from gapscope.artifacts import CLUSTERS
from gapscope.competency.coverage import write_coverage
from gapscope.files import read_json
from gapscope.items import Item, write_items
from gapscope.params import CoverageParams
from stages.commands.compare import main
from stages.compare_pairs import main as stage
from tests.competency.made_activations import random_saliency, write_activations, write_contexts, write_scores

N, C = 240, 12


def make_data(data: Path) -> Path:
    """A suite of two benchmarks, and two subjects; the second loses on every item that carries concept 3."""
    saliency = random_saliency(5, N, C, share=0.3)
    ids = [f"i{k:04d}" for k in range(N)]
    benchmarks = ["a" if k % 2 else "b" for k in range(N)]
    write_activations(data / "activations" / "eye", saliency, benchmarks, ids=ids)
    windows = [(c, ids[k], [f"word{c}", " x"], [2.0, 0.0], "top") for c in range(C) for k in np.flatnonzero(saliency[:, c])[:8]]
    write_contexts(data / "activations" / "eye", windows)
    write_coverage(data / "activations" / "eye", data / "coverage" / "eye", CoverageParams())
    write_items(data / "items" / "items.jsonl", [item(k, benchmarks[k]) for k in range(N)])
    first = np.random.default_rng(1).random(N) < 0.6
    second = np.where(saliency[:, 3] > 0, 0, first)
    for slug, scores in (("old", first), ("new", second)):
        write_scores(data / "scores" / slug, dict(zip(ids, scores.astype(float).tolist(), strict=True)))
    return data


def item(k: int, benchmark: str, text: str = "question") -> Item:
    return Item(id=f"i{k:04d}", benchmark=benchmark, family=f"f{k}", text=f"{text} {k}", choices=("x", "y"), answer=0, kind="other")


def run(*arguments: str):
    return CliRunner().invoke(main, [*arguments, "--params", "absent.yaml"])


def test_the_planted_loss_is_behind_and_labelled(tmp_path):
    data = make_data(tmp_path / "data")
    CLUSTERS.write(
        data / "clusters" / "eye.parquet",
        {"concept": [3], "subject": ["new"], "cluster": ["gap_001"], "label": ["planted [b]"], "label_source": ["keywords"]},
    )
    result = run("old", "new", "--data", str(data))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "old -> new: 240 items that both have a score of"
    row = next(line for line in lines if line.startswith("behind "))
    assert "#3 " in row
    assert "planted [b]" in row
    assert "below 0.001" in row
    found = json.loads(run("old", "new", "--data", str(data), "--json").stdout)
    assert [one["concept"] for one in found["behind"] if one["status"] == "behind"] == [3]
    assert found["behind"][0]["n_gained"] == 0
    assert found["headlines"]["n_behind_findings"] == 1
    # A concept that the clusters do not hold is labelled from its contexts.
    assert {one["concept"]: one["label"] for one in found["ahead"]}[found["ahead"][0]["concept"]].startswith("word")


def test_the_stage_writes_the_pairs_it_is_given(tmp_path):
    data = make_data(tmp_path / "data")
    base = [
        "--activations",
        str(data / "activations" / "eye"),
        "--scores",
        str(data / "scores"),
        "--items",
        str(data / "items" / "items.jsonl"),
    ]
    outputs = []
    for name in ("one", "two"):
        paths = ["--output", str(tmp_path / f"{name}.parquet"), "--metrics", str(tmp_path / f"{name}.json")]
        result = CliRunner().invoke(stage, [*base, *paths, "--pair", "old", "new"])
        assert result.exit_code == 0, result.output
        outputs.append(((tmp_path / f"{name}.parquet").read_bytes(), (tmp_path / f"{name}.json").read_bytes()))
    assert outputs[0] == outputs[1]
    assert read_json(tmp_path / "one.json")["old"]["new"]["n_behind"] == 1


def test_what_cannot_be_compared_is_said_in_one_line(tmp_path):
    data = make_data(tmp_path / "data")
    assert run("old", "--data", str(data)).exit_code == 2
    for arguments, words in (
        (("old", "gone"), "no such file"),
        (("old", "new", "--observer", "other"), "no such file"),
        (("old", "--rev", "HEAD"), "is in no DVC repository"),
    ):
        result = run(*arguments, "--data", str(data))
        assert (result.exit_code, words in result.stderr) == (1, True), result.output
        assert len(result.stderr.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A repository whose first revision, v1, has another score of the subject ``new``, and a later one another question."""
    root = tmp_path_factory.mktemp("history")
    git(root, "init", "-q", ".")
    Repo.init(str(root)).close()
    (root / "dvc.yaml").write_text("stages:\n  all:\n    cmd: cp -r made data\n    deps: [made]\n    outs: [data]\n")
    made = make_data(root / "made")
    record(root, "v0", text="another question")
    record(root, "v1")
    old = (made / "scores" / "old" / "scores.parquet").read_bytes()
    (made / "scores" / "new" / "scores.parquet").write_bytes(old)
    record(root, "v2")
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def record(root: Path, tag: str, text: str = "question") -> None:
    write_items(root / "made" / "items" / "items.jsonl", [item(k, "a" if k % 2 else "b", text) for k in range(N)])
    with chdir(root), Repo() as repo:
        repo.reproduce()
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", tag)
    git(root, "tag", tag)


def test_a_subject_against_itself_at_an_earlier_revision(history):
    data = str(history / "data")
    now = json.loads(run("new", "--rev", "v1", "--data", data, "--json").stdout)
    assert (now["first"], now["second"]) == ("new at v1", "new now")
    # What v1 lost on concept 3, the present scores have again.
    assert [one["concept"] for one in now["ahead"] if one["status"] == "ahead"] == [3]
    same = json.loads(run("old", "new", "--rev", "v2", "--data", data, "--json").stdout)
    assert (same["headlines"]["difference"], same["headlines"]["n_worse"]) == (0, 0)


def test_other_revisions_are_refused_with_a_reason(history):
    data = str(history / "data")
    for revision, subject, words in (
        ("nowhere", "new", "unknown Git revision 'nowhere'"),
        ("v1", "gone", "no such file"),
        ("v0", "new", "is another question than at v0: 'another question 0' there, 'question 0' here"),
    ):
        result = run(subject, "--rev", revision, "--data", data)
        assert (result.exit_code, words in result.stderr) == (1, True), result.output
        assert len(result.stderr.strip().splitlines()) == 1
