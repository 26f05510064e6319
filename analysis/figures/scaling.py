"""Throughput and efficiency of each model's best configuration against the number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.derive.best import is_simulated
from analysis.derive.scaling import amdahl, scaling
from analysis.figures import style
from analysis.heatmap.caption import held_fixed
from analysis.metrics import number
from sweep.physics.sizing import Scaling

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(records: pd.DataFrame) -> Figure:
    """Left: tokens/s of the whole job, both axes logarithmic. Right: tokens/s/GPU over that of the fewest nodes."""
    table = scaling(records)
    if table.empty:
        raise style.LackingError("no run has a throughput yet")
    models, notes = style.models_shown(table)
    fits = amdahl(table)
    notes = [*_notes(table, bool(fits)), *notes]
    figure = style.sheet(
        "Throughput against nodes, best configuration per model and node count",
        held=["ranked by tokens/s/GPU", *held_fixed(table)],
        notes=notes,
        simulated=is_simulated(table),
        columns=2,
        height_in=2.9,
    )
    left, right = figure.axes
    for at, model in enumerate(models):
        rows = table[table["model"] == model]
        _draw_model(left, right, rows, model, at, fits)
        first = float(rows["value"].iloc[0])
        known = rows[rows["high"] > rows["low"]]
        offset = known["nodes"].to_numpy(float) * 2 ** (0.03 * (at - (len(models) - 1) / 2))
        low, high = (100 * known[name].to_numpy(float) / first for name in ("low", "high"))
        right.vlines(offset, low, high, color=style.COLOURS[at], linewidth=2, alpha=0.35)
    _finish(left, right, table)
    return figure


def _draw_model(left: Axes, right: Axes, rows: pd.DataFrame, model: str, at: int, fits: dict[str, Scaling]) -> None:
    nodes, rate = rows["nodes"].to_numpy(float), rows["tokens_per_second"].to_numpy(float)
    line_style: dict[str, Any] = {
        "color": style.COLOURS[at],
        "marker": style.MARKERS[at],
        "markersize": 4,
        "linewidth": 1.3,
    }
    fit = fits.get(model)
    label = model if fit is None else f"{model}: serial {number(100 * fit.serial_share)}%"
    left.plot(nodes, rate, label=label, **line_style)
    left.plot(nodes, rate[0] * nodes / nodes[0], color=style.COLOURS[at], linestyle=(0, (4, 3)), linewidth=0.8)
    right.plot(nodes, 100 * rows["efficiency"].to_numpy(float), label=model, **line_style)


def _finish(left: Axes, right: Axes, table: pd.DataFrame) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    counts = sorted({int(n) for n in table["nodes"]})
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts if len(counts) <= 9 else counts[:: -(-len(counts) // 9)])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_xlabel("nodes")
        style.ruled(axes)
    rate = table["tokens_per_second"]
    low, high = float(rate.min()), float(rate.max())
    left.set_yscale("log")  # with enough numbers to read it by, and no tick without one
    if high < 1000 * low:
        left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 4 * low else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
    left.yaxis.set_major_formatter(style.tick)
    left.yaxis.set_minor_locator(NullLocator())
    left.plot([], [], color=style.FAINT, linestyle=(0, (4, 3)), linewidth=0.8, label="ideal: as the fewest nodes")
    left.set_ylabel("throughput (tokens/s)")
    style.legend(left, loc="upper left")
    right.axhline(100, color=style.FAINT, linestyle=(0, (4, 3)), linewidth=0.8)
    best = float(np.nanmax(table["efficiency"]))
    spread = float(np.nanmax(table["high"] / table["value"] * table["efficiency"]))
    right.set_ylim(0, 100 * max(1.1, 1.05 * best, min(1.05 * spread, 1.6)))
    right.set_ylabel("efficiency (%)")


def _notes(table: pd.DataFrame, fitted: bool) -> list[str]:
    notes = [
        "Efficiency: tokens/s/GPU over that on the model's fewest nodes, to compare within a model. "
        "Dashed: throughput in proportion to nodes."
    ]
    if fitted:
        notes[0] += " Serial: Amdahl's s, the serial fraction, which more GPUs do not shorten (relative fit)."
    if (table["high"] > table["low"]).any():
        notes.append("Pale bars: uncertainty of the median, by the spread of the iterations.")
    batch = table["global_batch_tokens"].dropna().unique()
    if len(batch) == 1:
        notes.append("The batch is the same at every node count: strong scaling.")
    return notes
