"""The report as a whole: what its files hold, that they are byte-stable, and what odd runs do to it."""

import hashlib
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from made_run import Shape, make_run, setup_for

from gapscope.artifacts import CLUSTERS, COVERAGE, PERFORMANCE, SCORES
from gapscope.competency.activations import read_rows
from gapscope.competency.intervals import Reference, reference
from gapscope.errors import InputError
from gapscope.report.accuracy import accuracy_by_benchmark, read_suite
from gapscope.report.build import PLOTS, write_report
from gapscope.report.inputs import ArtifactPaths
from gapscope.report.style import settle

ROOT = Path(__file__).parents[2]
RESERVED = {"rev", "filename", "field", "step"}
HOSTILE = (
    "$\\frac{1}{0}$ costs $5",
    "unclosed $ dollar",
    "</script><script>alert(1)</script>",
    "new\nline\ttab \x1b[31m\x00",
    "\u202eright to left\u202c",
    "日本語のラベル",
    "مرحبا بالعالم",
    "שלום עולם",
    "a_b^c_{d} \\ % # ~ & < > \" '",
    "x" * 3000,
    "Z" + "\u0351" * 60,
    "\U0001f600",
    "",
    " \u200b ",
)


def digests(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.md5(file.read_bytes()).hexdigest() for file in sorted(directory.iterdir())}


def report(paths: ArtifactPaths, out: Path, **changes) -> Path:
    write_report(paths, out / "data", out / "figures", setup_for(**changes))
    return out


def plots(out: Path) -> dict[str, list[dict]]:
    return {name: json.loads((out / "data" / f"{name}.json").read_text(encoding="utf-8")) for name in PLOTS}


def check_schema(tables: dict[str, list[dict]]) -> None:
    for name, rows in tables.items():
        assert isinstance(rows, list), name
        assert rows, name
        for row in rows:
            assert row.keys() == rows[0].keys(), name
            assert not row.keys() & RESERVED, name
            for key, value in row.items():
                assert value is None or isinstance(value, (str, int, float)), (name, key)
                assert not isinstance(value, float) or math.isfinite(value), (name, key)


def replace_save(monkeypatch, save) -> None:
    from gapscope.report import figures_accuracy, figures_concepts, figures_subject, figures_suite

    for module in (figures_accuracy, figures_concepts, figures_subject, figures_suite):
        monkeypatch.setattr(module, "save", save)


@pytest.fixture
def captions(monkeypatch) -> dict[str, str]:
    """Figures are made but not drawn; what stands below them is kept by name."""
    kept: dict[str, str] = {}
    replace_save(monkeypatch, lambda figure, stem, title, description: kept.setdefault(stem.name, description))
    return kept


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> ArtifactPaths:
    return make_run(tmp_path_factory.mktemp("run"), Shape(observers=("obs", "other"), subjects=("one",), n_concepts=40))


@pytest.fixture(scope="module")
def out(run: ArtifactPaths, tmp_path_factory) -> Path:
    return report(run, tmp_path_factory.mktemp("out"))


def test_every_plot_is_one_list_of_uniform_finite_rows(out: Path) -> None:
    tables = plots(out)
    check_schema(tables)
    assert {path.name for path in (out / "data").iterdir()} == {f"{name}.json" for name in PLOTS}
    for name in ("performance_distribution", "worst_concepts", "coverage_performance"):
        assert {(row["observer"], row["subject"]) for row in tables[name]} == {("obs", "one"), ("other", "one")}


def test_figures_are_whole_and_carry_no_date_version_or_path(out: Path) -> None:
    files = sorted((out / "figures").iterdir())
    assert len(files) == 2 * (1 + 2 * 3 + 2 * 3)
    for file in files:
        data = file.read_bytes()
        if file.suffix == ".svg":
            ElementTree.fromstring(data)
            assert not re.search(rb"\d{4}-\d\d-\d\dT|[Mm]atplotlib v|/home/|/tmp/", data), file.name
        else:
            assert data.startswith(b"\x89PNG")
            assert b"tEXt" not in data
            assert b"tIME" not in data


def test_running_again_gives_the_same_bytes(run: ArtifactPaths, out: Path, tmp_path: Path, captions) -> None:
    again = tmp_path / "again"
    # Another process has another hash seed and draws the figures from nothing.
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = [sys.argv[1], sys.argv[2]];"
        "from made_run import setup_for; from gapscope.report.build import write_report; from gapscope.report.inputs import ArtifactPaths;"
        "paths = [Path(path) for path in sys.argv[4:]];"
        "write_report(ArtifactPaths(*paths), Path(sys.argv[3]) / 'data', Path(sys.argv[3]) / 'figures', setup_for(observers={'obs': 'obs'}, models={'one': 'one'}))"
    )
    artifacts = [str(getattr(run, name)) for name in ("items", "activations", "coverage", "performance", "clusters", "scores")]
    subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(Path(__file__).parent), str(again), *artifacts], check=True, capture_output=True
    )
    assert {file.name for file in (again / "data").iterdir()} == {f"{name}.json" for name in PLOTS}
    assert {name: digest for name, digest in digests(out / "figures").items() if not name.startswith("other-")} == digests(
        again / "figures"
    )
    for name, rows in plots(again).items():
        assert rows == [row for row in plots(out)[name] if row.get("observer") != "other"]
    report(run, tmp_path / "both")
    assert digests(tmp_path / "both/data") == digests(out / "data")


def test_hostile_labels_are_drawn_or_stand_by_number(tmp_path: Path, caplog) -> None:
    paths = make_run(tmp_path / "run", Shape(labels=HOSTILE))
    report(paths, tmp_path / "out", models={"subj": "</script>$x$\n" + "long " * 60})
    tables = plots(tmp_path / "out")
    check_schema(tables)
    assert "<" not in json.dumps(tables)
    assert "\\u001b" not in json.dumps(tables)
    warned = [record for record in caplog.records if "font lacks" in record.message]
    assert len(warned) == 1
    svg = (tmp_path / "out/figures/obs-subj-concepts.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(svg)
    clips = re.findall(r'<clipPath id="([^"]+)"', svg)
    assert clips and clips == [f"clip{number}" for number in range(len(clips))]
    assert set(re.findall(r"url\(#([^)]+)\)", svg)) == set(clips)
    assert "日" not in svg
    assert "costs $5" in svg, "a dollar sign is a dollar sign"


def test_no_text_leaves_its_figure(tmp_path: Path, monkeypatch) -> None:
    """However long names and labels are."""
    from matplotlib.text import Text

    checked, outside = set(), []

    def check(figure, stem, title, description):
        settle(figure)
        frame, undrawn = figure.bbox, undrawn_ticks(figure)
        for text in figure.findobj(Text):
            if text.get_text() and text.get_visible() and text not in undrawn:
                box = text.get_window_extent()
                if box.x0 < -1 or box.y0 < -1 or box.x1 > frame.x1 + 1 or box.y1 > frame.y1 + 1:
                    outside.append((stem.name, text.get_text(), box))
        checked.add(stem.name)

    replace_save(monkeypatch, check)
    paths = make_run(tmp_path / "run", Shape(n_benchmarks=12, n_concepts=200, labels=HOSTILE, subjects=("subj", "b" * 60)))
    report(paths, tmp_path / "out", models={"subj": "S" * 90, "b" * 60: "A rather long name of a model " * 4})
    assert len(checked) == 10
    assert not outside


def undrawn_ticks(figure) -> set:
    """Labels of ticks beyond the ends of their axis, which are not drawn."""
    undrawn = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        undrawn |= {label for tick in ticks if not low <= tick.get_loc() <= high for label in (tick.label1, tick.label2)}
    return undrawn


def test_an_uncalibrated_table_is_ranked_by_chi_model_and_says_so(tmp_path: Path, captions) -> None:
    paths = make_run(tmp_path / "run", Shape(calibrated=False))
    report(paths, tmp_path / "out")
    assert {row["shown"] for row in plots(tmp_path / "out")["worst_concepts"]} == {"chi_model"}
    assert "uncalibrated" in captions["obs-subj-concepts"]


def test_a_run_in_which_nothing_is_defined(tmp_path: Path) -> None:
    shape = Shape(n_benchmarks=1, n_concepts=4, calibrated=False)
    shape.columns["coverage"] = {"chi_bench": np.zeros(8), "chi_bench_unmasked": np.full(8, np.nan)}
    shape.columns["performance"] = {name: np.full(4, np.nan) for name in ("chi_model", "ci_low", "ci_high")}
    paths = make_run(tmp_path / "run", shape)
    report(paths, tmp_path / "out")
    tables = plots(tmp_path / "out")
    check_schema(tables)
    assert tables["worst_concepts"][0]["value"] is None
    assert tables["concept_overlap"][0]["jaccard"] is None
    assert not (tmp_path / "out/figures/obs-concept_overlap.svg").exists(), "one benchmark overlaps with none"
    assert {row["n_concepts"] for row in tables["performance_distribution"]} == {0}
    unmasked = [row for row in tables["missing_by_benchmark"] if row["group"] == "special tokens read"]
    assert {row["missing_share"] for row in unmasked} == {None}


def test_a_benchmark_without_a_scored_item_has_no_accuracy(tmp_path: Path) -> None:
    paths = make_run(tmp_path / "run", Shape())
    file = paths.scores / "subj/scores.parquet"
    table = SCORES.read(file).to_pylist()
    for row in table:
        if row["item_id"].startswith("piqa"):
            row |= {"score": None, "scored": False}
    SCORES.write(file, {name: [row[name] for row in table] for name in table[0]})
    suite = read_suite(paths.items / "items.jsonl", read_rows(paths.activations / "obs"))
    row = next(row for row in accuracy_by_benchmark("subj", file, suite, 0.95) if row["benchmark"] == "piqa")
    assert (row["accuracy"], row["low"], row["high"], row["n"], row["n_unscored"]) == (None, None, None, 0, 40)


def test_an_interval_without_finite_ends_has_none(tmp_path: Path, monkeypatch) -> None:
    """The ends may be undefined where the mean is not."""

    def without_ends(*arguments, **options) -> Reference:
        found = reference(*arguments, **options)
        return replace(found, low=np.full_like(found.low, np.nan), high=np.full_like(found.high, np.inf))

    monkeypatch.setattr("gapscope.report.accuracy.reference", without_ends)
    paths = make_run(tmp_path / "run", Shape())
    suite = read_suite(paths.items / "items.jsonl", read_rows(paths.activations / "obs"))
    row = accuracy_by_benchmark("subj", paths.scores / "subj/scores.parquet", suite, 0.95)[0]
    assert 0 < row["accuracy"] < 1
    assert (row["low"], row["high"]) == (None, None)


def test_accuracy_is_the_plain_mean(run: ArtifactPaths, out: Path) -> None:
    scores = {row["item_id"]: row["score"] for row in SCORES.read(run.scores / "one/scores.parquet").to_pylist() if row["scored"]}
    rows = {row["benchmark"]: row for row in plots(out)["accuracy_by_benchmark"] if row["subject"] == "one"}
    means = {}
    for benchmark in ("piqa", "openbookqa", "commonsenseqa"):
        mine = [score for item, score in scores.items() if item.startswith(benchmark)]
        means[benchmark] = sum(mine) / len(mine)
        assert rows[benchmark]["accuracy"] == pytest.approx(means[benchmark], abs=1e-4)
        assert rows[benchmark]["low"] < rows[benchmark]["accuracy"] < rows[benchmark]["high"]
        assert rows[benchmark]["n"] == len(mine)
    assert rows["(suite)"]["accuracy"] == pytest.approx(sum(means.values()) / 3, abs=1e-4)


def test_65536_concepts_stay_small(tmp_path: Path, captions) -> None:
    paths = make_run(tmp_path / "run", Shape(n_items=1800, n_benchmarks=12, n_concepts=65536))
    report(paths, tmp_path / "out")
    check_schema(plots(tmp_path / "out"))
    assert sum(file.stat().st_size for file in (tmp_path / "out/data").iterdir()) < 200_000


def test_faults_are_named(run: ArtifactPaths, tmp_path: Path, captions) -> None:
    for name, match in (("coverage", "coverage stage"), ("performance", "performance stage"), ("clusters", "no such file")):
        with pytest.raises(InputError, match=match):
            report(replace(run, **{name: tmp_path / "nowhere"}), tmp_path / "out")
        assert not (tmp_path / "out/data").exists()
        assert not (tmp_path / "out/figures").exists()
    with pytest.raises(InputError, match="absent_model"):
        report(run, tmp_path / "out", models={"absent_model": "x"})


def test_a_coverage_table_that_is_not_whole_is_refused(tmp_path: Path, captions) -> None:
    paths = make_run(tmp_path / "run", Shape(n_concepts=4))
    file = paths.coverage / "obs/coverage.parquet"
    table = COVERAGE.read(file)
    COVERAGE.write(file, table.slice(1))
    with pytest.raises(InputError, match="lists other concepts"):
        report(paths, tmp_path / "out")


def test_a_label_of_another_subject_is_used_where_there_is_none_of_its_own(tmp_path: Path) -> None:
    from gapscope.report.inputs import read_labels

    columns = {"concept": [1, 1, 2], "subject": ["a", "b", "b"], "cluster": ["x"] * 3, "label": ["of a", "of b", "two"]}
    CLUSTERS.write(tmp_path / "c.parquet", {**columns, "label_source": ["keywords"] * 3})
    assert {concept: label.text for concept, label in read_labels(tmp_path / "c.parquet", "a").items()} == {1: "of a", 2: "two"}


def test_every_plot_is_declared_and_its_template_renders(out: Path) -> None:
    from dvc_render.vega import VegaRenderer

    stage = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["report"]
    declared = {
        Path(path).stem: props
        for entry in stage["plots"]
        if isinstance(entry, dict)
        for path, props in entry.items()
        if path.endswith(".json")
    }
    assert set(declared) == set(PLOTS)
    for name, rows in plots(out).items():
        props = {key: value for key, value in declared[name].items() if key != "cache"}
        datapoints = [{**row, "rev": "workspace", "filename": name, "field": props["y"]} for row in rows]
        renderer = VegaRenderer(datapoints, name, **props, template_dir=ROOT / ".dvc/plots", revs_with_datapoints=["workspace"])
        spec = json.dumps(renderer.get_filled_template())
        assert "<DVC_METRIC" not in spec, name
        for axis in ("x", "y"):
            assert props[axis] in rows[0], (name, axis)


def test_a_figure_of_nothing_told_from_chance_says_so_in_its_title(tmp_path: Path, monkeypatch) -> None:
    titles = {}
    replace_save(monkeypatch, lambda figure, stem, title, description: titles.setdefault(stem.name, title))
    paths = make_run(tmp_path / "run", Shape(n_concepts=40))
    report(paths, tmp_path / "some")
    assert "none told" not in titles.pop("obs-subj-concepts")
    table = PERFORMANCE.read(file := paths.performance / "obs/subj.parquet").to_pydict()
    table["status"] = ["typical" if status in ("gap", "strength") else status for status in table["status"]]
    PERFORMANCE.write(file, table)
    report(paths, tmp_path / "none")
    assert titles["obs-subj-concepts"].endswith("(none told from chance)")
