"""Predicted against measured peak memory and step time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.derive.predicted import QUANTITIES, errors, predictions
from analysis.figures import style
from analysis.figures.data import LackingError, Tables
from analysis.heatmap.caption import held_fixed
from sweep.physics.hardware import GIB

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {
    "memory": ("peak memory per GPU (GiB)", 1 / GIB),
    "time": ("step time (s)", 1.0),
}
MOST_POINTS = 6000


def draw(tables: Tables) -> Figure:
    """A panel per quantity: a point per run, on the diagonal where the prediction was right."""
    rows = predictions(tables.records, tables.plan)
    found = {name: errors(rows, name) for name in PANELS}
    found = {name: error for name, error in found.items() if len(error)}
    if not found:
        raise LackingError("no run has both a prediction and a measurement (simulated runs do not count)")
    models, notes = style.models_shown(rows)
    figure = style.sheet(
        "Predicted against measured",
        held=[f"predicted by {rows['predicted_by'].iloc[0]}", *held_fixed(rows)],
        notes=[
            "Line: prediction and measurement agree; band: within 25%. Above it: predicted too high.",
            *notes,
        ],
        columns=len(found),
        height_in=3.1,
    )
    for axes, (name, error) in zip(figure.axes, found.items(), strict=True):
        _draw_quantity(axes, rows.loc[error.index], error, name, models)
    style.legend(figure.axes[0], loc="lower right", markerscale=1.8)
    return figure


def _draw_quantity(axes: Axes, rows: pd.DataFrame, error: pd.Series[float], name: str, models: list[str]) -> None:
    label, factor = PANELS[name]
    predicted, measured = (rows[column].astype(float) * factor for column in QUANTITIES[name])
    low = 0.8 * min(predicted.min(), measured.min())
    high = 1.25 * max(predicted.max(), measured.max())
    line = np.array([low, high])
    axes.fill_between(line, line * 0.75, line * 1.25, color="#e6e6e6", linewidth=0)
    axes.plot(line, line, color=style.INK, linewidth=0.8)
    for at, model in enumerate(models):
        mine = rows["model"] == model
        step = max(1, int(mine.sum()) // MOST_POINTS)
        axes.plot(
            measured[mine].iloc[::step], predicted[mine].iloc[::step], linestyle="none", color=style.COLOURS[at],
            marker=style.MARKERS[at], markersize=2.6, alpha=0.45, markeredgewidth=0, label=model,
        )  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        style.log_scale(axis, low, high)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_xlabel(f"measured {label}")
    axes.set_ylabel(f"predicted {label}")
    style.panel_title(axes, f"{name}: {_summary(error)}")


def _summary(error: pd.Series[float]) -> str:
    median = 100 * float(error.abs().median())
    bias = f"{100 * float(error.median()):+.0f}%".replace("-", "−")
    return f"{len(error):,} runs\nmedian error {median:.0f}%, median bias {bias}"
