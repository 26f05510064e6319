"""Every figure of a sweep but the heatmap: one file each, a pure function from tables to a matplotlib figure.

from analysis import figures
tables = figures.load_tables("sweeps/ultrascale")
figures.draw("scaling", tables).figure.savefig("scaling.pdf")

Where the data lack what a figure shows, the figure shows a text instead, which ``Drawn.lacking`` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.figures import (
    axes,
    cost,
    neighbours,
    outcomes,
    pareto,
    placement,
    predicted,
    scaling,
    sensitivity,
    spread,
    timeline,
)
from analysis.figures.data import LackingError, Tables, load_tables
from sweep.errors import Mistake, SweepError, nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Drawn", "LackingError", "Tables", "draw", "load_tables", "named"]


def __dir__() -> list[str]:
    """The public names alone: for completion by tab."""
    return sorted(__all__)


FIGURES: dict[str, tuple[Callable[[Tables], Figure], str]] = {
    "scaling": (
        scaling.draw,
        "Throughput and efficiency of each model's best configuration against the number of nodes.",
    ),
    "axes": (
        axes.draw,
        "What each axis does to efficiency: all measured configurations by degree of each axis.",
    ),
    "sensitivity": (
        sensitivity.draw,
        "What fixing an axis costs: the best configuration with that value against the best of its cell.",
    ),
    "neighbours": (
        neighbours.draw,
        "Each winner against what is one step away on every axis: a peak, or the edge of the grid.",
    ),
    "pareto": (
        pareto.draw,
        "Memory against throughput: configurations that no other beats in both.",
    ),
    "cost": (
        cost.draw,
        "What being sooner costs: GPU-hours or dollars per token against the speed of the whole job.",
    ),
    "outcomes": (
        outcomes.draw,
        "How attempts ended, and the GPU-hours that each outcome cost.",
    ),
    "timeline": (
        timeline.draw,
        "Nodes over time: measuring, starting, idle, lost; and the share of allocated GPU-time that measured.",
    ),
    "spread": (
        spread.draw,
        "Spread of step times over iterations, and nodes whose ranks are slower than the others.",
    ),
    "placement": (
        placement.draw,
        "What the choice of nodes does: repeats on several sets of nodes, and on how many leaf switches.",
    ),
    "predicted": (
        predicted.draw,
        "Predicted against measured peak memory and step time.",
    ),
}
"""name -> its drawing function and a one-line description, in the order of a report"""


@dataclass(frozen=True)
class Drawn:
    """One figure, drawn."""

    name: str
    caption: str
    figure: Figure
    lacking: str | None
    """why the data do not hold what the figure shows; the figure then shows only this text"""

    def _repr_png_(self) -> bytes:
        """What a notebook shows of it."""
        import io

        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png")
        return buffer.getvalue()


def draw(name: str, tables: Tables | pd.DataFrame) -> Drawn:
    """Draw one figure of the registry. ``tables``: or the records alone, as ``analysis.load`` gives them.

    Raises SweepError for another name.
    """
    from analysis.figures.style import message

    tables = tables if isinstance(tables, Tables) else Tables(tables)
    (name,) = named([name])
    drawing, caption = FIGURES[name]
    try:
        return Drawn(name, caption, drawing(tables), None)
    except LackingError as lacking:
        return Drawn(name, caption, message(caption, str(lacking)), str(lacking))


def named(names: Sequence[str]) -> list[str]:
    """The names, or all of the registry for none. Raises SweepError for every unknown one at once."""
    unknown = [name for name in names if name not in FIGURES]
    mistakes = [
        Mistake(f"unknown figure {name!r}", remedy="`sweep heatmap`" if name == "heatmap" else nearest(name, FIGURES))
        for name in unknown
    ]
    if mistakes:
        raise SweepError(mistakes)
    return list(dict.fromkeys(names)) or list(FIGURES)
