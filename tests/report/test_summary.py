import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_run import Shape, make_run

from gapscope.errors import InputError
from gapscope.report.summary_rest import fall_or_rise, loss_told, read_rest, rest_lines, trust_lines
from gapscope.report.summary_text import _flat, _subject
from gapscope.report.told import Validity
from stages.commands.summary import main as summary
from stages.report import main as report

LABELS = ("[red]energy[/red] \x1b[31mheat", "water, plant")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("run")
    make_run(root / "data", Shape(n_concepts=40, labels=LABELS))
    (root / "metrics/train_sae").mkdir(parents=True)
    (root / "metrics/train_sae/obs.json").write_text('{"heldout": {"fvu": 0.218, "l0": 32.0, "n_tokens": 200000}}')
    return root


def options(root: Path, *more: str) -> list[str]:
    paths = [f"--{name}={root / name}" for name in ("data", "metrics", "plots")]
    return [f"--params={root / 'params.yaml'}", *paths, *more]


def test_json_holds_the_run(run: Path) -> None:
    result = CliRunner().invoke(summary, options(run, "--json", "--concepts", "2"))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["suite"]["n_items"] == 120
    assert found["suite"]["n_benchmarks"] == 3
    assert found["observers"]["obs"]["n_concepts"] == 40
    assert 0 <= found["observers"]["obs"]["missing_share"] <= 1
    assert found["subjects"]["subj"]["low"] < found["subjects"]["subj"]["accuracy"] < found["subjects"]["subj"]["high"]
    assert found["subjects"]["subj"]["n"] + found["subjects"]["subj"]["n_unscored"] == 120
    concepts = found["concepts"]["obs"]["subj"]
    assert len(concepts["worst"]) == len(concepts["best"]) == 2
    assert concepts["worst"][0]["value"] < 0 < concepts["best"][0]["value"]
    assert {concept["label"] for concept in concepts["worst"] + concepts["best"]} <= {"[red]energy[/red] [31mheat", "water, plant"}
    assert found["absent"] == []


def test_text_names_what_matters_and_reads_no_markup(run: Path) -> None:
    result = CliRunner().invoke(summary, options(run))
    assert result.exit_code == 0, result.output
    for expected in (
        "120 items in 3 benchmarks",
        "FVU 0.218",
        "L0 32",
        "the suite misses",
        "concepts are dead",
        "worst",
        "best",
        "n_eff",
        "95% interval",
    ):
        assert expected in result.stdout, expected
    assert "[red]energy[/red] [31mheat" in result.stdout
    assert "\x1b" not in result.stdout


def test_nothing_there_is_said_and_is_no_failure(tmp_path: Path) -> None:
    for more in ((), ("--json",)):
        result = CliRunner().invoke(summary, options(tmp_path, *more))
        assert result.exit_code == 0, result.output
        assert "items.jsonl: no such file" in result.stdout
        assert "no observer's coverage" in result.stdout


def test_a_damaged_file_is_named_and_the_rest_is_shown(run: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "data", Shape(n_concepts=40))
    (tmp_path / "data/performance/obs/subj.parquet").write_bytes(b"PAR1 not")
    result = CliRunner().invoke(summary, options(tmp_path, "--json"))
    found = json.loads(result.stdout)
    assert any("subj.parquet: not a readable Parquet file" in line for line in found["absent"])
    assert any("train_sae/obs.json: no such file" in line for line in found["absent"])
    assert found["observers"]["obs"]["n_concepts"] == 40
    assert found["concepts"]["obs"]["subj"] is None


def test_flat_finds_numbers_at_any_depth() -> None:
    assert _flat({"a": {"fvu": 1.0, "b": {"l0": 2}}, "fvu": 3}) == {"fvu": 1.0, "l0": 2}


def stage_options(root: Path, out: Path) -> list[str]:
    names = ("items", "activations", "coverage", "performance", "clusters", "scores")
    return [*(f"--{name}={root / 'data' / name}" for name in names), f"--plots={out / 'data'}", f"--figures={out / 'figures'}"]


def test_the_stage_writes_both_outputs_and_tells(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(report, [*stage_options(run, tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["n_plots"] == 8
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 7
    assert "8 plots" in result.stderr


def test_the_stage_names_a_fault_on_one_line_and_leaves_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    arguments = [
        f"--clusters={tmp_path / 'empty'}" if option.startswith("--clusters") else option for option in stage_options(run, tmp_path)
    ]
    result = CliRunner().invoke(report, arguments)
    assert result.exit_code == 1
    assert "obs.parquet: no such file" in result.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


def test_help_needs_no_matplotlib() -> None:
    code = "import sys; from stages.report import main; main(['--help'], standalone_mode=False); sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parents[2])


def test_later_stages_get_a_line_each_and_none_where_they_were_off(run, tmp_path):
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    heldout = {
        "balanced_accuracy": 0.84643,
        "bag_of_words": {"balanced_accuracy": 0.6},
        "label_correct": {"balanced_accuracy": 0.80783},
        "n": 280,
    }
    write = {
        "validity.json": {"controls": {"reader": {"concepts": {"r": 0.118, "r_chance": 0.052}, "random": {"n_tested": 0}}}},
        "sft.json": {"heldout": heldout},
        "filter.json": {"n_accepted": 7, "n_candidates": 12, "accepted": {"causal_inference": 3, "critical_testing": 4}},
        "evaluate.json": {"subjects": {"gold": {"oa": 0.5, "ara": 0.25}, "half": {"ara": 0.25}, "asked_of_nobody": {"n": 0}}},
    }
    for name, content in write.items():
        (metrics / name).write_text(json.dumps(content))
    lines = rest_lines(read_rest(metrics, tmp_path / "none"), {"gold": "A model"})
    assert lines == [
        ("trust reader", "effects of concepts on two halves of the items: r 0.12, told from chance (shuffled scores reach 0.05)"),
        ("verifier", "balanced accuracy 0.85 (a bag of words 0.60) on 280 held-out variants; of right labels 0.81"),
        ("variants", "7 of 12 candidates accepted, of each type 3 or more"),
        ("robustness gold", "A model: 50.0% of originals right, 25.0% of their variants"),
        ("robustness half", "half: none of the originals scored, 25.0% of their variants right"),
    ]
    assert rest_lines(read_rest(tmp_path, tmp_path / "none"), {}) == []
    assert [name for name, _line in rest_lines(read_rest(metrics, tmp_path / "none", second_half=False), {})] == ["trust reader"]
    for name in write:
        (metrics / name).write_text('{"n": 0}')
    assert rest_lines(read_rest(metrics, tmp_path / "none"), {}) == []
    (metrics / "sft.json").write_text("[1]")
    with pytest.raises(InputError, match="not what sft writes"):
        read_rest(metrics, tmp_path / "none")


def test_a_loss_stands_with_its_interval_and_support() -> None:
    row = {"rla": 0.0196, "rla_low": -0.167, "rla_high": 0.197, "n_variants": 102, "n_families": 51}
    assert loss_told(row) == "; loss +2.0 points (-16.7 to +19.7), not told from none, on 102 variants of 51 families"
    assert ", a fall, " in loss_told(row | {"rla_low": 0.001})
    assert ", a rise, " in loss_told(row | {"rla_high": -0.001})
    assert loss_told(row | {"rla_low": None}) == loss_told(None) == ""
    nothing = row | {"rla": -0.0004, "rla_low": -0.0003, "rla_high": 0.0002}
    assert loss_told(nothing).startswith("; loss 0.0 points (0.0 to 0.0), not told from none")
    validity = Validity.model_validate(
        {"controls": {"obs": {"concepts": {"r": -0.03, "r_chance": 0.08}, "random": {"r": -0.004, "r_chance": 0.08}}}}
    )
    concepts, random = trust_lines(validity)["obs"]
    assert "r -0.03, not told from chance (shuffled scores reach 0.08)" in concepts
    assert ": r 0.00, not told from chance" in random


def test_an_interval_says_fall_rise_or_neither() -> None:
    said = [fall_or_rise(low, high) for low, high in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1), (0.0, 0.1), (None, None))]
    assert said == ["a fall", "a rise", "not told from none", "not told from none", "no interval"]


def test_an_accuracy_without_an_interval_is_told() -> None:
    found = {"name": "m", "accuracy": 0.5, "low": None, "high": 0.6, "chance": 0.25}
    assert _subject(found, 0.95)[1] == "accuracy 50.0% (no interval), mean over benchmarks; a blind guess 25.0%"
