"""The look of every figure, and saving one so that the same data give the same bytes.

matplotlib is used without pyplot: no window system, no global list of figures, no style of the user's own.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import MaxNLocator
from PIL import Image

from gapscope.files import write_bytes

# Okabe and Ito's palette: told apart with every common form of colour blindness.
BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, BLACK = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000"
SERIES = (BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, BLACK)
MARKERS = ("o", "s", "D", "^", "v")
INK, GREY, FAINT = "#222222", "#5F6368", "#D9DCE0"
FONT = "DejaVu Sans"
PNG_DPI, PNG_COLOURS = 140, 96
_INCH_LINES = 0.17

RC = {
    "font.family": [FONT],
    "font.size": 9,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.unicode_minus": True,
    # Labels are other people's text: a dollar sign in one is a dollar sign, not the start of a formula.
    "text.parse_math": False,
    "text.usetex": False,
    # Text stays text: small files, searchable, and a viewer's own fonts draw what ours lack.
    "svg.fonttype": "none",
    # matplotlib names clip paths at random without this.
    "svg.hashsalt": "gapscope",
    "path.simplify": True,
}


@contextmanager
def house_style() -> Iterator[None]:
    """matplotlib's own defaults plus :data:`RC`, whatever matplotlibrc the user has."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


@lru_cache(maxsize=1)
def glyphs() -> frozenset[int]:
    """Code points that the figures' font can draw."""
    return frozenset(get_font(findfont(FontProperties(family=FONT))).get_charmap())


def new_figure(width: float, height: float, title: str, caption: str, **layout: Any) -> tuple[Figure, Any]:
    """A figure of axes under a bold title and above a small caption, both of which get the room they need.

    ``layout`` goes to ``Figure.subplots``. Sizes are inches, and ``height`` is that of the axes' area: the title's and
    the caption's lines are added to it.
    """
    title_lines = textwrap.wrap(title, int(width * 8.8))
    caption_lines = [line for part in caption.split("\n") for line in textwrap.wrap(part, int(width * 16.5))]
    above, below = 0.24 * len(title_lines) + 0.12, _INCH_LINES * len(caption_lines) + 0.12
    total = height + above + below
    # The PNG's own resolution, because the width of hinted text is not quite in proportion to it.
    figure = Figure(figsize=(width, total), dpi=PNG_DPI)
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained", rect=(0, below / total, 1, height / total), w_pad=0.08, h_pad=0.05)
    figure.text(0.08 / width, 1 - 0.08 / total, "\n".join(title_lines), ha="left", va="top", fontsize=11.5, fontweight="bold")
    figure.text(0.08 / width, 0.08 / total, "\n".join(caption_lines), ha="left", va="bottom", fontsize=7.8, color=GREY, linespacing=1.3)
    return figure, figure.subplots(**layout)


def only_grid(axes: Axes, axis: str) -> None:
    """Keep the grid lines of one axis ("x" or "y") and drop the other's."""
    axes.grid(False)
    axes.grid(True, axis=axis)  # type: ignore[arg-type]


def legend_above(axes: Axes, columns: int = 2) -> None:
    """The legend over the axes' right end, where it can hide no data; long names one below the other."""
    if max(len(label) for label in axes.get_legend_handles_labels()[1]) > 36:
        columns = 1
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, borderaxespad=0.2)


def name_line(axes: Axes, place: float, text: str) -> None:
    """A dotted vertical line with its name beside its upper end, on the side that has more room."""
    axes.axvline(place, color=GREY, linewidth=0.9, linestyle=":")
    left, right = axes.get_xlim()
    side, shift = ("left", 3) if place < (left + right) / 2 else ("right", -3)
    where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    axes.annotate(text, (place, 1), (shift, -2), ha=side, va="top", fontsize=8, color=GREY, **where)  # type: ignore[arg-type]


def colours_of(name: str) -> Colormap:
    """A colour map in 32 steps: a colour bar of 256 would make up most of a small SVG."""
    return mpl.colormaps[name].resampled(32)


def settle(figure: Figure) -> None:
    """Lay the figure out once, for both files: that takes longer than drawing."""
    # The first pass gives the axes about their size, and only then are their ticks, and so their margins, known.
    figure.draw_without_rendering()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def counts_axis(axes: Axes) -> None:
    """A y axis of counts: whole numbers from 0, at least to 1, with room above the data for a name."""
    axes.set_ylim(0, max(axes.dataLim.ymax, 1) * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def save(figure: Figure, stem: Path, title: str, description: str) -> None:
    """Write ``<stem>.svg`` and ``<stem>.png`` without dates, versions or random ids."""
    svg, png = io.BytesIO(), io.BytesIO()
    settle(figure)
    about = {"Title": title, "Description": description}
    figure.savefig(svg, format="svg", metadata={**about, "Date": None, "Creator": None, "Format": None, "Type": None})
    # A viewer without our font takes the next nearest in width.
    text = svg.getvalue().replace(b"\r\n", b"\n").replace(f"'{FONT}'".encode(), f"'{FONT}', Verdana, sans-serif".encode())
    # Ids of clip paths come from where an object lies in memory; they are numbered in the order in which they are defined.
    for number, clip in enumerate(re.findall(rb'<clipPath id="(\w+)">', text)):
        text = text.replace(clip, f"clip{number}".encode())
    write_bytes(stem.with_name(stem.name + ".svg"), text)
    figure.savefig(png, format="png", metadata={"Software": None})
    write_bytes(stem.with_name(stem.name + ".png"), _smaller(png.getvalue()))


def _smaller(png: bytes) -> bytes:
    """The image in a palette of few colours: a third of the size, and no difference that the eye sees in a plot."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(PNG_COLOURS, dither=Image.Dither.NONE).save(buffer, "png", optimize=True, dpi=(PNG_DPI, PNG_DPI))
    return buffer.getvalue()
