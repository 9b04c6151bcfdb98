"""The figure of the concepts on which a subject does worst and best."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from gapscope.report.extremes import UNTESTED, Ranking
from gapscope.report.figures_subject import Context
from gapscope.report.inputs import LEAST_LABEL_SCORE
from gapscope.report.rows import Row, column
from gapscope.report.style import BLUE, GREY, VERMILLION, glyphs, new_figure, only_grid, save
from gapscope.report.text import drawable, shorten

logger = logging.getLogger(__name__)

LABEL_COLUMNS = 44
TOLD = ("gap", "strength", UNTESTED)
"""Statuses drawn with a filled dot; hollow is what was tested and not told from chance."""
NONE_TOLD = " (none told from chance)"
UNCALIBRATED = (
    "Ranking by raw chi_model is uncalibrated: it is not tested against chance, and says in part only in which benchmarks a concept fires. "
    "Bars are the intervals of single concepts, not corrected for choosing the extremes."
)
CALIBRATED = (
    "Filled: told from chance at a false discovery rate of {alpha:g} (gaps: {n_gap:,}, strengths: {n_strength:,}); hollow: not. "
    "Filled ones in the order of the shrunk estimate, one a finding (+k: further concepts that fire on the same items); "
    "hollow ones the surest first.\n"
    "(?): the words of the label do not pick out held-out contexts (label score below {least:g}, or not computable). "
    "Shown is the adjusted score: corrected for guessing, against items of the same benchmark and of similar length. "
    "Bars are the intervals of single concepts, not corrected for choosing the extremes."
)
NOT_DRAWABLE = (
    " {} labels hold characters that the figure's font lacks: these concepts stand by number alone, their labels are in the plot data."
)


def draw_extremes(worst: list[Row], best: list[Row], ranking: Ranking, about: Context, stem: Path) -> None:
    """The worst and the best concepts with labels, intervals and support."""
    names = [_shown_label(row) for row in (*worst, *best)]
    n_undrawable = sum(name is None for name in names)
    caption = _caption(ranking, about)
    if n_undrawable:
        caption += NOT_DRAWABLE.format(n_undrawable)
        logger.warning("%s: %d labels hold characters that the figure's font lacks; the concept's number is shown", stem.name, n_undrawable)
    labels = [_with_number(name, row) for name, row in zip(names, (*worst, *best), strict=True)]
    none_told = ranking.calibrated and not ranking.n_gap and not ranking.n_strength
    title = f"Concepts on which {about.subject} does worst and best{NONE_TOLD if none_told else ''}"
    sizes = [len(worst), len(best)]
    layout = {"nrows": 2, "sharex": True, "gridspec_kw": {"height_ratios": [max(size, 2) for size in sizes]}}
    figure, (upper, lower) = new_figure(8.6, 0.235 * sum(max(size, 2) for size in sizes) + 1.5, title, caption, **layout)
    _draw_side(upper, worst, labels[: len(worst)], VERMILLION, "worst")
    _draw_side(lower, best, labels[len(worst) :], BLUE, "best")
    if not ranking.calibrated:
        lower.set_xlim(-0.02, 1.02)
    scale = "adjusted score (0: as the subject does on comparable items)" if ranking.calibrated else "chi_model (score, 0 to 1)"
    lower.set_xlabel(f"performance on the concept, {scale}")
    _draw_reference(upper, lower, ranking, about)
    save(figure, stem, title, caption)


def _caption(ranking: Ranking, about: Context) -> str:
    few = "less, dead or structural" if ranking.calibrated else "less, or structural"
    text = (
        f"Observer {about.observer}. Taken from {ranking.n_ranked:,} concepts worth at least {about.min_n_eff:g} effective items; "
        f"left out: {ranking.n_unsupported:,} with {few}, {ranking.n_undefined:,} that never fire on a scored item.\n"
    )
    if not ranking.calibrated:
        return text + UNCALIBRATED
    return text + CALIBRATED.format(n_gap=ranking.n_gap, n_strength=ranking.n_strength, alpha=about.alpha, least=LEAST_LABEL_SCORE)


def _shown_label(row: Row) -> str | None:
    """The label cut for the figure; None where the font cannot draw it."""
    text = shorten(str(row["label"]), LABEL_COLUMNS)
    return text if drawable(text, glyphs()) else None


def _with_number(name: str | None, row: Row) -> str:
    if row["concept"] is None:
        return "no concept qualifies"
    return f"{name or 'concept'}  #{row['concept']}"


def _draw_side(axes: Axes, rows: list[Row], labels: list[str], colour: str, name: str) -> None:
    value, low, high = (column(rows, key) for key in ("value", "low", "high"))
    places = np.arange(len(rows))
    spread = np.nan_to_num(np.stack([value - low, high - value])).clip(0)
    for flagged in (True, False):
        mine = np.array([(row["status"] in TOLD) == flagged for row in rows])
        face = colour if flagged else "white"
        axes.errorbar(
            value[mine],
            places[mine],
            xerr=spread[:, mine],
            fmt="o",
            color=colour,
            markerfacecolor=face,
            markersize=4.5,
            elinewidth=1.2,
            capsize=2,
        )
    axes.set_title(name, loc="left", fontsize=9.5, fontweight="bold", color=colour, pad=4)
    axes.set_yticks(places, labels, fontsize=8.2)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    only_grid(axes, "x")
    for place, row in zip(places, rows, strict=True):
        if row["concept"] is not None:
            more = int(row["n_alike"] or 1) - 1
            support = f"{row['n']:,} items, n_eff {float(row['n_eff'] or 0):,.0f}{f', +{more}' if more else ''}"
            axes.annotate(support, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=7.5, annotation_clip=False)


def _draw_reference(upper: Axes, lower: Axes, ranking: Ranking, about: Context) -> None:
    """A dotted line through both panels: as on comparable items, or the subject's mean score."""
    place, text = (0.0, "as expected") if ranking.calibrated else (about.mean, f"mean over benchmarks {about.mean or 0:.2f}")
    if place is None:
        return
    for axes in (upper, lower):
        axes.axvline(place, color=GREY, linewidth=0.9, linestyle=":")
    above = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    upper.annotate(text, (place, 1), (3, 3), ha="left", fontsize=8, color=GREY, **above)  # type: ignore[arg-type]
