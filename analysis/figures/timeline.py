"""Nodes over time: measuring, starting, idle, lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.derive import time as allocation_time
from analysis.derive.best import is_simulated, natural
from analysis.figures import style
from analysis.figures.data import LackingError, Tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES: dict[str, tuple[str, str]] = {
    "measuring": ("#0072b2", ""),
    "running": ("#56b4e9", "...."),
    "starting": ("#e69f00", "////"),
    "failed": ("#d55e00", "xxxx"),
    "clearing": ("#cc79a7", ""),
    "idle": ("#d9d9d9", ""),
    "lost": ("#000000", ""),
}
"""state -> colour and hatch, so that they differ in black-and-white print too"""

HATCH = "#ffffff90"


def draw(tables: Tables) -> Figure:
    """A lane per node, the thinner the more there are."""
    if tables.allocations is None:
        raise LackingError("these results have no journals: only a sweep directory has a timeline")
    table = allocation_time.segments(tables.allocations, tables.attempts)
    if table.empty:
        raise LackingError("no pilot has held a node yet")
    lanes = _lanes(table)
    zero, (unit, seconds) = float(table["begin"].min()), _unit(float(table["end"].max() - table["begin"].min()))
    figure = style.sheet(
        "What the allocated nodes did",
        held=_held(table, lanes),
        notes=[
            "Time: since the first allocation. Failed: attempts without a measurement, from order to clean nodes. "
            "Lost: a failed node, or one whose pilot timed out, until its job was gone."
        ],
        simulated=is_simulated(tables.records),
        height_in=min(5.7, 1.0 + 0.17 * lanes.nunique()),
    )
    _draw_lanes(figure.axes[0], table, lanes, zero, seconds)
    _explain(figure.axes[0], [state for state in STYLES if (table["state"] == state).any()])
    figure.axes[0].set_xlabel(f"time ({unit})")
    figure.axes[0].set_xlim(0, (float(table["end"].max()) - zero) / seconds)
    return figure


def _held(table: pd.DataFrame, lanes: pd.Series) -> list[str]:
    hours = float((table["end"] - table["begin"]).sum()) / 3600
    pilots = table[["source", "pilot"]].drop_duplicates()
    amount = f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"
    count = lanes.nunique()
    return [
        f"{amount} node-hours allocated",
        f"{len(pilots)} pilot{'s' * (len(pilots) != 1)} on {count} node{'s' * (count != 1)}",
    ]


def _lanes(table: pd.DataFrame) -> pd.Series:
    """A lane per node; where two pilots hold a node at once (on one machine), one per pilot and node."""
    one = table.sort_values(["source", "node", "begin"], kind="stable")
    before = one.groupby(["source", "node"])["end"].shift()
    clash = bool((before > one["begin"] + 1e-6).any())
    return table["pilot"] + " " + table["node"] if clash else table["node"].astype(str)


def _unit(span_s: float) -> tuple[str, float]:
    for name, seconds in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if span_s >= 3 * seconds:
            return name, seconds
    return "s", 1.0


def _explain(axes: Axes, states: Sequence[str]) -> None:
    for state in states:
        axes.bar(0, 0, label=state, **_style(*STYLES[state]))
    axes.legend(ncols=7, loc="lower left", bbox_to_anchor=(0, 1.0), frameon=False, fontsize=style.SMALL)


def _style(colour: str, hatch: str) -> dict[str, Any]:
    return {"facecolor": colour, "hatch": hatch, "edgecolor": HATCH, "linewidth": 0}


def _draw_lanes(axes: Axes, table: pd.DataFrame, lanes: pd.Series, zero: float, seconds: float) -> None:
    names = sorted(lanes.unique(), key=natural)
    row = {name: at for at, name in enumerate(names)}
    y = lanes.map(row)
    for state, (colour, hatch) in STYLES.items():
        mine = table[table["state"] == state]
        for at, part in mine.groupby(y[mine.index]):
            spans = list(zip((part["begin"] - zero) / seconds, (part["end"] - part["begin"]) / seconds, strict=True))
            axes.broken_barh(spans, (at - 0.4, 0.8), **_style(colour, hatch), rasterized=len(spans) > 500)
    style.row_labels(axes, names, every=-(-len(names) // 26))
    axes.set_ylabel("node")
