"""The explorer's file: what is in it, that it is byte-stable, and that no text of others can get out of its data."""

import base64
import hashlib
import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_explorer import about_for, coverage_of, make_explorer_run, read_block
from made_run import Shape, setup_for

from gapscope.artifacts import CONTEXTS, COVERAGE, PERFORMANCE, SUITE
from gapscope.errors import InputError
from gapscope.files import read_jsonl
from gapscope.report.build import write_report
from gapscope.report.explorer.blocks import Block
from gapscope.report.explorer.build import write_explorer
from gapscope.report.explorer.contexts import _within_budget
from gapscope.report.explorer.neuronpedia import neuronpedia_page
from gapscope.report.explorer.page import with_commit
from gapscope.report.explorer.sources import ExplorerPaths
from gapscope.report.markdown import _examples, escape, write_markdown
from gapscope.variants.off import write_off

SHAPE = Shape(subjects=("one", "two"), n_concepts=30, n_items=60)
ATTACKS = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- --> ]]> \u2028 ' \" & \\",
    "=cmd|'/c calc'!A1",
    "javascript:alert(1)",
    "\u202eevil 日本語 \U0001f600",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> ExplorerPaths:
    return make_explorer_run(tmp_path_factory.mktemp("run"), SHAPE)


@pytest.fixture(scope="module")
def page(run: ExplorerPaths, tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("page") / "explorer.html"
    assert write_explorer(file, run, about_for(SHAPE))["kib_explorer"] == file.stat().st_size // 1024
    return file.read_text(encoding="utf-8")


def meta_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="meta">(.*?)</script>', page, re.DOTALL).group(1))


def test_block_numbers_come_back_to_four_digits() -> None:
    block = Block()
    values = np.array([0.0, 1e-9, 0.4709537, 1234.5, np.nan])
    block.log("log", values)
    block.linear("linear", np.array([-0.39, 0.0, 0.6123, np.nan, 1.0]))
    block.counts("counts", np.array([0, 255, 256, 70000, 3]))
    block.codes("codes", ["b", None, "a", "", "b"])
    header, columns = read_block(f'<script id="block-x">{block.encode()}</script>', "x")
    assert columns["log"][:4] == pytest.approx(values[:4], rel=3e-4)
    assert np.isnan(columns["log"][4])
    assert columns["linear"][[0, 1, 2, 4]] == pytest.approx([-0.39, 0.0, 0.6123, 1.0], abs=2.2e-5)
    assert np.isnan(columns["linear"][3])
    assert columns["counts"].tolist() == [0, 255, 256, 70000, 3]
    assert header["columns"]["codes"]["names"] == ["", "a", "b"]
    assert columns["codes"].tolist() == [2, 0, 1, 0, 2]


def test_block_of_nothing_defined_or_one_value() -> None:
    block = Block()
    block.linear("none", np.array([np.nan, np.nan]))
    block.log("same", np.array([5.0, 5.0]))
    _header, columns = read_block(f'<i id="block-x">{block.encode()}</i>', "x")
    assert np.isnan(columns["none"]).all()
    assert columns["same"] == pytest.approx([5, 5])


def test_page_holds_what_the_tables_hold(run: ExplorerPaths, page: str) -> None:
    _header, concepts = read_block(page, "concepts-obs")
    _header, cells = read_block(page, "cells-obs")
    wanted = coverage_of(run.artifacts.coverage / "obs/coverage.parquet")
    slugs = [entry["slug"] for entry in meta_of(page)["benchmarks"]]
    assert concepts["coverage"] == pytest.approx([wanted[SUITE, k] for k in range(30)], rel=5e-4)
    assert cells["coverage"] == pytest.approx([wanted[slug, k] for slug in slugs for k in range(30)], rel=5e-4)
    _header, whole = read_block(page, "performance-obs-one")
    rows = {
        row["concept"]: row
        for row in PERFORMANCE.read(run.artifacts.performance / "obs/one.parquet").to_pylist()
        if row["benchmark"] == SUITE
    }
    for name in ("chi_model", "adjusted", "n_eff", "q"):
        expected = [np.nan if rows[k][name] is None else rows[k][name] for k in range(30)]
        assert whole[name] == pytest.approx(expected, abs=2e-3, rel=1e-3, nan_ok=True), name


def test_contexts_carry_the_active_pieces_and_reference_windows_their_text(run: ExplorerPaths, page: str) -> None:
    header, found = read_block(page, "contexts-obs")
    items, _columns = read_block(page, "items")
    table = {(row["concept"], row["group"]): row for row in CONTEXTS.read(run.artifacts.activations / "obs/contexts.parquet").to_pylist()}
    known, at = meta_of(page)["observers"]["obs"]["items"], 0
    for k, concept in enumerate(found["concept"].tolist()):
        group = header["values"]["groups"][found["group"][k]]
        row = table[concept, group]
        of_item = found["item"][k] < len(known)
        assert of_item == (group != "reference")
        text = items["values"]["text"][known[found["item"][k]]] if of_item else header["values"]["texts"][found["item"][k] - len(known)]
        start = found["start"][k]
        shown = [text[start + found["offset"][j] :][: found["width"][j]] for j in range(at, at + found["n_active"][k])]
        assert shown == [piece for piece, value in zip(row["tokens"], row["activations"], strict=True) if value > 0]
        at += int(found["n_active"][k])
    assert at == len(found["activation"])


def test_same_inputs_same_bytes_and_another_input_another_digest(run: ExplorerPaths, page: str, tmp_path: Path) -> None:
    write_explorer(tmp_path / "again.html", run, about_for(SHAPE))
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page
    assert not re.search(r"/tmp/|/home/|\b20\d\d-\d\d-\d\dT", page)
    before = run.digest()
    extra = run.artifacts.items / "extra.txt"
    extra.write_text("x")
    assert run.digest() != before
    extra.unlink()


def test_policy_lets_in_nothing_but_the_page_itself(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page).group(1)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert "http" not in policy
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(script) == 1
    assert rules["script-src"] == "'sha256-" + base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode() + "'"
    assert not re.search(r"<(link|script|img)[^>]*\b(src|href)=\"(?!data:,)", page.split("<body")[0])


def test_attacks_stay_data(tmp_path: Path) -> None:
    shape = Shape(n_concepts=12, n_items=30, labels=ATTACKS)
    run = make_explorer_run(tmp_path / "run", shape, ATTACKS)
    write_explorer(tmp_path / "e.html", run, about_for(shape, ATTACKS))
    page = (tmp_path / "e.html").read_text(encoding="utf-8")
    assert (
        "alert(1)"
        not in re.sub(r'<script type="application/(json|octet-stream)".*?</script>', "", page, flags=re.DOTALL)
        .replace("&lt;", "<")
        .split("<title>")[0]
    )
    head = page.split("<body")[0]
    assert "<img" not in head
    assert page.count("</script>") == page.count("<script")
    items, _columns = read_block(page, "items")
    texts = [row["text"] for _line, row in read_jsonl(run.artifacts.items / "items.jsonl")]
    assert set(items["values"]["text"]) <= set(texts), "texts are held as they are, and shown as text"


def test_parts_that_a_run_lacks_are_named(run: ExplorerPaths, tmp_path: Path) -> None:
    bare = ExplorerPaths(run.artifacts, run.sae)
    write_explorer(tmp_path / "e.html", bare, about_for(SHAPE))
    meta = meta_of((tmp_path / "e.html").read_text(encoding="utf-8"))
    assert "not been run" in meta["robustness"]["absent"]
    assert "not been run" in meta["validity"]["absent"]
    assert meta["observers"]["obs"]["changes"] == []


def test_variants_switched_off_say_why(run: ExplorerPaths, tmp_path: Path) -> None:
    # As the stages leave them: a directory with the reason and nothing else.
    write_off(tmp_path / "variants", tmp_path / "robustness")
    paths = ExplorerPaths(run.artifacts, run.sae, variants=tmp_path / "variants", robustness=tmp_path / "robustness")
    write_explorer(tmp_path / "e.html", paths, about_for(SHAPE))
    assert "variants.enabled" in meta_of((tmp_path / "e.html").read_text(encoding="utf-8"))["robustness"]["absent"]
    write_markdown(tmp_path / "report.md", paths, about_for(SHAPE))
    assert "variants.enabled" in (tmp_path / "report.md").read_text(encoding="utf-8").split("## Robustness")[1]


def test_tables_of_another_run_are_refused(run: ExplorerPaths, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run.artifacts.performance, tmp_path / "performance")
    file = tmp_path / "performance/obs/one.parquet"
    table = PERFORMANCE.read(file).to_pydict()
    table["concept"] = [number + 1000 for number in table["concept"]]
    PERFORMANCE.write(file, table)
    paths = ExplorerPaths(replace(run.artifacts, performance=tmp_path / "performance"), run.sae)
    with pytest.raises(InputError, match="does not hold"):
        write_explorer(tmp_path / "e.html", paths, about_for(SHAPE))
    assert not (tmp_path / "e.html").exists()


def test_budget_keeps_the_first_contexts(monkeypatch) -> None:
    import pyarrow as pa

    import gapscope.report.explorer.contexts as module

    monkeypatch.setattr(module, "MAX_CHARACTERS", 25)
    table = pa.table({"item_id": ["a", "b", "c", "a"]})
    # In the order 3, 1, 2, 0 item a (10 characters) comes first, then b (10) fits, c (10) does not.
    assert _within_budget(table, np.array([3, 1, 2, 0]), {"a": 10, "b": 10, "c": 10}).tolist() == [3, 1, 0]


def test_commit_is_added_when_opened(page: str) -> None:
    assert meta_of(with_commit(page, 'abc"</script>'))["commit"] == 'abc"</script>'
    assert with_commit(page, None) == page


def test_neuronpedia_knows_registered_saes_only() -> None:
    if importlib.util.find_spec("sae_lens") is None:
        pytest.skip("SAELens is not installed")
    assert neuronpedia_page("gpt2-small-res-jb", "blocks.8.hook_resid_pre") == "https://www.neuronpedia.org/gpt2-small/8-res-jb"
    assert neuronpedia_page("gpt2-small-res-jb", "no such") is None
    assert neuronpedia_page("no such", "x") is None


def test_written_report_names_findings_and_examples(run: ExplorerPaths, tmp_path: Path) -> None:
    write_markdown(tmp_path / "r.md", run, about_for(SHAPE))
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert text.count("## Concepts of Model") == 2
    assert "| Model one (Q4\\_1) | all | 6 | 6 | 50.0% (20.0% to 80.0%)" in text
    assert "- Model one (Q4\\_1): loss +50.0 (+20.0 to +80.0) points on 6 variants of 6 families: a fall." in text
    assert "![Worst and best concepts of Model one (Q4\\_1), read by obs](figures/obs-one-concepts.svg)" in text
    assert "give something away" not in text, "0.35 (0.2 to 0.5) is not told from a third"
    assert "How each number was made" in text
    assert re.search(r"Question \*\*\d", text), "the peak of an example is bold"
    write_markdown(tmp_path / "again.md", run, about_for(SHAPE))
    assert (tmp_path / "again.md").read_bytes() == (tmp_path / "r.md").read_bytes()


def test_written_report_names_dead_concepts_trust_and_shortcuts(tmp_path: Path) -> None:
    shape = Shape(n_concepts=30, n_items=60)
    paths = make_explorer_run(tmp_path / "run", shape)
    table = COVERAGE.read(file := paths.artifacts.coverage / "obs/coverage.parquet").to_pydict()
    table["status"] = ["dead" if concept < 2 else status for concept, status in zip(table["concept"], table["status"], strict=True)]
    COVERAGE.write(file, table)
    quality = json.loads((paths.robustness / "quality.json").read_text(encoding="utf-8"))
    quality["subsets"]["all"]["shortcuts"]["longest"] |= {"accuracy": 0.615, "low": 0.51, "high": 0.71}
    (paths.robustness / "quality.json").write_text(json.dumps(quality), encoding="utf-8")
    controls = {"obs": {"concepts": {"r": -0.03, "r_chance": 0.08}, "random": {"r": -0.001, "r_chance": 0.08}}}
    paths.validity.write_text(json.dumps({"controls": controls}), encoding="utf-8")
    write_markdown(tmp_path / "r.md", paths, replace(about_for(shape), observers={"obs": "Mister - 7B"}))
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "- Mister - 7B: effects of concepts" in text
    assert "of random directions on two halves of the items: r 0.00, not told" in text
    assert "; 2 of the dictionary are dead" in text
    assert "r −0.03, not told from chance (shuffled scores reach 0.08)" in text
    assert "- Taking the longest choice is right in 61.5% (51.0% to 71.0%) of 6 variants, a blind guess in 33.3%." in text


def test_an_example_whose_peak_is_an_empty_token_stands(tmp_path: Path) -> None:
    rows = {
        "concept": [3],
        "group": ["top"],
        "rank": [0],
        "item_id": ["a"],
        "tokens": [["one ", "", " two"]],
        "activations": [[0.0, 2.0, 0.0]],
        "start": [0],
        "end": [8],
    }
    CONTEXTS.write(file := tmp_path / "contexts.parquet", rows)
    assert _examples(file, [3]) == {3: "one two"}


def test_text_of_others_does_nothing_in_markdown() -> None:
    assert escape("<b>*x*</b> | [a](javascript:x)\n# y") == r"&lt;b\>\*x\*&lt;/b\> \| \[a\](javascript:x) \# y"
    assert escape("$5 and $6") == r"\$5 and \$6", "no formula"
    assert escape("see https://evil.example") == "see https&#8203;://evil.example"


def test_every_figure_that_the_written_report_shows_is_drawn(tmp_path: Path) -> None:
    for n_benchmarks in (1, 2):
        shape = Shape(n_concepts=12, n_items=30, n_benchmarks=n_benchmarks)
        place = tmp_path / str(n_benchmarks)
        paths = make_explorer_run(place / "run", shape)
        write_markdown(place / "report.md", paths, about_for(shape))
        write_report(paths.artifacts, place / "data", place / "figures", setup_for())
        text = (place / "report.md").read_text(encoding="utf-8")
        shown = re.findall(r"\]\((figures/[^)]+)\)", text)
        assert sorted(shown) == sorted(path.relative_to(place).as_posix() for path in (place / "figures").glob("*.svg"))
        assert f"items in {n_benchmarks} benchmark{'s' * (n_benchmarks > 1)};" in text
