"""What fixing an axis costs: the best configuration with that value against the best of its cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.derive.axes import comparable_metric, sensitivity, short_name
from analysis.derive.best import is_simulated
from analysis.figures import style
from analysis.figures.data import LackingError, Tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 44


def draw(tables: Tables) -> Figure:
    """A row per axis and value: median and worst loss over cells against the best of each cell."""
    metric = comparable_metric(tables.records)
    if metric is None:
        raise LackingError("no run has a throughput or MFU yet")
    table = sensitivity(tables.records, metric)
    if table.empty:
        raise LackingError("no axis has two values among the measured configurations")
    table, notes = _shortened(table)
    cells = int((table["cells"] + table["missing"]).max())
    figure = style.sheet(
        "What fixing one axis costs",
        held=[f"loss of {metric.label.split(' (')[0]} against the best of each cell", f"{cells} cells"],
        notes=[
            "Dot: median over cells, of the best configuration with that value; line: to the worst cell. Right: in how "
            "many cells the best has the value, of how many in which it was measured.",
            *notes,
        ],
        simulated=is_simulated(tables.records),
        height_in=0.5 + 0.135 * len(table) + 0.06 * table["axis"].nunique(),
    )
    _draw_rows(figure.axes[0], table)
    return figure


def _shortened(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    if len(table) <= MOST_ROWS:
        return table, []
    shown = table.sort_values("cells", ascending=False, kind="stable").head(MOST_ROWS).sort_index()
    return shown, [f"{len(table) - MOST_ROWS} values measured in fewer cells are left out."]


def _draw_rows(axes: Axes, table: pd.DataFrame) -> None:
    y, places, labels = 0.0, [], []
    names = list(dict.fromkeys(table["axis"]))
    top = max(5.0, 100 * float(table["worst"].max()))
    for at, name in enumerate(names):
        rows = table[table["axis"] == name]
        begin = y
        for row in rows.itertuples():
            colour = style.COLOURS[0] if row.median <= 0.02 else style.COLOURS[1]
            axes.plot([100 * row.median, 100 * row.worst], [y, y], color=colour, linewidth=1, alpha=0.6)
            axes.plot(100 * row.median, y, "o" if row.median <= 0.02 else "s", color=colour, markersize=4)
            axes.text(top * 1.04, y, f"{row.wins} of {row.cells}", va="center", fontsize=style.SMALL, color=style.FAINT)
            places.append(y)
            labels.append(f"{short_name(name)} {row.value}")
            y += 1
        if at % 2:
            axes.axhspan(begin - 0.7, y - 0.3, color="#f4f4f4", zorder=0, linewidth=0)
        y += 0.4
    axes.set_yticks(places, labels, fontsize=style.SMALL)
    axes.set_ylim(y - 0.7, -0.7)
    axes.set_xlim(-0.02 * top, top)
    axes.set_xlabel("loss against the best of the cell (%)")
    style.ruled(axes, "x")
