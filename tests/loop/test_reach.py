"""The reach stage on a tiny observer: a set is read as the suite was, and every figure can be had again from the artifacts.

What must hold: originals read again fire as they did in the suite; counts, rates and the table are those of dense arithmetic on the
stored matrices; running twice gives the same bytes; a set without variants, and subjects that were not asked, say so; metrics
hold finite numbers only; damaged input is named.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
from click.testing import CliRunner
from made_gaps import write_tables

from gapscope.artifacts import ANSWERS, REACH
from gapscope.competency.extraction import write_activations
from gapscope.errors import InputError
from gapscope.files import read_json, sha256_tree, write_json
from gapscope.items import Item, write_items
from gapscope.loop.reach import ReachPaths, write_reach
from gapscope.params import Params
from stages.cli import main

WORDS = ["dog", "river", "cat", "tree", "hammer", "saw", "bread", "owl", "bridge", "steam"]
PARAMS = Params.model_validate(
    {
        "seed": 3,
        "threads": 1,
        "sources": {"tiny": {"kind": "path", "licence": "CC0-1.0", "path": "tiny", "sha256": "0" * 64}},
        "benchmarks": {
            "made": {
                "source": "tiny",
                "files": ["x"],
                "format": "rows",
                "kind": "knowledge",
                "options": {"choices": "choices", "answer": "answer"},
            }
        },
        "observers": {"o": {"source": "tiny", "name": "tiny", "layer": 1, "sae": {"kind": "path", "source": "tiny", "pin": "0" * 64}}},
        "models": {"m": {"source": "tiny", "name": "tiny"}},
        "validity": {"encoder": None},
        "extract_activations": {"max_fvu": 1e9, "max_tokens": 64, "mask_sinks": False},
        "performance": {"min_n_eff": 2.0},
        "reach": {"draws": 100},
    }
)
N_CONCEPTS = 48


def original(number: int) -> Item:
    text = f"The {WORDS[number]} stood near the {WORDS[(3 * number + 1) % 10]}. What did it see?"
    return Item(f"q{number}", "made", f"q{number}", text, ("a wall", "a cloud", "a stone", "a book"), number % 4)


def variant(number: int, kind: str) -> Item:
    text = f"Why did the {WORDS[number]} stand by the {WORDS[(number + 5) % 10]} {kind}?"
    return Item(f"q{number}-{kind}", "made", f"q{number}", text, ("so", "not so"), 0, meta={"original": f"q{number}", "type": kind})


ASKED = [
    *(original(number) for number in range(4)),
    *(variant(number, kind) for number in range(4) for kind in ("causal_inference", "critical_testing")),
]


def write_answers(directory: Path, subjects: list[str]) -> None:
    rows = [(subject, item) for subject in subjects for item in ASKED]
    ANSWERS.write(
        directory / "answers.parquet",
        {
            "subject": [subject for subject, _item in rows],
            "item_id": [item.id for _subject, item in rows],
            "family": [item.family for _subject, item in rows],
            "type": [item.meta.get("type", "original") for _subject, item in rows],
            "answer": [item.answer for _subject, item in rows],
            "prediction": ["0"] * len(rows),
            "score": [float(len(item.id) % 2 == 0 or item.id[1] == "1") for _subject, item in rows],
        },
    )


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, tiny_lm_dir: Path, tiny_sae_dir: Path) -> ReachPaths:
    """A suite of ten items that was read, with every fourth concept under-exercised, and two subjects with gaps."""
    base = tmp_path_factory.mktemp("loop")
    write_items(base / "items.jsonl", [original(number) for number in range(10)])
    write_activations(
        tiny_lm_dir, tiny_sae_dir, base / "items.jsonl", None, PARAMS.extract_activations, base / "activations", base / "work",
        name="tiny", layer=1, seed=3, dtype="float32", device="cpu", threads=1,
    )  # fmt: skip
    statuses = ["under" if concept % 4 == 0 else "typical" for concept in range(N_CONCEPTS)]
    write_tables(base, statuses, {"m": [1, 2, 3], "imported": [5], "none": []})
    (base / "robustness").mkdir()
    write_items(base / "robustness/presented.jsonl", ASKED)
    write_answers(base / "robustness", ["m", "none"])
    return ReachPaths(base / "activations", base / "coverage", base / "performance", tiny_lm_dir, tiny_sae_dir, base / "robustness")


@pytest.fixture(scope="module")
def made(suite: ReachPaths, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    base = tmp_path_factory.mktemp("reached")
    return base / "out", write_reach(suite, base / "out", PARAMS, base / "work", "cpu")


def dense(directory: Path, name: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    import pyarrow.parquet as pq

    rows = pq.read_table(directory / "rows.parquet").to_pydict()
    return rows["item_id"], np.array(rows["n_tokens"]), sp.load_npz(directory / f"{name}.npz").toarray().astype(np.float64)


def test_originals_are_read_as_the_suite_was(suite: ReachPaths, made: tuple[Path, dict[str, object]]) -> None:
    ids, tokens, before = dense(suite.activations, "saliency")
    again, again_tokens, after = dense(made[0] / "activations", "saliency")
    for name in ("q0", "q1", "q2", "q3"):
        assert tokens[ids.index(name)] == again_tokens[again.index(name)]
        np.testing.assert_allclose(after[again.index(name)], before[ids.index(name)], rtol=1e-4, atol=1e-5)


def test_figures_can_be_had_again_from_the_matrices(suite: ReachPaths, made: tuple[Path, dict[str, object]]) -> None:
    ids, tokens, firing = dense(made[0] / "activations", "firing")
    _, suite_tokens, suite_firing = dense(suite.activations, "firing")
    mine = np.array(["-" in name for name in ids])
    gaps = np.arange(0, N_CONCEPTS, 4)
    fires = suite_firing[:, gaps].sum(0) > 0
    report = read_json(made[0] / "report.json")
    assert report["n"] == {"originals": 4, "variants": 8}
    assert report["n_tokens"] == {"originals": int(tokens[~mine].sum()), "variants": int(tokens[mine].sum())}
    for kind, concepts in (("under", gaps[fires]), ("unexercised", gaps[~fires]), ("coverage", gaps)):
        row = report["reached"][kind]
        on_variants, on_originals = ((firing[rows][:, concepts] > 0).any(0) for rows in (mine, ~mine))
        counts = {
            "n": len(concepts),
            "variants": on_variants.sum(),
            "originals": on_originals.sum(),
            "new": (on_variants & ~on_originals).sum(),
        }
        assert {name: row[name] for name in counts} == counts
        drawn = ("random_items", "random_tokens", "random_rewritten")
        # On an unexercised concept no item fires, by definition: there is nothing to draw.
        assert [name in row for name in drawn] == [kind == "under"] * 3
        for random in (row[name] for name in drawn if name in row):
            if len(concepts):
                assert 0 <= random["low"] <= random["mean"] <= random["high"] <= len(concepts) and 0 < random["at_least"] <= 1
            else:
                assert set(random.values()) == {None}
    rates = {"suite": (suite_firing, suite_tokens), "originals": (firing[~mine], tokens[~mine]), "variants": (firing[mine], tokens[mine])}
    for name, (fired, counted) in rates.items():
        assert report["rate"][name] == pytest.approx(1000 * fired[:, gaps].sum() / counted.sum(), rel=1e-6)
    assert report["rate"]["reference"] is None and report["status"] == {}
    assert report["change"]["originals"] == pytest.approx(np.log2(report["rate"]["variants"] / report["rate"]["originals"]), abs=1e-5)
    assert report["change"]["originals_low"] < report["change"]["originals"] < report["change"]["originals_high"]


def test_the_table_holds_every_gap(suite: ReachPaths, made: tuple[Path, dict[str, object]]) -> None:
    rows = REACH.read(made[0] / "concepts.parquet").to_pylist()
    ids, _tokens, firing = dense(made[0] / "activations", "firing")
    _, _, suite_firing = dense(suite.activations, "firing")
    mine = np.array(["-" in name for name in ids])
    assert [(row["subject"], row["concept"]) for row in rows if row["kind"] == "model"] == [("imported", 5), ("m", 1), ("m", 2), ("m", 3)]
    assert sorted(row["concept"] for row in rows if row["kind"] != "model") == list(range(0, N_CONCEPTS, 4))
    for row in rows:
        concept = row["concept"]
        assert row["suite_items"] == (suite_firing[:, concept] > 0).sum()
        assert row["variant_items"] == (firing[mine][:, concept] > 0).sum()
        assert row["original_items"] == (firing[~mine][:, concept] > 0).sum()


def test_model_gaps_are_those_of_the_answers(suite: ReachPaths, made: tuple[Path, dict[str, object]]) -> None:
    told = read_json(made[0] / "report.json")["model"]
    assert told["imported"] == {"n_concepts": 1, "originals": {"status": "not_asked"}, "variants": {"status": "not_asked"}}
    assert told["none"]["variants"]["status"] == "unsupported" and told["none"]["variants"]["difference"] is None
    ids, _tokens, saliency = dense(made[0] / "activations", "saliency")
    _, _, suite_saliency = dense(suite.activations, "saliency")
    totals = suite_saliency.sum(0)
    concepts = [concept for concept in (1, 2, 3) if totals[concept] > 0]
    weight = (saliency[:, concepts] / totals[concepts]).sum(1)
    answers = {row["item_id"]: row for row in ANSWERS.read(suite.robustness / "answers.parquet").to_pylist() if row["subject"] == "m"}
    total, carried = 0.0, 0.0
    for kind in ("causal_inference", "critical_testing"):
        rows = [row for row, name in enumerate(ids) if answers[name]["type"] == kind]
        corrected = np.array([2 * answers[ids[row]]["score"] - 1 for row in rows])
        total, carried = total + weight[rows] @ (corrected - corrected.mean()), carried + weight[rows].sum()
    assert told["m"]["variants"]["difference"] == pytest.approx(total / carried, rel=1e-5)
    assert told["m"]["variants"]["low"] <= told["m"]["variants"]["difference"] <= told["m"]["variants"]["high"]


def test_twice_the_same_bytes(suite: ReachPaths, made: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    metrics = write_reach(suite, tmp_path / "out", PARAMS, tmp_path / "work", "cpu")
    assert sha256_tree(tmp_path / "out") == sha256_tree(made[0])
    assert metrics == made[1]
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
    assert "status" not in metrics["model"]["m"]["variants"]
    assert metrics["model"]["imported"] == {"n_concepts": 1}


def test_a_set_without_variants_says_so(suite: ReachPaths, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    write_items(tmp_path / "set/presented.jsonl", [])
    ANSWERS.write(tmp_path / "set/answers.parquet", ANSWERS.schema.empty_table())
    metrics = write_reach(replace(suite, robustness=tmp_path / "set"), tmp_path / "out", PARAMS, tmp_path / "work", "cpu")
    assert metrics["n"] == {"originals": 0, "variants": 0} and metrics["reached"]["coverage"] == {
        "n": 12, "variants": 0, "originals": 0, "new": 0,
    }  # fmt: skip
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["concepts.parquet", "report.json"]
    assert {row["variant_rate"] for row in REACH.read(tmp_path / "out/concepts.parquet").to_pylist()} == {None}


def test_an_item_of_the_suite_may_have_an_original_of_its_own(suite: ReachPaths, tmp_path: Path) -> None:
    kept = [replace(item, meta={"original": "elsewhere"}) if item.id == "q3" else item for item in ASKED]
    write_items(tmp_path / "presented.jsonl", kept)
    write_answers(tmp_path, ["m", "none"])
    paths = replace(suite, robustness=tmp_path)
    assert write_reach(paths, tmp_path / "out", PARAMS, tmp_path / "work", "cpu")["n"] == {"originals": 4, "variants": 8}


def test_damaged_input_is_named(suite: ReachPaths, tmp_path: Path) -> None:
    def run(name: str, items: list[Item] | None) -> None:
        (tmp_path / name).mkdir()
        if items is not None:
            write_items(tmp_path / name / "presented.jsonl", items)
        write_reach(replace(suite, robustness=tmp_path / name), tmp_path / "out", PARAMS, tmp_path / "work", "cpu")

    with pytest.raises(InputError, match=r"presented.jsonl: no such file"):
        run("absent", None)
    with pytest.raises(InputError, match=r"meta.original: the original of 'q0-causal_inference' is not among the items"):
        run("orphan", [original(1), variant(0, "causal_inference")])
    with pytest.raises(InputError, match=r"answers.parquet: no such file"):
        run("unanswered", ASKED)
    assert not (tmp_path / "out").exists()


def run_stage(tmp_path: Path, *, enabled: bool) -> tuple[int, str]:
    raw = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())
    raw["variants"]["enabled"] = enabled
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    arguments = [
        "reach",
        "--params",
        str(tmp_path / "params.yaml"),
        "--output",
        str(tmp_path / "out"),
        "--metrics",
        str(tmp_path / "m.json"),
    ]
    for name in ("robustness", "activations", "coverage", "performance", "sae", "raw"):
        (tmp_path / name).mkdir(exist_ok=True)
        arguments += [f"--{name}", str(tmp_path / name)]
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def test_switched_off_it_says_so(tmp_path: Path) -> None:
    assert run_stage(tmp_path, enabled=False) == (0, "")
    assert "off" in read_json(tmp_path / "out/report.json") and read_json(tmp_path / "m.json") == {"off": 1}


def test_a_set_that_was_switched_off_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "robustness/report.json", {"off": "for a reason"})
    code, said = run_stage(tmp_path, enabled=True)
    assert code == 1 and "was written with the second half switched off" in said and len(said.splitlines()) == 1
