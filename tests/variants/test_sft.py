"""The sft stage on a tiny random model: same bytes twice, families apart, and a verifier that judges a pair the same alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_models import PARAMS, save_encoder, save_long_lm, seed_sets

from gapscope.errors import InputError
from gapscope.files import sha256_tree
from gapscope.variants.contrasts import assembled, contrasts, labelled
from gapscope.variants.measures import COLUMNS
from gapscope.variants.seed_sets import read_split
from gapscope.variants.sft import write_sft
from gapscope.variants.tables import VERIFIERS
from gapscope.variants.verifier import KINDS, Settings, Verifier
from gapscope.variants.verifier_training import BASELINES, Workplace, train_verifier


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the stage, in ``one`` and ``two``, beside the model, the encoder and the seeds."""
    root = tmp_path_factory.mktemp("sft")
    model, encoder, seeds = save_long_lm(root / "model"), save_encoder(root / "encoder"), seed_sets(root)
    for name in ("one", "two"):
        place = Workplace(model, encoder, PARAMS, 20, 1, "cpu", root / f"work_{name}")
        metrics = write_sft(seeds, root / name / "verifier", root / name / "generator", root / name / "plots", place)
        (root / name / "metrics.json").write_text(json.dumps(metrics))
    return root


def verifier(made: Path) -> Verifier:
    return Verifier.load(made / "one/verifier", made / "model", made / "encoder", device="cpu")


def test_two_runs_give_the_same_bytes(made: Path) -> None:
    assert sha256_tree(made / "one") == sha256_tree(made / "two")
    assert not list((made / "work_one").rglob("batch-*")), "what was kept for a restart is removed"


def test_nothing_is_pickled(made: Path) -> None:
    assert {path.suffix for path in (made / "one").rglob("*") if path.is_file()} <= {".json", ".safetensors", ".parquet", ".jinja"}


def test_every_verifier_is_scored_on_both_splits(made: Path) -> None:
    rows = VERIFIERS.read(made / "one/verifier/scores.parquet").to_pylist()
    assert {row["verifier"] for row in rows} == {*KINDS, *BASELINES}
    assert {row["split"] for row in rows} == {"development", "heldout"}
    assert {row["column"] for row in rows} == set(COLUMNS)
    metrics = json.loads((made / "one/metrics.json").read_text())
    kept = Settings.read(made / "one/verifier").kind
    cell = next(r for r in rows if (r["verifier"], r["split"], r["type"], r["column"]) == (kept, "heldout", "all", "valid"))
    assert metrics["heldout"]["auroc"] == pytest.approx(cell["auroc"], abs=1e-4)
    assert metrics["heldout"]["n"] == cell["n"]
    majority = next(r for r in rows if (r["verifier"], r["split"], r["type"], r["column"]) == ("majority", "heldout", "all", "valid"))
    assert majority["auroc"] == 0.5 and majority["balanced_accuracy"] == 0.5


def test_the_kept_one_is_the_best_on_the_development_families(made: Path) -> None:
    report = json.loads((made / "one/verifier/report.json").read_text())
    assert report["development_auroc"][report["kept"]] == max(report["development_auroc"].values())
    assert set(report["development_auroc_without"]) >= {"type", "embedding", "likelihood", "wording"}


def test_a_pair_is_judged_the_same_alone_and_among_others(made: Path) -> None:
    rows = labelled(*read_split(made / "split", "heldout"))[:12]
    pairs = [(row.pair.variant, row.pair.original, row.pair.type) for row in rows]
    judge = verifier(made)
    together = judge.judge(pairs)
    assert judge.judge([]) == []
    for pair, verdict in zip(pairs, together, strict=True):
        alone = judge.judge([pair])[0]
        assert alone.p == pytest.approx(verdict.p, abs=0.02) and 0 <= verdict.p <= 1
        assert verdict.valid == (verdict.tc and verdict.lc and verdict.au)
    assert judge.judge(pairs[::-1]) == together[::-1]


def test_another_model_or_encoder_is_refused(made: Path) -> None:
    with pytest.raises(InputError, match="is not the model that this verifier was trained beside"):
        Verifier.load(made / "one/verifier", made / "encoder", made / "encoder")
    with pytest.raises(InputError, match="is not the embedder"):
        Verifier.load(made / "one/verifier", made / "model", made / "model")


def test_a_damaged_verifier_is_refused(made: Path, tmp_path: Path) -> None:
    data = json.loads((made / "one/verifier/verifier.json").read_text())
    heads, broken = data["heads"], {**data["heads"], "lc": {}}
    numberless = {**heads, "au": {**heads["au"], "state": {"trees": []}}}
    for change, message in (
        ({"version": 99}, "not a verifier of version 1"),
        ({"heads": broken}, r"verifier\.json: heads\.lc: not a stored head: 'names'"),
        ({"heads": numberless}, r"heads\.au: not a stored head: its probability is not a finite number"),
        ({"heads": list(heads)}, "heads: not a verifier: Input should be a valid dictionary"),
        ({"heads": {"valid": heads["valid"]}}, "heads: not a verifier: Dictionary should have at least 4 items"),
        ({"kind": "oracle"}, "kind: not a verifier"),
        ({"kind": "stack", "form": None}, "kind stack needs form"),
        ({"temperature": dict.fromkeys(COLUMNS, "1")}, r"temperature\.tc: not a verifier: .*number, is '1'"),
        ({"threshold": {"tc": 0.5}}, "threshold: not a verifier"),
        ({"inputs": ["a"]}, "inputs: not a verifier"),
    ):
        (tmp_path / "verifier.json").write_text(json.dumps(data | change))
        with pytest.raises(InputError, match=message):
            Settings.read(tmp_path)


@pytest.mark.parametrize("split", ["train", "development", "heldout"])
def test_seeds_of_one_verdict_are_refused_before_a_model_is_loaded(made: Path, tmp_path: Path, split: str) -> None:
    shutil.copytree(made / "split", tmp_path / "split")
    file = tmp_path / "split" / f"{split}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows if row["meta"]["verdict"]["au"]))
    gone = tmp_path / "no_model"
    with pytest.raises(InputError, match=rf"{split}\.jsonl: of the \d+ variants of {split}, au holds of \d+ and fails of 0"):
        train_verifier(tmp_path / "split", Workplace(gone, gone, PARAMS, 20, 1, "cpu", tmp_path))


def test_too_few_families_for_the_stack_are_refused(made: Path, tmp_path: Path) -> None:
    none = PARAMS.model_copy(update={"verifier": PARAMS.verifier.model_copy(update={"stack_share": 0.001})})
    with pytest.raises(
        InputError, match=r"0 variants of the training families that the stack learns from.*raise sft\.verifier\.stack_share"
    ):
        train_verifier(made / "split", Workplace(tmp_path, tmp_path, none, 20, 1, "cpu", tmp_path))


def test_made_up_rows_stay_in_their_family_and_fail_one_dimension(made: Path) -> None:
    rows = labelled(*read_split(made / "split", "train"))
    together = assembled(rows)
    assert {row.pair.original.family for row in together} <= {row.pair.original.family for row in rows}
    assert sum(row.valid for row in together) == sum(row.valid for row in rows)
    faulty = contrasts(together, 1, 2)
    assert all(sum(not holds for holds in row.verdict.values()) == 1 for row in faulty)
    assert {name for row in faulty for name, holds in row.verdict.items() if not holds} == {"tc", "lc", "au"}
    assert len(contrasts(together, 1, 1)) == sum(row.valid for row in together)
