"""Figures of one subject seen by one observer: how it scores where a concept is active, along coverage and overall."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gapscope.report.figures_suite import power_of_ten
from gapscope.report.rows import SUPPORTED, UNSUPPORTED, Row, column
from gapscope.report.style import BLUE, GREY, VERMILLION, colours_of, counts_axis, legend_above, name_line, new_figure, only_grid, save

BAR_TICKS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
MIN_FOR_QUARTILES = 10


@dataclass(frozen=True)
class Context:
    """Who is shown, and by which rule: ``mean`` is the subject's mean score over the benchmarks, None where nothing is scored."""

    subject: str
    observer: str
    min_n_eff: float
    alpha: float
    mean: float | None


def draw_performance_distribution(rows: list[Row], about: Context, stem: Path) -> None:
    """Histogram of chi_model over the suite; concepts with too little support stacked in grey."""
    enough, few = (column([row for row in rows if row["group"] == group], "n_concepts") for group in (SUPPORTED, UNSUPPORTED))
    caption = (
        f"Observer {about.observer}. {int(enough.sum()):,} supported concepts (at least {about.min_n_eff:g} effective items), "
        f"{int(few.sum()):,} with less support (their extremes are mostly chance); "
        f"{rows[0]['n_undefined']:,} never fire on a scored item and are not drawn.\n"
        "Performance (chi_model) is the mean score weighted by the concept's activation, averaged over the benchmarks where it is defined."
    )
    title = f"How {about.subject} scores where a concept is active"
    figure, axes = new_figure(7.2, 3.5, title, caption)
    edges = np.linspace(0, 1, len(enough) + 1)
    axes.stairs(enough, edges, fill=True, color=BLUE, alpha=0.85, label="supported")
    axes.stairs(enough + few, edges, baseline=enough, fill=True, color="#B9BEC4", label="too little support")
    axes.set(xlim=(0, 1), xlabel="performance on the concept, chi_model (score, 0 to 1)", ylabel="number of concepts")
    counts_axis(axes)
    if about.mean is not None:
        name_line(axes, about.mean, f"mean over benchmarks {about.mean:.2f}")
    only_grid(axes, "y")
    legend_above(axes)
    save(figure, stem, title, caption)


@dataclass(frozen=True)
class Cells:
    """A grid of counts: ``counts`` (performance bins, coverage bins) with the edges of its columns and rows."""

    counts: np.ndarray
    x_edges: np.ndarray
    y_edges: np.ndarray


def grid_of(rows: list[Row]) -> Cells:
    """The full grid of the cells in coverage_performance rows, empty ones as 0."""
    left, right, bottom, top = (column(rows, name) for name in ("log10_coverage", "log10_coverage_end", "performance", "performance_end"))
    width, n_rows = right[0] - left[0], round(1 / (top[0] - bottom[0]))
    places = np.rint((left - left.min()) / width).astype(int)
    counts = np.zeros((n_rows, int(places.max()) + 1))
    counts[np.rint(bottom * n_rows).astype(int), places] = column(rows, "n_concepts")
    return Cells(counts, left.min() + width * np.arange(counts.shape[1] + 1), np.linspace(0, 1, n_rows + 1))


def draw_coverage_performance(rows: list[Row], about: Context, stem: Path) -> None:
    """Counts of supported concepts by coverage and performance, with the median and quartiles along coverage."""
    cells = grid_of(rows)
    total = int(cells.counts.sum())
    caption = (
        f"Observer {about.observer}. {total:,} supported concepts (at least {about.min_n_eff:g} effective items); "
        f"{rows[0]['n_left_out']:,} others are not drawn. Colour: concepts in the cell, logarithmic. "
        f"Line: median of performance along coverage, with quartiles, where there are at least {MIN_FOR_QUARTILES} concepts."
    )
    title = f"Coverage of a concept against the performance of {about.subject}"
    figure, axes = new_figure(7.2, 3.9, title, caption)
    if total:
        _draw_cells(figure, axes, cells)
        _draw_quartiles(axes, cells)
    if about.mean is not None:
        axes.axhline(about.mean, color=GREY, linewidth=0.9, linestyle=":", label=f"mean over benchmarks {about.mean:.2f}")
    axes.set(ylim=(0, 1), xlabel="coverage of the concept, chi_bench (logarithmic)", ylabel="performance, chi_model (score, 0 to 1)")
    axes.set_xlim(cells.x_edges[0] - 0.1, cells.x_edges[-1] + 0.1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(power_of_ten))
    if axes.get_legend_handles_labels()[0]:
        legend_above(axes)
    save(figure, stem, title, caption)


def _draw_cells(figure: Figure, axes: Axes, cells: Cells) -> None:
    # Only cells that hold something: a mesh of the whole grid would make the SVG five times as large.
    rows, columns = np.nonzero(cells.counts)
    x0, x1, y0, y1 = cells.x_edges[columns], cells.x_edges[columns + 1], cells.y_edges[rows], cells.y_edges[rows + 1]
    corners = np.stack([x0, y0, x1, y0, x1, y1, x0, y1], axis=1).reshape(-1, 4, 2)
    counts = cells.counts[rows, columns]
    norm = LogNorm(1, max(float(counts.max()), 10.0))
    mesh = axes.add_collection(PolyCollection(list(corners), array=counts, cmap=colours_of("cividis_r"), norm=norm, linewidth=0))
    bar = figure.colorbar(mesh, ax=axes, pad=0.02, shrink=0.9, format=FuncFormatter(lambda value, _: f"{value:g}"))
    bar.set_ticks([tick for tick in BAR_TICKS if tick <= max(counts.max(), 10)])
    bar.ax.minorticks_off()
    bar.set_label("concepts in the cell")


def _draw_quartiles(axes: Axes, cells: Cells) -> None:
    """Median and quartiles of each column of cells, interpolated inside the cells."""
    columns = np.flatnonzero(cells.counts.sum(axis=0) >= MIN_FOR_QUARTILES)
    if not len(columns):
        return
    quartiles = np.empty((3, len(columns)))
    for place, index in enumerate(columns):
        below = np.concatenate([[0.0], np.cumsum(cells.counts[:, index])])
        quartiles[:, place] = np.interp(np.array([0.25, 0.5, 0.75]) * below[-1], below, cells.y_edges)
    low, middle, high = quartiles
    centres = (cells.x_edges[:-1] + cells.x_edges[1:])[columns] / 2
    look: dict[str, Any] = {"color": VERMILLION, "linewidth": 1.6, "elinewidth": 1, "capsize": 2, "marker": "o", "markersize": 3.5}
    axes.errorbar(centres, middle, yerr=[middle - low, high - middle], label="median, quartiles", **look)
