"""How attempts ended, and the GPU-hours that each outcome cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.derive.best import is_simulated
from analysis.derive.time import by_outcome, unit_of
from analysis.figures import style
from analysis.figures.data import LackingError, Tables
from analysis.metrics import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(tables: Tables) -> Figure:
    """Left: attempts by outcome. Right: the GPU-hours that they took, where records have times."""
    if tables.records.empty:
        raise LackingError("no attempt has ended yet")
    table = by_outcome(tables.records)
    timed = bool(table["gpu_hours"].notna().any())
    total, hours = int(table["attempts"].sum()), float(table["gpu_hours"].sum())
    unit, factor = unit_of(tables.records, hours)
    notes = [] if timed else ["The source has no times: the cost of each outcome is unknown."]
    if timed:
        notes = ["The cost of an attempt: from its order to clean nodes, on all GPUs of its nodes."]
    held = [f"{total:,} attempts"] + [f"{number(hours * factor)} {unit} in attempts"] * timed
    figure = style.sheet(
        "How attempts ended" + (f", and the {unit} that it cost" if timed else ""),
        held=held,
        notes=notes,
        simulated=is_simulated(tables.records),
        columns=1 + timed,
        height_in=0.55 + 0.2 * len(table),
        sharey=True,
    )
    _bars(figure.axes[0], table["outcome"], table["attempts"].astype(float), total, "attempts")
    if timed:
        _bars(figure.axes[1], table["outcome"], factor * table["gpu_hours"].astype(float), factor * hours, unit)
    return figure


def _bars(axes: Axes, outcomes: pd.Series[str], values: pd.Series[float], total: float, label: str) -> None:
    names = [str(outcome).replace("_", " ") for outcome in outcomes]
    colours = [style.GOOD if name == "ok" else style.BAD for name in names]
    axes.barh(range(len(names)), values.fillna(0), color=colours, height=0.72)
    for at, (value, known) in enumerate(zip(values.fillna(0), values.notna(), strict=True)):
        share = f" · {style.percent(value / total)}" if total > 0 else ""
        amount = f"{value:,.0f}" if label == "attempts" else number(value)
        text = f"{amount}{share}" if known else "time not stated"
        axes.annotate(
            text, (value, at), (3, 0), textcoords="offset points", va="center",
            fontsize=style.SMALL, color=style.INK,
        )  # fmt: skip
    style.row_labels(axes, names, size=style.BODY)
    axes.set_xlim(0, 1.28 * max(float(values.max()), 1e-12))
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(style.tick)
    axes.set_xlabel(label)
    style.ruled(axes, "x")
