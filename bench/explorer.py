"""How large the explorer's file is and how fast it answers, in a headless Chromium, on a run or on a made-up large one.

    python -m bench.explorer plots/explorer.html
    python -m bench.explorer --concepts 65536 --benchmarks 12 --items 6000

Needs playwright and a Chromium on PATH. Times are medians of what the page itself measures: from a key or a scroll to the next frame.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.chromium import CHROMIUM, QUIET

ROOT = Path(__file__).parents[1]
MAKE = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests/report"]
from made_explorer import about_for, make_explorer_run
from made_run import Shape
from gapscope.report.explorer.build import write_explorer
concepts, benchmarks, items = (int(number) for number in sys.argv[3:])
root = Path(sys.argv[2])
shape = Shape(n_concepts=concepts, n_benchmarks=benchmarks, n_items=items)
write_explorer(root / "explorer.html", make_explorer_run(root, shape), about_for(shape))
"""
TYPE = """async (text) => {
  const field = document.getElementById("search"), start = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input"));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""
SCROLL = """async (share) => {
  const view = [...document.querySelectorAll(".slick-viewport")].find((element) => element.scrollHeight > element.clientHeight + 1);
  const start = performance.now();
  view.scrollTop = share * view.scrollHeight;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""


def measure(file: Path) -> dict[str, Any]:
    """Size of the file; seconds until a view stands; milliseconds to search and to scroll."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        seconds = {}
        for view in ("overview", "concepts?n=0", "concept/3", "benchmarks"):
            page.goto("about:blank")
            start = time.perf_counter()
            page.goto(f"{file.resolve().as_uri()}#/{view}")
            page.wait_for_selector("body[data-ready]", state="attached")
            seconds[view] = round(time.perf_counter() - start, 2)
        page.goto("about:blank")
        page.goto(f"{file.resolve().as_uri()}#/concepts?n=0")
        page.wait_for_selector(".slick-row")
        page.wait_for_timeout(1000)
        search = [page.evaluate(TYPE, text) for text in ("e", "en", "ene", "energy", "energy wa", "energy water", "12", "", "river")]
        page.evaluate(TYPE, "")
        scroll = [page.evaluate(SCROLL, share) for share in (0.1, 0.5, 0.9, 0.3, 0.99, 0.01, 0.6)]
        browser.close()
    times = {
        name: {"median": round(statistics.median(found)), "worst": round(max(found))}
        for name, found in (("search_ms", search), ("scroll_ms", scroll))
    }
    return {"mib": round(file.stat().st_size / 2**20, 2), "seconds_to_open": seconds, **times}


def main() -> None:
    """Measure the named file, or a made-up run's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="an explorer.html")
    for name, number in (("concepts", 65536), ("benchmarks", 12), ("items", 6000)):
        parser.add_argument(f"--{name}", type=int, default=number)
    given = parser.parse_args()
    if given.file is not None:
        print(json.dumps(measure(given.file)))
        return
    with tempfile.TemporaryDirectory() as place:
        sizes = [str(getattr(given, name)) for name in ("concepts", "benchmarks", "items")]
        subprocess.run([sys.executable, "-c", MAKE, str(ROOT), place, *sizes], check=True)
        print(json.dumps({"concepts": given.concepts} | measure(Path(place) / "explorer.html")))


if __name__ == "__main__":
    main()
