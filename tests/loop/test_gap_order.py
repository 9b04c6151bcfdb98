"""Which items are rewritten where the gaps choose them.

What must hold: the weights are the shares worked out by hand; the order of the rows says nothing; with ``items`` the report does not
depend on the first half; where there is no gap to choose by, an error says so and how to go on; damaged files are named.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from made_gaps import IDS, STATUS, WEIGHTS, items, write_gaps, write_tables

from gapscope.artifacts import COVERAGE
from gapscope.errors import InputError
from gapscope.files import read_json, stable_hash, write_json
from gapscope.items import Item, write_items
from gapscope.loop.gaps import Gap, Gaps, read_gaps
from gapscope.loop.order import read_order
from gapscope.loop.sources import order_items, write_gap_order
from gapscope.params import Params, load_params
from gapscope.variants.generation import pick_sources
from stages.cli import main

ROOT = Path(__file__).parents[2]


def gaps_of(directory: Path) -> Gaps:
    return read_gaps(directory / "activations", directory / "coverage", directory / "performance")


def test_gaps_are_those_of_the_tables(tmp_path: Path) -> None:
    found = gaps_of(write_gaps(tmp_path))
    assert found.found == [Gap("model", "m", 2), Gap("under", None, 0), Gap("under", None, 1), Gap("unexercised", None, 4)]
    assert found.counts() == {"under": 2, "unexercised": 1, "model": 1}
    assert found.concepts().tolist() == [0, 1, 2, 4]
    assert found.concepts("model", subject="other").tolist() == []


def test_weights_are_shares_worked_out_by_hand(tmp_path: Path) -> None:
    assert order_items(gaps_of(write_gaps(tmp_path)), items(), 7) == list(WEIGHTS.items())


def test_a_concept_of_two_kinds_counts_once(tmp_path: Path) -> None:
    found = gaps_of(write_gaps(tmp_path, gaps=[0, 2]))
    assert found.concepts("model").tolist() == [0, 2]
    assert dict(order_items(found, items(), 7)) == WEIGHTS


def test_the_order_of_the_rows_says_nothing(tmp_path: Path) -> None:
    for name, order in (("a", [0, 1, 2, 3]), ("b", [3, 1, 0, 2])):
        write_gap_order(
            tmp_path / f"{name}.out", gaps_of(write_gaps(tmp_path / name, order)), items()[:: 1 if name == "a" else -1], None, "o", 7
        )
    first, second = ((tmp_path / f"{name}.out/report.json").read_bytes() for name in "ab")
    assert first == second


def test_equal_weights_go_by_the_seed(tmp_path: Path) -> None:
    found = gaps_of(write_gaps(tmp_path))
    alike = replace(found, saliency=found.saliency[[1, 1, 1, 1]])
    for seed in (1, 2, 3, 4):
        got = order_items(alike, items(), seed)
        assert [name for name, _weight in got] == sorted(IDS, key=lambda name: stable_hash(seed, "source", name))
        assert {weight for _name, weight in got} == {0.25}


def test_only_what_may_be_rewritten_is_taken(tmp_path: Path) -> None:
    questions = [replace(items()[2], choices=(), answer=None, target="so"), *items()[:2], items()[3]]
    metrics = write_gap_order(tmp_path / "out", gaps_of(write_gaps(tmp_path)), questions, ["scenes"], "o", 7)
    assert read_order(tmp_path / "out") == ["i1", "i0"]
    assert metrics == {"from_gaps": 1, "concepts": {"under": 2, "unexercised": 1, "model": 1}, "n_items": 2, "n_without": 0}
    told = read_json(tmp_path / "out/report.json")
    assert told["concepts"][1] == {"concept": 0, "kind": "under", "subject": None, "n_items": 2}


def test_without_a_gap_it_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    none = gaps_of(write_gaps(tmp_path / "none", status=["typical"] * 5, gaps=[]))
    with pytest.raises(InputError, match=r"generate.source: there is no gap concept.*no gap of m \(set generate.source: items\)"):
        order_items(none, items(), 7)
    with pytest.raises(InputError, match=r"none of the gap concepts \(2 under, 1 unexercised, 1 model\) fires on any of the 1 items"):
        order_items(gaps_of(write_gaps(tmp_path / "some")), [items()[3]], 7)
    with pytest.raises(InputError, match="'new' was not read"):
        order_items(gaps_of(tmp_path / "some"), [Item("new", "scenes", "new", "What?", ("a", "b"), 0)], 7)


def test_damaged_or_foreign_tables_are_named(tmp_path: Path) -> None:
    write_gaps(tmp_path)
    (tmp_path / "performance/m.parquet").unlink()
    with pytest.raises(InputError, match="holds no subject's table"):
        gaps_of(tmp_path)
    for status in ([*STATUS, "under"], STATUS[:-1]):
        write_tables(tmp_path, status, {"m": []})
        with pytest.raises(InputError, match="concept: is not of the 5 concepts that the activations have"):
            gaps_of(tmp_path)
    (tmp_path / "coverage/coverage.parquet").write_text("no table")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        gaps_of(tmp_path)
    (tmp_path / "activations/saliency.npz").unlink()
    with pytest.raises(InputError, match="no such file"):
        gaps_of(tmp_path)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"off": "variants.enabled is false"}, "must be items or gaps"),
        ({"source": "gaps"}, "must be a list of objects"),
        ({"source": "gaps", "items": [{"weight": 1}]}, "must be a list of objects"),
        ({"source": "gaps", "items": []}, "at least one item"),
        ({"source": "gaps", "items": [{"id": "a"}, {"id": "a"}]}, "none twice"),
    ],
)
def test_a_damaged_order_is_refused(tmp_path: Path, told: dict[str, object], said: str) -> None:
    write_json(tmp_path / "report.json", told)
    with pytest.raises(InputError, match=said):
        read_order(tmp_path)


def test_generate_takes_the_items_in_that_order() -> None:
    def count(text: str) -> int:
        return len(text.split())

    got = pick_sources(items(), ["scenes"], 500, count, 7, ["i2", "i3", "i0"])
    assert [item.id for item in got.items] == ["i2", "i0"]
    assert got.n_left_out == {"no_choices": 0, "too_long": 0, "same_family": 0, "not_chosen": 1}
    with pytest.raises(InputError, match="'gone' is to be rewritten and is no item"):
        pick_sources(items(), None, 500, count, 7, ["i2", "gone"])


def params_file(tmp_path: Path, **changes: object) -> Path:
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["rewritten"] = None
    raw["generate"] |= {"source": changes.get("source", "items")}
    raw["variants"] = {"enabled": changes.get("enabled", True)}
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(raw))
    return file


def run_stage(tmp_path: Path, name: str, **changes: object) -> dict[str, object]:
    """The stage's report; every observer's artifacts lie under the name of the default run's."""
    write_items(tmp_path / "items.jsonl", items())
    arguments = ["--params", str(params_file(tmp_path, **changes)), "--items", str(tmp_path / "items.jsonl")]
    for part in ("activations", "coverage", "performance"):
        (tmp_path / name / part).mkdir(parents=True, exist_ok=True)
        arguments += [f"--{part}", str(tmp_path / name / part)]
    done = CliRunner().invoke(main, ["sources", *arguments, "--output", str(tmp_path / "out"), "--metrics", str(tmp_path / "metrics.json")])
    assert done.exit_code == 0, done.output
    report: dict[str, object] = read_json(tmp_path / "out/report.json")
    return report


def test_the_stage_reads_the_first_half_only_where_the_gaps_choose(tmp_path: Path) -> None:
    assert run_stage(tmp_path, "nothing_there") == {"source": "items"}
    assert read_order(tmp_path / "out") is None
    assert read_json(tmp_path / "metrics.json") == {"from_gaps": 0}
    assert run_stage(tmp_path, "nothing_there", source="gaps", enabled=False) == {"off": "variants.enabled is false in params.yaml"}
    write_gaps(tmp_path / "made")
    for part in ("activations", "coverage", "performance"):
        (tmp_path / "there" / part).mkdir(parents=True)
        (tmp_path / "made" / part).rename(tmp_path / "there" / part / "smollm2_135m")
    told = run_stage(tmp_path, "there", source="gaps")
    assert told["observer"] == "smollm2_135m"
    assert read_order(tmp_path / "out") == list(WEIGHTS)


def test_the_observer_must_be_one(tmp_path: Path) -> None:
    file = params_file(tmp_path)
    params = load_params(file)
    assert isinstance(params, Params)
    assert params.loop_observer == "smollm2_135m"
    file.write_text(file.read_text().replace("observer: null", "observer: gone"))
    with pytest.raises(InputError, match=r"generate.observer is 'gone', which is not under observers"):
        load_params(file)


def test_published_tails_decide_without_a_reference(tmp_path: Path) -> None:
    write_gaps(tmp_path)
    n = len(STATUS)
    shared = {"concept": np.arange(n), "benchmark": ["__suite__"] * n, "n_items": [1] * n, "n_tokens": [1] * n}
    published = ["typical", "under", "typical", "over", "missing"]
    COVERAGE.write(tmp_path / "coverage/coverage.parquet", shared | {"published_status": published, "chi_bench": [1.0, 0.1, 1.0, 3.0, 0.0]})
    assert gaps_of(tmp_path).counts() == {"under": 1, "unexercised": 1, "model": 1}
