"""The explorer where little is defined, where its address is garbage, and where two subjects are set side by side."""

from pathlib import Path

import numpy as np
import pytest
from made_explorer import about_for, make_explorer_run, read_block
from made_run import Shape
from test_explorer_browser import CHROMIUM, ROOT, SHAPE, VIEWS, Tab, browser, made

from gapscope.artifacts import PERFORMANCE, SCORES
from gapscope.report.explorer.build import write_explorer
from gapscope.report.extremes import rank_extremes
from gapscope.report.inputs import read_performance

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")
__all__ = ["browser", "made"]

NASTY = ("W" * 3000, "\u0001\u001b[31m\u2066\u2067\u202e ${alert(1)} {{7*7}}", "</script><img src=x onerror=alert(1)>")
UNDEFINED = ("chi_model", "ci_low", "ci_high", "adjusted", "adjusted_low", "adjusted_high", "shrunk", "p", "q")
GARBAGE = (
    *("constructor", "__proto__", "%", "%E0%A4%A", "?", "/?=&=&", "concept", "concept/", "concept/-1", "concept/1e99", "concept/0x3"),
    "concepts?sort=status_names&status=toString&coverage=x&n=abc&maxq=NaN&cov=1~&perf=~&b=constructor&q=%00",
    "concepts?n=1e999&maxq=-1e999&cov=9~-9&cluster=__proto__&o=__proto__&s=constructor",
    "compare?pair=length&sort=__proto__&kind=x",
    "compare?pair=free&first=one&second=one&sort=-q",
    "benchmarks?miss=constructor&overlap=toString",
    "clusters?kind=__proto__",
    "concept/3?group=x&verdict=x",
    "robustness?type=x&answers=x&reason=__proto__",
)


def emptied(root: Path, shape: Shape) -> Path:
    """A run in which one item was scored (with none the stages refuse it): every other number of a subject is null."""
    paths = make_explorer_run(root, shape)
    for subject in shape.subjects:
        file = paths.artifacts.scores / subject / "scores.parquet"
        scores = SCORES.read(file).to_pydict()
        n = len(scores["item_id"])
        SCORES.write(file, {**scores, "score": [1.0] + [None] * (n - 1), "prediction": [None] * n, "scored": [True] + [False] * (n - 1)})
        file = paths.artifacts.performance / "obs" / f"{subject}.parquet"
        table = PERFORMANCE.read(file).to_pydict()
        n = len(table["concept"])
        nothing = dict.fromkeys(UNDEFINED, [None] * n) | {"n": [0] * n, "n_eff": [0.0] * n, "status": ["undefined"] * n}
        PERFORMANCE.write(file, {**table, **nothing, "finding": [None] * n})
    write_explorer(root / "e.html", paths, about_for(shape))
    return root / "e.html"


@pytest.mark.parametrize(
    "shape",
    [Shape(n_concepts=1, n_items=3, n_benchmarks=1), Shape(n_concepts=9, n_items=12, n_benchmarks=2, subjects=("one", "two"))],
    ids=["one concept", "two subjects"],
)
def test_a_run_in_which_next_to_nothing_is_defined_draws_every_view(browser, tmp_path, shape: Shape) -> None:
    tab = Tab(browser, emptied(tmp_path, shape))
    for view in (*VIEWS, "concept/0", "compare?pair=free", "concepts?n=0&sort=-status"):
        tab.open(view)
        text = tab.page.inner_text("main")
        assert "could not be drawn" not in text, view
        assert not any(word in text for word in ("[object", "NaN", "Infinity", "undefined%", "null")), view
    tab.open("concepts?n=0")
    assert f"{shape.n_concepts} of {shape.n_concepts} concepts; ▼ 0 gaps" in tab.page.inner_text("main")
    tab.context.close()
    assert tab.said == []


def test_small_numbers_keep_two_digits_and_their_size(browser) -> None:
    """Coverage of 99.64 is 100, not 1.0: with two digits it has an exponent, which must not be cut off."""
    source = (ROOT / "gapscope/report/explorer/source/src/dom.js").read_text(encoding="utf-8").replace("export ", "")
    page = browser.new_page()
    told = page.evaluate(f"{source}; [0, 0.00003, 0.0042, 0.0126, 1, 9.96, 99.4, 99.5, 99.64, 1234.5, NaN].map(small)")
    page.close()
    assert told == ["0", "<0.0001", "0.004", "0.013", "1.0", "10", "99", "100", "100", "1,235", "—"]


def test_addresses_that_are_garbage_show_a_view_and_say_nothing(browser, made) -> None:
    tab = Tab(browser, made)
    for address in GARBAGE:
        tab.open(address)
        assert tab.page.locator("main h1").count() == 1, address
        assert "could not be drawn" not in tab.page.inner_text("main"), address
    tab.open("concept/")
    assert "No such concept" in tab.page.inner_text("main")
    tab.context.close()
    assert tab.said == []


def test_endless_words_and_hidden_characters_keep_the_page_in_its_width(browser, tmp_path) -> None:
    shape = Shape(n_concepts=6, n_items=12, n_benchmarks=2, subjects=("one", "two"), labels=NASTY)
    write_explorer(tmp_path / "e.html", make_explorer_run(tmp_path, shape, NASTY), about_for(shape, NASTY))
    tab = Tab(browser, tmp_path / "e.html", viewport={"width": 360, "height": 740})
    for view in VIEWS:
        tab.open(view)
        tab.page.evaluate("document.querySelectorAll('main details').forEach((details) => { details.open = true; })")
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert tab.page.locator("main img, main script").count() == 0, view
    tab.context.close()
    assert tab.said == []


def test_overview_and_table_begin_with_the_report_s_order(browser, tmp_path) -> None:
    paths = make_explorer_run(tmp_path, SHAPE)
    write_explorer(tmp_path / "e.html", paths, about_for(SHAPE))
    performance = read_performance(paths.artifacts.performance / "obs/one.parquet")
    tab = Tab(browser, tmp_path / "e.html")
    for end, sort in (("worst", "status"), ("best", "-status")):
        ranked = getattr(rank_extremes(performance, {}, set(), 120, 20.0, 6), end)
        expected = [f"#{extreme.concept}" for extreme in ranked if extreme.status in ("gap", "strength")]
        tab.open("overview")
        card = tab.page.locator(".card").nth(0 if end == "worst" else 1)
        assert [text.split(":")[0] for text in card.locator("ol a").all_inner_texts()] == expected
        tab.open(f"concepts?sort={sort}" if end == "best" else "concepts")
        assert tab.page.locator(".slick-row .slick-cell.l0").first.inner_text() == expected[0]
    tab.context.close()
    assert tab.said == []


def test_any_two_subjects_are_set_apart_by_their_own_intervals(browser, made) -> None:
    page = made.read_text(encoding="utf-8")
    _header, one = read_block(page, "performance-obs-one")
    _header, two = read_block(page, "performance-obs-two")
    supported = np.minimum(one["n_eff"], two["n_eff"]) >= 20
    better = supported & (two["adjusted_low"] > one["adjusted_high"])
    worse = supported & (two["adjusted_high"] < one["adjusted_low"])
    assert better.any()
    tab = Tab(browser, made)
    tab.open("compare?pair=free&first=one&second=two&kind=apart&sort=-relative")
    text = tab.page.inner_text("main")
    assert f"better on {better.sum()}, Model one (Q4_1)" in text
    assert f"{better.sum() + worse.sum()} of 120 concepts" in text
    highest = np.flatnonzero(better)[np.argmax((two["adjusted"] - one["adjusted"])[better])]
    assert tab.page.locator(".slick-row .slick-cell.l0").first.inner_text() == f"#{highest}"
    tab.context.close()
    assert tab.said == []
