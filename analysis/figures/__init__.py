"""Every figure of a sweep but the heatmap: one file each, a pure function from records to a matplotlib figure.

import analysis
records = analysis.load("sweeps/ultrascale")
analysis.figures.draw("scaling", records).figure.savefig("scaling.pdf")

Where the data lack what a figure shows, the figure shows a text instead, which ``Drawn.lacking`` holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.derive.best import NEEDED
from analysis.figures import axes, job, placement, scaling
from sweep.errors import Mistake, SweepError, nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["COLUMNS", "FIGURES", "Drawn", "draw", "named"]


def __dir__() -> list[str]:
    """The public names alone: for completion by tab."""
    return sorted(__all__)


FIGURES = {"scaling": scaling, "axes": axes, "job": job, "placement": placement}
"""name -> its module, with ``draw`` and its caption as docstring, in the order of a report"""


COLUMNS: tuple[str, ...] = (*NEEDED, "node_names", "leaf_switches")
"""The record columns that figures read"""


@dataclass(frozen=True)
class Drawn:
    """One figure, drawn."""

    name: str
    caption: str
    figure: Figure
    lacking: str | None
    """why the data do not hold what the figure shows; the figure then shows only this text"""


def draw(name: str, records: pd.DataFrame) -> Drawn:
    """Draw one figure of the registry from records, as ``analysis.load`` gives them.

    Raises SweepError for another name.
    """
    from analysis.figures.style import LackingError, message

    (name,) = named([name])
    caption = str(FIGURES[name].__doc__)
    try:
        return Drawn(name, caption, FIGURES[name].draw(records), None)
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
