"""Figures of one observer: what the suite exercises, what each benchmark misses, and how benchmarks overlap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from gapscope.report.rows import MASKED, SUITE_NAME, UNMASKED, Row, column
from gapscope.report.style import BLUE, GREY, INK, VERMILLION, colours_of, counts_axis, legend_above, name_line, new_figure, only_grid, save
from gapscope.report.text import shorten

GROUP_COLOURS = {MASKED: BLUE, UNMASKED: VERMILLION}
MAX_WRITTEN = 20
"""Up to so many benchmarks the heat map's cells have their value written in them."""


def power_of_ten(value: float, _position: int) -> str:
    """A tick of a logarithmic axis whose positions are exponents: 0.01, 1, 100, 10⁴."""
    exponent = round(value)
    if abs(value - exponent) > 1e-6:
        return ""
    if -3 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def draw_coverage_distribution(rows: list[Row], n_concepts: int, observer: str, stem: Path) -> None:
    """Histogram of chi_bench over the suite on a logarithmic axis."""
    groups = {str(row["group"]): [other for other in rows if other["group"] == row["group"]] for row in rows}
    title = "How much the suite exercises each concept"
    caption = _coverage_caption(groups, n_concepts, observer)
    figure, axes = new_figure(7.2, 3.5, title, caption)
    for group, part in groups.items():
        x, counts = column(part, "log10_coverage"), column(part, "n_concepts")
        width = x[1] - x[0] if len(x) > 1 else 0.2
        edges = np.append(x - width / 2, x[-1] + width / 2)
        if group == MASKED:
            axes.stairs(counts, edges, fill=True, color=GROUP_COLOURS[group], alpha=0.25)
        line = "-" if group == MASKED else (0, (4, 2))
        axes.stairs(counts, edges, color=GROUP_COLOURS[group], linewidth=1.6, linestyle=line, label=group)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(power_of_ten))
    axes.set(xlabel="coverage of the concept, chi_bench (logarithmic)", ylabel="number of concepts")
    counts_axis(axes)
    name_line(axes, 0, "average concept")
    only_grid(axes, "y")
    legend_above(axes)
    save(figure, stem, title, caption)


def _coverage_caption(groups: dict[str, list[Row]], n_concepts: int, observer: str) -> str:
    never = "; ".join(f"{group}: {part[0]['n_missing']:,} of {n_concepts:,}" for group, part in groups.items())
    undefined = max(int(part[0]["n_undefined"] or 0) for part in groups.values())
    return (
        f"Observer {observer}, {n_concepts:,} concepts. Those that never fire have no place on the logarithmic axis and are not drawn "
        f"({never}{f'; undefined: {undefined:,}' if undefined else ''}).\n"
        "Coverage (chi_bench) is the concept's mean activation over the mean of all concepts, averaged over benchmarks: "
        "1 is an average concept."
    )


def draw_missing(rows: list[Row], observer: str, stem: Path) -> None:
    """Share of concepts that never fire, by benchmark; the suite's own on top."""
    share = {(str(row["benchmark"]), str(row["group"])): row for row in rows}
    names = sorted({name for name, _ in share}, key=lambda name: (name != SUITE_NAME, -_missing(share[name, MASKED]), name))
    suite = share[SUITE_NAME, MASKED]
    caption = (
        f"Observer {observer}, {suite['n_concepts']:,} concepts; {suite['n_items']:,} items, {suite['n_tokens']:,} tokens. "
        "A concept is missing where it fires on no token of any item; the suite misses what every benchmark misses.\n"
        "A benchmark that holds less text misses more for that reason alone: its items and tokens stand beside its name."
    )
    title = "Share of concepts that no item exercises, by benchmark"
    figure, axes = new_figure(7.2, 0.27 * len(names) + 0.9, title, caption)
    for group in (UNMASKED, MASKED):
        values = column([share[name, group] for name in names], "missing_share")
        if np.isfinite(values).any():
            look = {"marker": "o", "facecolor": GROUP_COLOURS[group]} if group == MASKED else {"marker": "D", "facecolor": "white"}
            axes.scatter(
                values, range(len(names)), s=36, edgecolor=GROUP_COLOURS[group], linewidth=1.4, label=group, clip_on=False, zorder=3, **look
            )
    for place, name in enumerate(names):
        _join_and_name(axes, place, share[name, MASKED]["missing_share"], share[name, UNMASKED]["missing_share"])
    axes.set_yticks(range(len(names)), [_with_size(share[name, MASKED]) for name in names])
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("concepts that never fire (written: special tokens masked)")
    axes.tick_params(axis="y", length=0)
    only_grid(axes, "x")
    legend_above(axes)
    save(figure, stem, title, caption)


def _missing(row: Row) -> float:
    """For sorting only: undefined goes last."""
    return -1.0 if row["missing_share"] is None else float(row["missing_share"])


def _join_and_name(axes: Axes, place: int, masked: object, unmasked: object) -> None:
    ends = [float(value) for value in (masked, unmasked) if isinstance(value, (int, float))]
    axes.plot(ends, [place] * len(ends), color=GREY, linewidth=1, zorder=2)
    if isinstance(masked, (int, float)):
        axes.annotate(f"{masked:.1%}", (max(ends), place), (8, 0), textcoords="offset points", va="center", fontsize=8)


def _with_size(row: Row) -> str:
    tokens = int(row["n_tokens"] or 0)
    amount = f"{tokens / 1000:.0f}k" if tokens >= 10_000 else f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)
    return f"{shorten(str(row['benchmark']), 28)}  ({row['n_items']:,} items, {amount} tokens)"


def draw_overlap(rows: list[Row], observer: str, stem: Path) -> None:
    """Heat map of the Jaccard index between benchmarks, similar benchmarks side by side."""
    names, jaccard = similar_together(*matrix_of(rows))
    known = jaccard[np.triu_indices(len(names), 1)]
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    spread = (
        f"{len(known):,} {'pair' if len(known) == 1 else 'pairs'}, from {low:.0%} to {high:.0%}, median {np.median(known):.0%}"
        if len(known)
        else "no pair is defined"
    )
    if high - low < 0.02:
        low, high = low - 0.05, high + 0.05
    written = len(names) <= MAX_WRITTEN
    caption = (
        f"Observer {observer}. Jaccard index: concepts that fire in both benchmarks over concepts that fire in either; "
        f"{spread}.{' Cells are in per cent.' if written else ''}\n"
        "Similar benchmarks stand together. One with more text fires more concepts, which bounds its overlap with a smaller one."
    )
    title = "How far benchmarks exercise the same concepts"
    side = max((0.46 if written else max(9.0 / len(names), 0.16)) * len(names), 1.6)
    figure, axes = new_figure(max(side + 2.9, 6.4), side + 1.3, title, caption)
    image = axes.imshow(jaccard, cmap=colours_of("cividis"), vmin=low, vmax=high)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, format=PercentFormatter(1, decimals=0))
    bar.set_label("concepts in common (Jaccard)")
    shown = [shorten(name, 28) for name in names]
    axes.set_xticks(range(len(names)), shown, rotation=45, ha="right", rotation_mode="anchor", fontsize=9 if written else 6.5)
    axes.set_yticks(range(len(names)), shown, fontsize=9 if written else 6.5)
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if written:
        _write_cells(axes, jaccard, (low + high) / 2)
    save(figure, stem, title, caption)


def matrix_of(rows: list[Row]) -> tuple[list[str], np.ndarray]:
    """Benchmarks and the symmetric matrix of their Jaccard indices; NaN on the diagonal and where undefined."""
    names = sorted({str(row[side]) for row in rows for side in ("benchmark_a", "benchmark_b")})
    place = {name: index for index, name in enumerate(names)}
    jaccard = np.full((len(names), len(names)), np.nan)
    for row, value in zip(rows, column(rows, "jaccard"), strict=True):
        one, other = place[str(row["benchmark_a"])], place[str(row["benchmark_b"])]
        jaccard[one, other] = jaccard[other, one] = value
    return names, jaccard


def similar_together(names: list[str], jaccard: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Both in the order of average-linkage leaves; for the order alone, an undefined pair counts as sharing nothing."""
    if len(names) < 3:
        return names, jaccard
    distance = 1 - np.nan_to_num(jaccard)
    np.fill_diagonal(distance, 0)
    order = leaves_list(linkage(squareform(distance, checks=False), method="average", optimal_ordering=True))
    return [names[index] for index in order], jaccard[np.ix_(order, order)]


def _write_cells(axes: Axes, jaccard: np.ndarray, middle: float) -> None:
    for (row, place), value in np.ndenumerate(jaccard):
        if row != place:
            text = "–" if np.isnan(value) else f"{100 * value:.0f}"
            axes.text(place, row, text, ha="center", va="center", fontsize=7.5, color="white" if value <= middle else INK)
