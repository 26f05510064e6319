"""How fast search strategies find the best: mean regret against the number of runs, a line per strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(curves: Mapping[str, Sequence[float]], *, runs: int, cells: int) -> Figure:
    """``curves``: strategy -> mean regret over the cells, as a fraction, after 0, 1, 2, … runs of all ``runs``."""
    made = style.sheet(
        "Regret against runs",
        held=["mean over cells of 1 - best found / best recorded", f"{runs:,} recorded runs", f"{cells} cells"],
        notes=[
            "A cell without a success counts as 100%. A line ends with a dot where its strategy stops by itself, or "
            "its budget is spent."
        ],
    )
    (axes,) = made.axes
    for place, (name, curve) in enumerate(curves.items()):
        colour = style.COLOURS[place % style.MOST_SERIES]
        per_cent = [100 * value for value in curve]
        axes.step(range(len(curve)), per_cent, where="post", color=colour, linewidth=1.2)
        axes.plot(len(curve) - 1, per_cent[-1], "o", color=colour, markersize=3.5, label=f"{name}, {len(curve) - 1:,}")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(0, 110)
    axes.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    axes.minorticks_off()
    axes.set_xlim(0, max(1, runs))
    axes.set_xlabel("runs")
    axes.set_ylabel("mean regret (%)")
    axes.legend(title="strategy, runs spent", fontsize=style.SMALL, title_fontsize=style.SMALL, frameon=False)
    return made.figure
