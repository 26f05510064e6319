"""Shared style of all figures: page width, fonts, colours for every colour vision, and texts around the axes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.derive.best import model_order
from analysis.metrics import short
from analysis.text_fit import FAINT as FAINT
from analysis.text_fit import INK as INK
from analysis.text_fit import MARGIN, Frame, wrap
from analysis.text_fit import SMALL as SMALL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 7.0
BODY = 7.5
"""Font size of labels in points"""
GRID = "#dddddd"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")
"""Okabe and Ito's palette, distinguishable with every kind of colour vision; markers repeat the colours"""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_SERIES = len(COLOURS)

GOOD, BAD = COLOURS[0], COLOURS[1]


class LackingError(Exception):
    """The data do not hold what a figure shows; the text states what is missing and how to get it."""


def sheet(
    title: str,
    *,
    held: Sequence[str] = (),
    notes: Sequence[str] = (),
    simulated: bool = False,
    height_in: float = 3.2,
    rows: int = 1,
    columns: int = 1,
    **grid: Any,
) -> Figure:
    """A page-wide figure: title, what was held fixed, axes row by row, notes below. ``height_in``: of the axes."""
    from matplotlib.figure import Figure as MatplotlibFigure

    if simulated:
        title += " (simulated)"
        notes = ["Simulated: no model was trained; ranks slept for the step times of a formula.", *notes]
    frame = Frame(WIDTH_IN * 72, title, held, notes)
    height = frame.above + height_in * 72 + frame.below
    figure = MatplotlibFigure(figsize=(WIDTH_IN, height / 72), facecolor="white")
    side = MARGIN / 72 / WIDTH_IN
    inside = (side, frame.below / height, 1 - 2 * side, 1 - (frame.above + frame.below) / height)
    figure.set_layout_engine("constrained", rect=inside, h_pad=0.03, w_pad=0.03)
    frame.write(figure)
    for axes in figure.subplots(rows, columns, squeeze=False, **grid).flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(FAINT)
        axes.tick_params(labelsize=SMALL, colors=INK, length=2.5, width=0.6)
        axes.xaxis.label.set_fontsize(BODY)
        axes.yaxis.label.set_fontsize(BODY)
        axes.set_axisbelow(True)
    return figure


def ruled(axes: Axes, axis: Any = "y") -> None:
    """Faint lines to read values by."""
    axes.grid(visible=True, axis=axis, color=GRID, linewidth=0.5)


def row_labels(axes: Axes, names: Sequence[str], *, below: float = 0.0) -> None:
    """Names of rows at y = 0, 1, 2 … from the top, as they are. ``below``: rows left free under them."""
    axes.set_yticks(range(len(names)), names, fontsize=SMALL)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(names) - 0.4 + below, -0.6)


def panel_title(axes: Axes, text: str) -> None:
    """The title of one of several panels."""
    drawn = axes.set_title(text, fontsize=BODY, loc="left", color=INK, fontweight="bold", pad=4)
    drawn.set_parse_math(False)


def tick(value: float, _at: object = None) -> str:
    """A round number as an axis label: 40k, 2.5M, −10."""
    return short(value).replace("-", "−")


def legend(axes: Axes, **places: Any) -> None:
    """The names of the series, without a frame."""
    drawn = axes.legend(**({"frameon": False, "fontsize": SMALL, "handlelength": 1.8, "labelspacing": 0.35} | places))
    for text in drawn.get_texts():
        text.set_parse_math(False)


def message(caption: str, text: str) -> Figure:
    """A figure that only states why nothing is drawn."""
    figure = sheet(re.split(r"[:,.]", caption)[0], height_in=0.9)
    (axes,) = figure.axes
    axes.set_axis_off()
    words = "\n".join(wrap(f"Not drawn: {text}.".split(), WIDTH_IN * 72 * 0.8, 9))
    axes.text(
        0.5, 0.5, words, ha="center", va="center", fontsize=9, color=FAINT, transform=axes.transAxes, parse_math=False
    )
    return figure


def models_shown(rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    """At most MOST_SERIES models, from small to large and spread over them, and a note where some are left out."""
    names = model_order(rows, [str(name) for name in rows["model"].dropna().unique()])
    if len(names) <= MOST_SERIES:
        return names, []
    step = (len(names) - 1) / (MOST_SERIES - 1)
    chosen = [names[round(at * step)] for at in range(MOST_SERIES)]
    return chosen, [f"{MOST_SERIES} of {len(names)} models are shown, spread from small to large."]
