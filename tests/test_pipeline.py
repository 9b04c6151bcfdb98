"""A whole `dvc repro` on a tiny model, in a repository of its own.

What must hold:
- the pipeline runs from nothing to plots, and a second `dvc repro` has nothing to do;
- running every stage again by force gives the same bytes: `dvc.lock` does not change;
- metrics, plots, params diff, experiments, and push and pull to a local remote work as DVC's manual says;
- on a clone, `dvc repro --allow-missing --dry` says that everything is up to date;
- editing one room's parameters reruns that room's stages and what depends on them, and no others;
- chi_bench and chi_model can be recomputed from the artifacts with a few lines of numpy.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import yaml

from gapscope.files import sha256_tree

sys.path.append(str(Path(__file__).parent / "variants"))
from tiny_models import save_encoder, save_long_lm

ROOT = Path(__file__).parent.parent
TOPICS = {
    "animals": ["dog", "cat", "horse", "sheep", "goat", "owl"],
    "tools": ["hammer", "saw", "drill", "spade", "rake", "axe"],
    "food": ["bread", "rice", "soup", "cheese", "apple", "plum"],
}

ROWS = {"id": "id", "keep_id": True, "question": "question", "choices": "choices", "answer": "answer"}


def item_rows(topic: str) -> list[dict[str, object]]:
    words = TOPICS[topic]
    return [
        {
            "id": f"{topic}-{i}-{j}",
            "question": f"Which of these did the {a} stand next to, the {b} or the wall?",
            "choices": [a, b, "a wall"],
            "answer": (i + j) % 3,
        }
        for i, a in enumerate(words)
        for j, b in enumerate(words)
        if a != b
    ]


def write_lines(file: Path, rows: list[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_seed_files(directory: Path, families: set[str]) -> None:
    """Some families of the committed seeds."""
    directory.mkdir(parents=True)
    rows = [line for file in sorted((ROOT / "data/seeds").glob("*.jsonl")) for line in file.read_text().splitlines()]
    (directory / "seeds.jsonl").write_text("".join(row + "\n" for row in rows if json.loads(row)["family"] in families))


def shrink_second_half(raw: dict[str, Any]) -> None:
    """Parameters of the second half that take seconds on a tiny model; all of its code runs."""
    tune = {"steps": 2, "batch_size": 2, "layers": 2, "trained_layers": 1, "max_tokens": 2000}
    raw["seeds"] |= {"development": 0.34, "heldout": 0.34}
    raw["sft"] |= {"source": "tiny_model", "embedder": "tiny_encoder", "generator": tune | {"layers": None}}
    raw["sft"]["verifier"] |= {"head": "logistic", "stack_share": 0.5, "era": tune, "ira": tune, "folds": 2, "contrasts": 1}
    raw["grpo"] |= {"steps": 1, "num_generations": 2, "batch_size": 2, "max_new_tokens": 8, "max_prompt_tokens": 2000, "check_families": 1}
    raw["rewritten"] = ["animals"]
    raw["generate"] |= {"target_per_type": 1, "round_size": 1, "max_candidates": 14, "sft_candidates": 1, "max_new_tokens": 8}
    raw["generate"] |= {"max_prompt_tokens": 2000, "dtype": "float32"}
    raw["reach"] |= {"draws": 100}
    raw["validity"] |= {
        "splits": 1,
        "ends": 5,
        "null_draws": 4,
        "planted_draws": 2,
        "planted_concepts": 2,
        "resamples": 4,
        "stability_draws": 1,
    }
    raw["validity"] |= {"encoder": "tiny_encoder", "other_sae": {"d_sae": 64, "train_tokens": 2000, "heldout_tokens": 800, "steps": 10}}


def tiny_params(inputs: Path, model: Path, encoder: Path) -> dict[str, object]:
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    paths = {
        "tiny_model": model,
        "tiny_encoder": encoder,
        "animals": inputs / "animals.jsonl",
        "tools": inputs / "tools.jsonl",
        "documents": inputs / "documents.jsonl",
    }
    raw["sources"] = {
        key: {"kind": "path", "licence": "CC0-1.0", "path": str(path), "sha256": sha256_tree(path)} for key, path in paths.items()
    }
    raw["benchmarks"] = {
        key: {"source": key, "files": [f"{key}.jsonl"], "format": "rows", "kind": kind, "options": ROWS}
        for key, kind in (("animals", "knowledge"), ("tools", "reasoning"))
    }
    raw["corpus"] = {"source": "documents", "files": [{"file": "documents.jsonl", "column": "text"}]}
    raw["observers"] = {"tiny": {"source": "tiny_model", "name": "tiny", "layer": 1, "dtype": "float32", "sae": {"kind": "train"}}}
    raw["models"] = {"tiny": {"source": "tiny_model", "name": "tiny", "dtype": "float32"}}
    raw["train_sae"] |= {
        "d_sae": 96,
        "k": 8,
        "context_size": 32,
        "train_tokens": 3000,
        "heldout_tokens": 1500,
        "steps": 60,
        "batch_tokens": 256,
    }
    raw["extract_activations"] |= {"max_tokens": 32, "reference_tokens": 1000, "max_fvu": 5.0}
    raw["performance"] |= {"min_n_eff": 3.0}
    shrink_second_half(raw)
    return raw


class Repository:
    """A copy of the pipeline under git and DVC."""

    def __init__(self, path: Path) -> None:
        self.path = path
        binaries = str(Path(sys.executable).parent)
        self.environment = os.environ | {"PATH": binaries + os.pathsep + os.environ["PATH"], "DVC_NO_ANALYTICS": "1", "HF_HUB_OFFLINE": "1"}
        for who in ("AUTHOR", "COMMITTER"):
            self.environment |= {f"GIT_{who}_NAME": "t", f"GIT_{who}_EMAIL": "t@localhost"}

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(command, cwd=self.path, env=self.environment, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", message)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    base = tmp_path_factory.mktemp("pipeline")
    inputs, path = base / "inputs", base / "repo"
    for topic in ("animals", "tools"):
        write_lines(inputs / f"{topic}.jsonl", item_rows(topic))
    documents = [
        {"text": " ".join(f"The {w} saw the {v} near bridge {i}." for w in words for v in words)}
        for i in range(40)
        for words in TOPICS.values()
    ]
    write_lines(inputs / "documents.jsonl", documents)
    path.mkdir()
    write_seed_files(path / "data/seeds", {f"{domain}_00{k}" for domain in ("everyday", "work") for k in (1, 2, 3, 4)})
    for name in ("gapscope", "stages"):
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", ".gitignore", ".dvcignore", ".gitattributes"):
        shutil.copy(ROOT / name, path / name)
    (path / "params.yaml").write_text(
        yaml.safe_dump(tiny_params(inputs, save_long_lm(base / "model"), save_encoder(base / "encoder")), sort_keys=False)
    )
    repository = Repository(path)
    repository.run("git", "init", "-q", "-b", "main")
    repository.run("dvc", "init", "-q")
    if (ROOT / ".dvc/plots").exists():
        shutil.copytree(ROOT / ".dvc/plots", path / ".dvc/plots", dirs_exist_ok=True)
    repository.run("dvc", "repro")
    repository.commit("run")
    return repository


def test_second_run_has_nothing_to_do(repository: Repository) -> None:
    assert "up to date" in repository.run("dvc", "repro")


def test_every_stage_is_byte_stable(repository: Repository) -> None:
    before = (repository.path / "dvc.lock").read_bytes()
    shutil.rmtree(repository.path / ".work", ignore_errors=True)
    repository.run("dvc", "repro", "--force", "--no-run-cache")
    assert (repository.path / "dvc.lock").read_bytes() == before
    assert repository.run("git", "status", "--porcelain") == ""


def test_dvc_dag_has_the_order_of_the_paper(repository: Repository) -> None:
    edges = repository.run("dvc", "dag", "--dot")
    chain = ["extract-activations@tiny", "coverage@tiny", "performance@tiny", "cluster@tiny", "report"]
    for earlier, later in pairwise(chain):
        assert f'"{earlier}" -> "{later}"' in edges


def test_the_second_half_follows_from_seeds_to_evaluate(repository: Repository) -> None:
    edges = repository.run("dvc", "dag", "--dot")
    for earlier, later in [*pairwise(["seeds", "sft", "grpo", "generate", "filter", "evaluate", "reach"]), ("sources", "generate")]:
        assert f'"{earlier}" -> "{later}"' in edges
    counts = {name: json.loads((repository.path / f"metrics/{name}.json").read_text()) for name in ("generate", "filter", "evaluate")}
    assert counts["generate"]["n_candidates"] == counts["filter"]["n_candidates"] == 14
    assert counts["generate"]["n_accepted"] == counts["filter"]["n_accepted"] == counts["evaluate"]["n_variants"]
    assert (repository.path / "data/robustness/export/datasets/README.md").is_file()


def test_metrics_hold_finite_numbers_only(repository: Repository) -> None:
    shown = json.loads(repository.run("dvc", "metrics", "show", "--json"))[""]["data"]
    assert {name.split("/")[1].removesuffix(".json") for name in shown} >= {
        "items",
        "train_sae",
        "extract_activations",
        "score",
        "coverage",
        "performance",
        "cluster",
        "seeds",
        "sft",
        "grpo",
        "generate",
        "filter",
        "evaluate",
        "sources",
        "reach",
        "validity",
    }

    def walk(value: object, key: str) -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                assert "." not in name, key
                walk(item, f"{key}/{name}")
        else:
            assert isinstance(value, (int, float)) and np.isfinite(value), f"{key} is {value!r}"

    for name, entry in shown.items():
        walk(entry["data"], name)


def test_plots_and_params_diff(repository: Repository) -> None:
    repository.run("dvc", "plots", "show", "-o", "rendered")
    page = (repository.path / "rendered/index.html").read_text()
    assert page.count("vega") > 3
    shutil.rmtree(repository.path / "rendered")
    params = repository.path / "params.yaml"
    text = params.read_text()
    params.write_text(text.replace("under_quantile: 0.1", "under_quantile: 0.2"))
    try:
        difference = json.loads(repository.run("dvc", "params", "diff", "--json"))
        assert difference["params.yaml"]["coverage.under_quantile"] == {"old": 0.1, "new": 0.2, "diff": 0.1}
        plan = repository.run("dvc", "repro", "--dry")
        assert "Running stage 'coverage@tiny'" in plan
        for untouched in ("fetch", "items", "train-sae", "extract-activations", "score"):
            assert f"Running stage '{untouched}" not in plan
    finally:
        params.write_text(text)


def test_experiment_and_metrics_diff(repository: Repository) -> None:
    repository.run("dvc", "exp", "run", "-n", "layer0", "-S", "observers.tiny.layer=0", "-S", "variants.enabled=false")
    try:
        # With the second half off its stages still run, and leave the reason.
        for output in ("verifier", "generator", "sources", "candidates", "variants", "robustness", "reach"):
            assert "variants.enabled" in json.loads((repository.path / f"data/{output}/report.json").read_text())["off"]
        difference = json.loads(repository.run("dvc", "metrics", "diff", "--json", "HEAD"))
        assert any("train_sae" in name for name in difference)
        assert "layer0" in repository.run("dvc", "exp", "show", "--csv")
    finally:
        repository.run("git", "checkout", "-q", ".")
        repository.run("dvc", "checkout", "-q")


def test_the_first_half_reruns_generate_only_where_the_gaps_choose(repository: Repository) -> None:
    """Other coverage, same order of the seed: sources runs, and nothing after it; with gaps, generate and what follows."""
    data, params = repository.path / "data", repository.path / "params.yaml"
    assert json.loads((data / "sources/report.json").read_text()) == {"source": "items"}
    reach = json.loads((data / "reach/report.json").read_text())
    assert reach["n"]["variants"] == json.loads((repository.path / "metrics/evaluate.json").read_text())["n_variants"]
    text = params.read_text()
    try:
        params.write_text(text.replace("under_quantile: 0.1", "under_quantile: 0.2"))
        done = repository.run("dvc", "repro", "generate")
        assert "Running stage 'sources'" in done and "Running stage 'generate'" not in done
        params.write_text(text.replace("source: items", "source: gaps"))
        done = repository.run("dvc", "repro", "generate")
        assert "Running stage 'generate'" in done
        order = [row["id"] for row in json.loads((data / "sources/report.json").read_text())["items"]]
        written = [json.loads(line) for line in (data / "candidates/candidates.jsonl").read_text().splitlines()]
        asked = [row["original"] for row in written if row["type"] == "problem_restatement"]
        assert asked == order[: len(asked)] and asked
    finally:
        params.write_text(text)
        repository.run("git", "checkout", "-q", ".")
        repository.run("dvc", "checkout", "-q")


def test_clone_is_up_to_date_and_pulls(repository: Repository, tmp_path: Path) -> None:
    remote, clone = tmp_path / "remote", Repository(tmp_path / "clone")
    repository.run("dvc", "remote", "add", "--local", "-f", "-d", "store", str(remote))
    repository.run("dvc", "push", "-q")
    subprocess.run(["git", "clone", "-q", str(repository.path), str(clone.path)], check=True)
    assert "up to date" in clone.run("dvc", "repro", "--allow-missing", "--dry")
    clone.run("dvc", "remote", "add", "--local", "-d", "store", str(remote))
    clone.run("dvc", "pull", "-q")
    assert "up to date" in clone.run("dvc", "repro")
    assert sha256_tree(clone.path / "data/performance") == sha256_tree(repository.path / "data/performance")


def test_reference_columns_recomputed_from_the_artifacts(repository: Repository) -> None:
    data = repository.path / "data"
    saliency = sp.load_npz(data / "activations/tiny/saliency.npz").toarray().astype(np.float64)
    rows = pq.read_table(data / "activations/tiny/rows.parquet").to_pydict()
    scores = pq.read_table(data / "scores/tiny/scores.parquet").to_pydict()
    score_of = dict(zip(scores["item_id"], scores["score"], strict=True))
    score = np.array([score_of[item] for item in rows["item_id"]])
    benchmark = np.array(rows["benchmark"])
    bench = {b: saliency[benchmark == b].mean(0) / saliency[benchmark == b].mean() for b in sorted(set(benchmark))}
    with np.errstate(invalid="ignore"):
        model = {b: score[benchmark == b] @ saliency[benchmark == b] / saliency[benchmark == b].sum(0) for b in bench}
    bench["__suite__"] = np.mean(list(bench.values()), axis=0)
    stacked = np.array(list(model.values()))
    defined = ~np.isnan(stacked).all(0)
    model["__suite__"] = np.full(saliency.shape[1], np.nan)
    model["__suite__"][defined] = np.nanmean(stacked[:, defined], axis=0)
    assert defined.any() and not defined.all()
    for file, column, expected in (
        ("coverage/tiny/coverage.parquet", "chi_bench", bench),
        ("performance/tiny/tiny.parquet", "chi_model", model),
    ):
        table = pq.read_table(data / file).to_pydict()
        stored = np.array([np.nan if value is None else value for value in table[column]])
        wanted = np.array([expected[b][c] for b, c in zip(table["benchmark"], table["concept"], strict=True)])
        assert len(stored) == 3 * saliency.shape[1]
        np.testing.assert_allclose(stored, wanted, rtol=1e-5)
