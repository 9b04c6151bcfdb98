"""The figure of plain accuracy: every subject on every benchmark, with intervals and the chance level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from gapscope.report.rows import SUITE_NAME, Row, column
from gapscope.report.style import GREY, MARKERS, SERIES, legend_above, new_figure, only_grid, save
from gapscope.report.text import shorten


def draw_accuracy(rows: list[Row], names: dict[str, str], confidence: float, stem: Path) -> None:
    """Dots with intervals, a line a benchmark, a colour and a marker a subject; a tick at the chance level."""
    by_subject: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_subject.setdefault(str(row["subject"]), {})[str(row["benchmark"])] = row
    first = next(iter(by_subject.values()))
    benchmarks = sorted(first, key=lambda name: (name != SUITE_NAME, -float(first[name]["accuracy"] or -1), name))
    unscored = sum(int(cells[SUITE_NAME]["n_unscored"] or 0) for cells in by_subject.values())
    caption = (
        f"Bars: {confidence:.0%} intervals. {SUITE_NAME}: mean over benchmarks. "
        f"n: scored items; {unscored:,} {'answer' if unscored == 1 else 'answers'} could not be scored and are left out."
    )
    only = names[next(iter(by_subject))] if len(by_subject) == 1 else None
    title = f"Accuracy of {only or 'the subjects'} by benchmark"
    height = (0.27 if only else 0.13 * len(by_subject) + 0.16) * len(benchmarks) + 0.9
    figure, axes = new_figure(7.2, height + 0.18 * len(by_subject), title, caption)
    for index, (subject, cells) in enumerate(by_subject.items()):
        _draw_subject(axes, [cells[name] for name in benchmarks], index, len(by_subject), names[subject])
    places = np.arange(len(benchmarks))
    axes.vlines(column([first[name] for name in benchmarks], "chance"), places - 0.36, places + 0.36, color=GREY, label="blind guess")
    axes.set_yticks(places, [f"{shorten(name, 28)}  (n = {_n(by_subject, name)})" for name in benchmarks])
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_ylim(len(benchmarks) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("mean score of the items")
    axes.tick_params(axis="y", length=0)
    only_grid(axes, "x")
    legend_above(axes)
    save(figure, stem, title, caption)


def _draw_subject(axes: Axes, cells: list[Row], index: int, n_subjects: int, name: str) -> None:
    value, low, high = (column(cells, key) for key in ("accuracy", "low", "high"))
    spread = np.nan_to_num(np.stack([value - low, high - value])).clip(0)
    shift = (index - (n_subjects - 1) / 2) * 0.7 / n_subjects if n_subjects > 1 else 0.0
    colour, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
    places = np.arange(len(cells)) + shift
    axes.errorbar(
        value,
        places,
        xerr=spread,
        fmt=marker,
        color=colour,
        markersize=4.5,
        elinewidth=1.2,
        capsize=2,
        label=shorten(name, 44),
        clip_on=False,
    )


def _n(by_subject: dict[str, dict[str, Row]], benchmark: str) -> str:
    counts = sorted({int(cells[benchmark]["n"] or 0) for cells in by_subject.values()})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
