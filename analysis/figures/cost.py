"""What being sooner costs: GPU-hours or dollars per token against the speed of the whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.derive.best import is_simulated
from analysis.derive.scaling import front, scaling
from analysis.figures import style
from analysis.figures.data import LackingError, Tables
from analysis.heatmap.caption import held_fixed
from analysis.metrics import METRICS, Metric

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(tables: Tables) -> Figure:
    """A line per model through its best configuration at each node count; filled where no other count beats it."""
    table = scaling(tables.records)
    if table.empty:
        raise LackingError("no run has a throughput yet")
    priced = bool(table["dollars_per_gpu_hour"].notna().all())
    metric = METRICS["dollars_per_million_tokens" if priced else "gpu_hours_per_billion_tokens"]
    table = table.assign(cost=metric.of(table))
    models, notes = style.models_shown(table)
    figure = style.sheet(
        "What being sooner costs: best configuration per model and node count",
        held=["ranked by tokens/s/GPU", *held_fixed(table)],
        notes=[*_notes(metric), *notes],
        simulated=is_simulated(table),
        height_in=3.1,
    )
    (axes,) = figure.axes
    for at, model in enumerate(models):
        _draw_model(axes, table[table["model"] == model].sort_values("nodes"), model, at)
    shown = table[table["model"].isin(models)]
    for axis, name in ((axes.xaxis, "tokens_per_second"), (axes.yaxis, "cost")):
        low, high = float(shown[name].min()), float(shown[name].max())
        style.log_scale(axis, low, high)
        axis.set_view_interval(low / 1.25, high * 1.25, ignore=True)
    axes.set_xlabel("throughput of the job (tokens/s)")
    axes.set_ylabel(metric.label)
    style.ruled(axes, "both")
    style.legend(axes, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return figure


def _draw_model(axes: Axes, rows: pd.DataFrame, model: str, at: int) -> None:
    rate, cost = rows["tokens_per_second"].to_numpy(float), rows["cost"].to_numpy(float)
    best = np.isin(rows.index, front(rows["cost"], rows["tokens_per_second"]))
    points: dict[str, Any] = {"color": style.COLOURS[at], "marker": style.MARKERS[at], "markersize": 4.5}
    axes.plot(rate, cost, linewidth=1.1, label=model, **points)
    axes.plot(rate[~best], cost[~best], linestyle="none", markerfacecolor="white", **points)
    for x, y, nodes in zip(rate, cost, rows["nodes"], strict=True):
        axes.annotate(
            f"{int(nodes)}", (x, y), xytext=(0, 4.5), textcoords="offset points", ha="center",
            fontsize=style.SMALL, color=style.FAINT,
        )  # fmt: skip


def _notes(metric: Metric) -> list[str]:
    text = "Numbers: nodes. Hollow: another node count of the model is both faster and cheaper."
    unpriced = "Prices are not known: dollars_per_gpu_hour in the site file gives costs in dollars."
    return [text] if metric.needs else [text, unpriced]
