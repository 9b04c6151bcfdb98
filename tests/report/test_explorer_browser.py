"""The explorer in a real Chromium, from disk and offline: every view, by mouse and keyboard, with zero console messages.

Skipped where there is no Chromium (Debian: apt-get install chromium), or playwright is not installed.
"""

import csv
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
from made_explorer import about_for, make_explorer_run
from made_run import Shape
from test_explorer_data import ATTACKS

from gapscope.report.explorer.build import write_explorer

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
from bench.chromium import CHROMIUM, QUIET  # noqa: E402

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")

VIEWS = ("overview", "concepts", "concept/3", "benchmarks", "clusters", "compare", "robustness", "validity", "about")
SHAPE = Shape(subjects=("one", "two"), n_concepts=120, n_items=90, n_benchmarks=4)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("made")
    write_explorer(root / "explorer.html", make_explorer_run(root, SHAPE), about_for(SHAPE))
    return root / "explorer.html"


class Tab:
    """A page that keeps what the console says."""

    def __init__(self, browser, file: Path, **options) -> None:
        self.context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 850}, **options})
        self.page = self.context.new_page()
        self.file, self.said = file, []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()))

    def open(self, address: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.file.as_uri()}#/{address}")
        self.page.wait_for_selector("body[data-ready]", state="attached")


@pytest.fixture
def tab(browser, made):
    opened = Tab(browser, made)
    yield opened
    opened.context.close()
    assert opened.said == []


def default_run() -> Path:
    found = Path(os.environ.get("GAPSCOPE_EXPLORER", ROOT / "plots/explorer.html"))
    if not found.exists():
        pytest.skip("no plots/explorer.html: dvc repro makes it")
    return found


@pytest.mark.parametrize("which", ["made", "default"])
def test_every_view_draws_without_a_word_in_the_console(browser, made, which: str) -> None:
    tab = Tab(browser, made if which == "made" else default_run())
    for view in VIEWS:
        tab.open(view)
        assert tab.page.locator("main h1").count() == 1, view
        text = tab.page.inner_text("main")
        assert "could not be drawn" not in text, view
        assert not any(word in text for word in ("[object", "undefined to", "NaN", "Infinity")), view
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} scrolls sideways"
    tab.context.close()
    assert tab.said == []


def test_search_sort_and_filters_move_the_table_and_the_address(tab) -> None:
    tab.open("concepts?n=0")
    page = tab.page
    assert "120 of 120 concepts" in page.inner_text("main")
    page.fill("#search", "#17")
    page.wait_for_timeout(400)
    assert "1 of 120 concepts" in page.inner_text("main")
    assert "q=%2317" in page.url
    tab.open("concepts?n=0")
    page.click(".slick-header-column[data-id=n_eff]")
    first = page.locator(".slick-row .slick-cell.l6")
    up = [text.replace(",", "") for text in first.all_inner_texts()[:5]]
    assert up == sorted(up, key=lambda text: float("inf") if text == "—" else float(text))
    assert "sort=n_eff" in page.url
    page.click(".slick-header-column[data-id=adjusted]")
    page.keyboard.press("Control+End")
    page.reload()
    page.wait_for_selector(".slick-row")
    page.select_option("label:has-text('Status') select", "undefined")
    assert "status=undefined" in page.url
    assert set(page.locator(".slick-row .status").all_inner_texts()) <= {"undefined"}
    assert "—" in page.locator(".slick-row").first.inner_text()


def test_null_is_a_dash_and_comes_last_in_both_directions(tab) -> None:
    for sort in ("adjusted", "-adjusted"):
        tab.open(f"concepts?n=0&sort={sort}")
        shown = tab.page.evaluate("document.querySelectorAll('.slick-row')[0].querySelectorAll('.slick-cell')[3].textContent")
        assert shown != "—"
        tab.page.evaluate("document.querySelector('.slick-viewport').scrollTop = 1e9")
        tab.page.wait_for_timeout(300)
        last = tab.page.evaluate(
            "[...document.querySelectorAll('.slick-row')].sort((a, b) => b.getBoundingClientRect().top - a.getBoundingClientRect().top)[0].querySelectorAll('.slick-cell')[3].textContent"
        )
        assert last == "—"


def test_keyboard_alone_reaches_a_question(tab) -> None:
    tab.open("concepts")
    page = tab.page
    page.focus("#search")
    page.keyboard.type("energy")
    page.wait_for_timeout(200)
    page.locator(".grid [tabindex='0']").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("body[data-ready=concept]", state="attached")
    assert page.evaluate("document.activeElement.tagName") == "H1", "the heading of a new view has the focus"
    page.go_back()
    page.wait_for_selector("body[data-ready=concepts]", state="attached")
    assert page.input_value("#search") == "energy", "the way back shows what was filtered"


def test_brush_keeps_a_range(tab) -> None:
    tab.open("concepts?n=0")
    page = tab.page
    page.wait_for_timeout(400)
    box = page.locator(".chart").nth(1).bounding_box()
    page.mouse.move(box["x"] + 120, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 80, steps=6)
    page.mouse.up()
    page.wait_for_selector(".chip")
    assert "perf=" in page.url
    few = int(page.inner_text(".said[role=status]").split()[0])
    assert 0 <= few < 120
    page.click(".chip")
    assert "120 of 120" in page.inner_text("main")


def test_concept_page_shows_question_gold_and_answers(tab) -> None:
    tab.open("concept/3")
    page = tab.page
    assert page.locator("mark.peak").count() == 3
    assert page.locator(".legend").count() == 1
    page.locator(".window summary").first.click()
    question = page.locator(".question").first
    assert question.locator("li.gold").count() == 1
    assert "chosen by Model one (Q4_1)" in question.inner_text()
    assert "reference corpus" in page.inner_text(".windows")


def test_export_holds_the_filtered_rows(tab) -> None:
    tab.open("concepts?n=0&status=typical")
    page = tab.page
    shown = int(page.inner_text(".said[role=status]").split()[0])
    with page.expect_download() as found:
        page.click("button:text('CSV')")
    rows = list(csv.DictReader(io.StringIO(found.value.path().read_text(encoding="utf-8"))))
    assert len(rows) == shown
    assert {row["status"] for row in rows} == {"typical"}
    with page.expect_download() as found:
        page.click("button:text('JSON')")
    listed = json.loads(found.value.path().read_text(encoding="utf-8"))
    assert [str(row["concept"]) for row in listed] == [row["concept"] for row in rows]
    assert all(row["adjusted"] is None or abs(row["adjusted"]) < 2 for row in listed)


def test_variants_stand_beside_their_questions(tab) -> None:
    tab.open("robustness")
    page = tab.page
    assert page.locator(".pair").count() == 6
    assert page.locator(".pair").first.locator("del").first.inner_text() == "energy"
    assert page.locator(".pair").first.locator("ins").first.inner_text() == "heat"
    page.select_option("label:has-text('Type') select", "critical_testing")
    assert page.locator(".pair").count() == 3
    assert "could not be read as a question" in page.inner_text("main")


def test_comparison_keeps_the_significant(tab) -> None:
    tab.open("compare?kind=any")
    statuses = set(tab.page.locator(".slick-row .status").all_inner_texts())
    assert statuses
    assert statuses <= {"▲ ahead", "▼ behind"}


def test_attacks_are_shown_and_do_nothing(browser, tmp_path) -> None:
    shape = Shape(n_concepts=12, n_items=30, n_benchmarks=2, subjects=("one", "two"), labels=ATTACKS)
    write_explorer(tmp_path / "e.html", make_explorer_run(tmp_path, shape, ATTACKS), about_for(shape, ATTACKS))
    tab = Tab(browser, tmp_path / "e.html")
    for view in (*VIEWS, "concept/%3Cimg%20src=x%20onerror=alert(1)%3E", "concepts?q=%3Cscript%3Ealert(1)%3C/script%3E", "<b>x"):
        tab.open(view)
        tab.page.evaluate("document.querySelectorAll('main details').forEach((details) => { details.open = true; })")
        assert tab.page.locator("main img, main script, main iframe, main b:text('x')").count() == 0, view
    tab.open("concept/3")
    assert "</script><script>alert(1)</script>" in tab.page.inner_text("main").replace("\n", "") or "<img src=x" in tab.page.inner_text(
        "main"
    )
    with tab.page.expect_download() as found:
        tab.open("concepts?n=0")
        tab.page.click("button:text('CSV')")
    labels = [row["label"] for row in csv.DictReader(io.StringIO(found.value.path().read_text(encoding="utf-8")))]
    assert not any(label.startswith(("=", "+", "-", "@")) for label in labels), "a spreadsheet would run these"
    tab.context.close()
    assert tab.said == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, made, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab = Tab(browser, made, color_scheme=theme)
    for view in VIEWS:
        tab.open(view)
        found = axe.run(tab.page).response["violations"]
        serious = [
            (rule["id"], [node["html"][:120] for node in rule["nodes"]][:3]) for rule in found if rule["impact"] in ("serious", "critical")
        ]
        assert not serious, view
    tab.context.close()


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_hold_every_view(browser, made, width: int) -> None:
    tab = Tab(browser, made, viewport={"width": width, "height": 740})
    for view in VIEWS:
        tab.open(view)
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    tab.context.close()
    assert tab.said == []


@pytest.mark.parametrize("view", VIEWS)
def test_the_open_tab_is_in_sight_on_a_phone(browser, made, view: str) -> None:
    tab = Tab(browser, made, viewport={"width": 360, "height": 740})
    tab.open(view)
    place = tab.page.locator(".tabs [aria-current]").bounding_box()
    tab.context.close()
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= 360


def test_what_rounds_to_zero_has_no_sign(tab) -> None:
    for view in ("validity", "overview", "robustness", "concept/3", "clusters"):
        tab.open(view)
        assert not re.search(r"[−+-]0(\.0+)?(?![\d.])", tab.page.inner_text("main")), view
    tab.open("validity")
    cells = tab.page.locator("tr:has-text('SAE concepts') td").all_inner_texts()
    assert cells[3] == cells[7] == "0.00", "lowest +0.002 and r of items -0.001"


def test_names_stand_as_they_are_given(tab) -> None:
    for view in VIEWS:
        tab.open(view)
        assert "Q4 1" not in tab.page.inner_text("main"), view
    tab.open("robustness")
    assert "Model one (Q4_1), shown the choices alone" in tab.page.inner_text("main")


def test_verdicts_are_told_in_words(tab) -> None:
    tab.open("robustness")
    text = tab.page.inner_text("main")
    assert "the verifier sees a fault in label, one answer" in text
    assert not re.search(r"\b(tc|lc|au)\b", text)
    assert all(told in text for told in ("Type (TC): it is", "Label (LC): the marked", "One answer (AU): exactly"))


def test_two_kinds_of_planted_precision_are_told_apart(tab) -> None:
    tab.open("validity")
    text = tab.page.inner_text("main")
    assert re.search(r"“Truly does worse” counts .*: 94\.4%\.", text)
    assert re.search(r"“Itself planted” counts .*: 70\.9%\.", text)
    assert "named, itself planted" in text


def test_agreement_within_chance_leads_nothing(browser, tmp_path) -> None:
    paths = make_explorer_run(tmp_path, SHAPE)
    metrics = json.loads(paths.validity.read_text(encoding="utf-8"))
    for entry in metrics["controls"].values():
        entry["concepts"] |= {"r": 0.05, "r_chance": 0.08}
        entry["random"] |= {"r": -0.04, "r_chance": 0.09}
    paths.validity.write_text(json.dumps(metrics), encoding="utf-8")
    write_explorer(tmp_path / "e.html", paths, about_for(SHAPE))
    tab = Tab(browser, tmp_path / "e.html")
    tab.open("validity")
    last = tab.page.locator("article.judged").last.inner_text()
    tab.context.close()
    assert "poor" in last.split("\n")[0]
    assert "not told from chance, so they lead nothing" in last


def test_tab_goes_through_a_table_and_out_of_it(tab) -> None:
    tab.open("compare")
    page = tab.page
    page.locator("button:text('CSV')").focus()
    inside, last = [], ""
    for _ in range(30):
        page.keyboard.press("Tab")
        last = page.evaluate("document.activeElement.closest('.grid') ? 'grid' : document.activeElement.tagName")
        if last != "grid":
            break
        inside.append(page.evaluate("document.activeElement.getAttribute('aria-sort')"))
    assert last == "SUMMARY", "what follows the table"
    assert sum(sort is not None for sort in inside) > 5, "heads of columns can be reached"
