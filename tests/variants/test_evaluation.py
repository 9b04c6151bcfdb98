"""The evaluate stage on a tiny model, and what a set of variants gives away.

What must hold: every table joins on its keys and the measures can be recomputed from the answers; a subject of imported
results is named as not asked; choices are shuffled by seed and id alone, "none of the above" staying last; a gold that
is always the longest choice is caught; the same run gives the same bytes; missing originals are refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from made_families import nota, original, variant

from gapscope.errors import InputError
from gapscope.files import read_json, sha256_tree
from gapscope.items import Item, read_items, write_items
from gapscope.params import Params, ScoreParams, parse_params
from gapscope.params_robustness import EvaluateParams
from gapscope.scores import ItemScore, summarise
from gapscope.scoring import score_model
from gapscope.variants.evaluation import Made, read_families, read_made, write_evaluation
from gapscope.variants.presentation import presented
from gapscope.variants.quality import choices_only, quality_row
from gapscope.variants.ranking import read_reference
from gapscope.variants.types import gold

ORIGINALS = [original(k) for k in range(5)]
VARIANTS = [item for k in range(5) for item in (variant(k, "problem_restatement"), nota(k, right=k % 2 == 0))]
MADE = Made({"n_candidates": 12, "n_accepted": 10}, {})


def params() -> Params:
    path = {"kind": "path", "licence": "CC0-1.0", "path": "x", "sha256": "0" * 64}
    options = {"question": "q", "choices": "c", "answer": "a"}
    raw = {
        "sources": {"lm": path, "log": path},
        "benchmarks": {
            "made": {"source": "log", "files": ["a.jsonl"], "format": "rows", "kind": "knowledge", "licence": "CC0-1.0", "options": options}
        },
        "observers": {"lm": {"source": "lm", "name": "lm", "layer": 1, "sae": {"kind": "train"}}},
        "models": {
            "one": {"source": "lm", "name": "one"},
            "two": {"source": "lm", "name": "two", "dtype": "bfloat16"},
            "far": {"source": "log", "name": "far", "results": {"file": "r.csv", "score_column": "score"}},
        },
        "corpus": {"source": "log", "files": [{"file": "d.jsonl", "column": "t"}]},
        "threads": 1,
        "variants": {"enabled": False},
        "evaluate": {"bootstrap_draws": 200, "reference": {"source": "log", "file": "reference.csv"}},
    }
    return parse_params(yaml.safe_dump(raw), Path("params.yaml"))


def params_without_reference() -> Params:
    return params().model_copy(update={"evaluate": EvaluateParams(bootstrap_draws=200)})


def write_inputs(place: Path, variants: list[Item] = VARIANTS) -> tuple[Path, Path]:
    write_items(place / "items.jsonl", ORIGINALS)
    write_items(place / "variants.jsonl", variants)
    return place / "variants.jsonl", place / "items.jsonl"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_lm_dir: Path) -> tuple[Path, dict[str, object]]:
    place = tmp_path_factory.mktemp("evaluate")
    (place / "raw/log").mkdir(parents=True)
    (place / "raw/lm").symlink_to(tiny_lm_dir)
    (place / "raw/log/reference.csv").write_text("subject,score\none,0.5\ntwo,0.4\nthree,0.1\n")
    families = read_families(*write_inputs(place), seed=3)
    metrics = write_evaluation(families, place / "raw", place / "out", place / "plot.json", params(), MADE, place / ".work")
    write_evaluation(families, place / "raw", place / "again", place / "plot_again.json", params(), MADE, place / ".work")
    return place, metrics


def test_measures_are_those_of_the_answers(run: tuple[Path, dict[str, object]]) -> None:
    place, metrics = run
    answers = pq.read_table(place / "out/answers.parquet").to_pylist()
    asked = {item.id: item for item in read_items(place / "out/presented.jsonl")}
    assert {row["item_id"] for row in answers} == asked.keys()
    mine = [row for row in answers if row["subject"] == "one"]
    assert all(row["answer"] == asked[row["item_id"]].answer for row in mine)
    assert all(row["score"] == float(row["prediction"] == str(row["answer"])) for row in mine)
    right = {row["item_id"]: row["score"] for row in mine}
    first = {row["family"]: row["score"] for row in mine if row["type"] == "original"}
    pairs = [(first[row["family"]], row["score"]) for row in mine if row["type"] != "original"]
    rows = {(row["subject"], row["subset"]): row for row in pq.read_table(place / "out/robustness.parquet").to_pylist()}
    found = rows["one", "all"]
    assert (found["n_families"], found["n_variants"]) == (5, 10)
    assert found["oa"] == pytest.approx(np.mean(list(first.values())))
    assert found["ara"] == pytest.approx(np.mean([v for _o, v in pairs]))
    assert found["cra_pair"] == pytest.approx(np.mean([o * v for o, v in pairs]))
    families = {row["family"]: [r["score"] for r in mine if r["family"] == row["family"]] for row in mine}
    assert found["cra_all"] == pytest.approx(np.mean([min(scores) for scores in families.values()]))
    assert rows["one", "critical_testing_nota_gold"]["n_variants"] == 3
    assert rows["one", "critical_testing_nota_gold"]["ara"] == pytest.approx(np.mean([right[f"o{k}-critical_testing"] for k in (0, 2, 4)]))
    assert rows["one", "sentence_ordering"]["oa"] is None
    assert rows["one", "sentence_ordering"]["n_families"] == 0
    assert metrics["subjects"]["one"]["oa"] == pytest.approx(found["oa"])  # type: ignore[index]
    assert metrics["subjects"].keys() == {"one", "two"}  # type: ignore[attr-defined]


def test_what_could_not_be_asked_is_said(run: tuple[Path, dict[str, object]]) -> None:
    quality = read_json(run[0] / "out/quality.json")
    assert "imported" in quality["not_asked"]["far"]
    assert quality["ranking"] == {"n": 2}
    assert quality["subsets"]["all"]["choices_only"]["one"]["n"] == 10
    assert quality["subsets"]["sentence_ordering"] == {"n": 0, "n_families": 0}
    assert quality["subsets"]["critical_testing"]["gold_position"]["nota"] == 3


def test_same_bytes_twice_and_exported(run: tuple[Path, dict[str, object]]) -> None:
    assert sha256_tree(run[0] / "out") == sha256_tree(run[0] / "again")
    assert "CC0-1.0" in (run[0] / "out/export/datasets/README.md").read_text()
    assert (run[0] / "plot.json").read_bytes() == (run[0] / "plot_again.json").read_bytes()
    drawn = {(row["subject"], row["asked"]): row for row in read_json(run[0] / "plot.json")}
    assert drawn["one", "originals"]["chance"] == 0.25
    assert drawn["one", "critical_testing_nota_gold"]["n"] == 3
    assert ("one", "sentence_ordering") not in drawn
    assert (run[0] / "out/export/lm_eval/_gapscope_robustness.yaml").is_file()
    assert list((run[0] / ".work").glob("*/*")) == []


def test_questions_that_were_cut_are_counted_as_score_counts_them(run: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    place, whole = run
    assert [row["n_truncated"] for row in whole["subjects"].values()] == [0, 0]  # type: ignore[attr-defined]
    items = read_families(place / "variants.jsonl", place / "items.jsonl", seed=3)
    short = params().model_copy(update={"score": ScoreParams(max_tokens=36)})
    metrics = write_evaluation(items, place / "raw", tmp_path / "out", tmp_path / "plot.json", short, MADE, tmp_path / ".work")
    scores, _work = score_model(place / "raw/lm", items.items, short.score, tmp_path / ".work", dtype="float32", device="cpu", threads=1)
    expected = summarise(items.items, scores)["n_truncated"]
    assert expected == 10, "the variants are longer than that, the originals are not"
    assert metrics["subjects"]["one"]["n_truncated"] == expected
    assert read_json(tmp_path / "out/quality.json")["n_truncated"] == {"one": expected, "two": expected}


def test_nothing_accepted_is_evaluated_as_nothing(tmp_path: Path) -> None:
    families = read_families(*write_inputs(tmp_path, []), seed=1)
    metrics = write_evaluation(
        families, tmp_path / "raw", tmp_path / "out", tmp_path / "plot.json", params_without_reference(), MADE, tmp_path / ".work"
    )
    assert metrics["n_families"] == 0
    assert metrics["subjects"] == {"one": {"n_unscored": 0, "n_truncated": 0}, "two": {"n_unscored": 0, "n_truncated": 0}}
    rows = pq.read_table(tmp_path / "out/robustness.parquet").to_pylist()
    assert {row["oa"] for row in rows} == {None}
    assert {row["n_families"] for row in rows} == {0}
    assert pq.read_table(tmp_path / "out/comparisons.parquet").to_pydict()["p"] == [None, None]


def test_choices_are_shuffled_by_seed_and_id() -> None:
    item = replace(nota(0, right=False), choices=("a", "b", "c", "d", "None of the above"), answer=1)
    orders = {presented(replace(item, id=f"i{k}"), 5).choices for k in range(40)}
    assert len(orders) > 10
    assert {order[-1] for order in orders} == {"None of the above"}
    assert presented(item, 5) == presented(item, 5)
    assert gold(presented(item, 5)) == "b"
    places = [presented(replace(item, id=f"i{k}"), 5).answer for k in range(400)]
    assert all(70 < places.count(place) < 130 for place in range(4))


def test_shortcuts_are_caught() -> None:
    long = [variant(k, "problem_restatement", choices=("wall", "a much longer answer", "saw"), answer=1, name=f"v{k}") for k in range(12)]
    originals = {f"o{k}": original(k) for k in range(12)}
    blind = {"s": {choices_only(item).id: ItemScore(item.id, float(k % 3 == 0)) for k, item in enumerate(long)}}
    row = quality_row(long, originals, blind)
    assert row["shortcuts"]["longest"]["accuracy"] == 1.0
    assert not row["shortcuts"]["longest"]["near_chance"]
    assert row["shortcuts"]["shortest"]["accuracy"] == 0.0
    assert row["choices_only"]["s"]["accuracy"] == pytest.approx(1 / 3)
    assert row["choices_only"]["s"]["near_chance"]
    assert row["words"]["shift"] == pytest.approx(row["words"]["variant"] - row["words"]["original"])
    assert row["gold_position"] == {"1": 12}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"meta": {"type": "problem_restatement", "original": "gone"}}, "original of 'v' is not among the items"),
        ({"meta": {"type": "odd", "original": "o0"}}, "'v' has no known type"),
        ({"meta": {"type": ["odd"], "original": "o0"}}, r"variants\.jsonl: meta\.type: not a variant's meta \('v'\): .*string"),
        ({"meta": {"type": "problem_restatement", "original": 7}}, r"meta\.original: not a variant's meta \('v'\): .*string, is 7"),
        ({"meta": {"type": "problem_restatement", "original": "o0", "bloom": 3}}, r"meta\.bloom: not"),
        ({"meta": {"type": "problem_restatement", "original": "o0", "verdict": [1]}}, r"meta\.verdict: not"),
        ({"meta": {"type": "problem_restatement", "original": "o0", "verdict": {"p": "high"}}}, r"meta\.verdict\.p: not"),
        ({"choices": (), "answer": None, "target": "so"}, "'v' has no choices"),
        ({"id": "o2"}, "'o2' is an item's id too"),
        ({"meta": {"type": "problem_restatement", "original": "o1"}, "family": "o0"}, "family 'o0' has two originals"),
    ],
)
def test_damaged_variants_are_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    files = write_inputs(tmp_path, [variant(0, "problem_restatement", name="a"), replace(VARIANTS[0], **{"id": "v", **changes})])
    with pytest.raises(InputError, match=said):
        read_families(*files, seed=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [("name,score\na,1\n", "subject"), ("subject,score\na,x\n", "'x' is no number"), ("subject,score\na,1\na,2\n", "'a' occurs twice")],
)
def test_damaged_reference_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_reference(tmp_path / "r.csv")


@pytest.mark.parametrize("told", ["{}", '{"off": "why"}', '{"heldout": {"auroc": null}}', "[1]"])
def test_a_verifier_that_was_not_measured_has_no_figures(tmp_path: Path, told: str) -> None:
    (tmp_path / "report.json").write_text(told)
    assert read_made(tmp_path / "absent", tmp_path) == Made({}, {})


def test_a_report_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("[1]")
    with pytest.raises(InputError, match=r"report\.json: must be an object"):
        read_made(tmp_path, None)
