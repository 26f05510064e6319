"""Each cell's best value over several sweeps of one grid, against the first; clear changes are marked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.compare import CellHistory, History
from analysis.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MODELS = 6
ABREAST = 3
"""panels in a row"""


def draw(found: History) -> Figure:
    """A panel per model, a line per number of nodes: change against the first sweep, %, better is up."""
    cells = found.cells()
    models = list(dict.fromkeys(cell.model for cell in cells))
    shown = models[:MOST_MODELS]
    columns = min(ABREAST, len(shown))
    rows = -(-len(shown) // columns)
    figure = style.sheet(
        f"{found.metric.label} of the best configuration, against the first sweep",
        held=[f"{at + 1}: {name}" for at, name in enumerate(dated(found))],
        notes=_notes(found, cells, models),
        simulated=bool(found.simulated),
        height_in=2.1 * rows + 0.4,
        rows=rows,
        columns=columns,
        sharey=True,
        sharex=True,
    )
    for axes, model in zip(figure.axes, shown, strict=False):
        _panel(axes, model, [cell for cell in cells if cell.model == model], found)
    for axes in figure.axes[len(shown) :]:
        axes.set_axis_off()
    for axes in figure.axes[::columns]:
        axes.set_ylabel("change (%), better is up")
    return figure


def _panel(axes: Axes, model: str, cells: Sequence[CellHistory], found: History) -> None:
    for at, cell in enumerate(cells[: style.MOST_SERIES]):
        changes = changes_of(cell, found)
        known = [(place, change) for place, change in enumerate(changes) if change is not None]
        if not known:
            continue
        axes.plot(
            *zip(*known, strict=True),
            color=style.COLOURS[at],
            marker=style.MARKERS[at],
            markersize=3.5,
            linewidth=1.2,
            label=f"{cell.nodes} node{'s' * (cell.nodes != 1)}",
        )
        for place, change in known:
            step = cell.steps[place]
            if step is not None and step.verdict in ("better", "worse"):
                colour = style.GOOD if step.verdict == "better" else style.BAD
                axes.plot(place, change, "o", markersize=9, markerfacecolor="none", markeredgecolor=colour)
    axes.axhline(0, color=style.INK, linewidth=0.6)
    sweeps = range(len(found.names))
    axes.set_xticks(sweeps, [str(at + 1) for at in sweeps])
    axes.set_xlim(-0.3, len(sweeps) - 0.7)
    axes.margins(y=0.15)
    style.ruled(axes)
    style.panel_title(axes, model)
    style.legend(axes, loc="best")


def changes_of(cell: CellHistory, found: History) -> list[float | None]:
    """Percent better than the cell's first value, in each sweep; None where it has no value."""
    first = next((value for value in cell.values if value), None)
    if first is None:
        return [None] * len(cell.values)
    ratios = [None if not value else value / first for value in cell.values]
    better = found.metric.higher_is_better
    return [None if ratio is None else 100 * ((ratio if better else 1 / ratio) - 1) for ratio in ratios]


def dated(found: History) -> list[str]:
    """The sweeps' names, each after the local date and time of its first attempt, where known."""
    begun = ("" if at is None else time.strftime("%Y-%m-%d %H:%M  ", time.localtime(at)) for at in found.started_at)
    return [f"{at}{name}" for at, name in zip(begun, found.names, strict=True)]


def _notes(found: History, cells: Sequence[CellHistory], models: Sequence[str]) -> list[str]:
    notes = ["Ring: the cell differs from the sweep before by more than noise (blue better, orange worse)."]
    notes += [
        f"In {at + 1}: " + "; ".join(f"{what} {a} → {b}" for what, a, b in changed) + "."
        for at in range(len(found.names))
        if (changed := found.changed(at))
    ]
    if any(cell.values[0] is None for cell in cells):
        notes.append("A cell without a value in the first sweep starts where it has one.")
    most = max(sum(cell.model == model for cell in cells) for model in models)
    if most > style.MOST_SERIES:
        notes.append(f"{style.MOST_SERIES} of up to {most} node counts are shown.")
    if len(models) > MOST_MODELS:
        notes.append(f"{MOST_MODELS} of {len(models)} models are shown.")
    return notes
