"""Memory against throughput: configurations that no other beats in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.derive.best import is_simulated
from analysis.derive.scaling import memory_against
from analysis.figures import style
from analysis.figures.data import LackingError, Tables
from analysis.heatmap.caption import held_fixed
from sweep.physics.hardware import GIB, GPUS
from sweep.physics.memory import usable_bytes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MODELS = 6
MOST_POINTS = 4000
"""Points beyond the fronts that one panel shows"""


def draw(tables: Tables) -> Figure:
    """A panel per model; colour and marker show the node count, a line the front of each cell."""
    rows = memory_against(tables.records)
    if rows.empty:
        raise LackingError("no run has both a throughput and a peak memory")
    models, notes = style.models_shown(rows, MOST_MODELS)
    rows = rows[rows["model"].isin(models)]
    nodes = sorted({int(n) for n in rows["nodes"]})
    columns = min(2 if len(models) in (2, 4) else 3, len(models))
    many = -(-len(models) // columns)
    figure = style.sheet(
        "Peak memory against throughput",
        held=held_fixed(rows),
        notes=[_kind(rows), *notes],
        simulated=is_simulated(rows),
        rows=many,
        columns=columns,
        height_in=max(2.9, 2.3 * many),
    )
    for at, axes in enumerate(figure.axes):
        if at >= len(models):
            axes.set_visible(False)
            continue
        _draw_model(axes, rows[rows["model"] == models[at]], models[at], nodes)
        if at % columns == 0:
            axes.set_ylabel("tokens/s/GPU")
        if at >= len(models) - columns:
            axes.set_xlabel("peak memory per GPU (GiB)")
    _legend(figure, nodes)
    return figure


def _draw_model(axes: Axes, rows: pd.DataFrame, model: str, nodes: list[int]) -> None:
    for at, count in enumerate(nodes):
        cell = rows[rows["nodes"] == count].sort_values("peak", kind="stable")
        if cell.empty:
            continue
        colour = _colour(at, len(nodes))
        dull, best = cell[~cell["front"]], cell[cell["front"]]
        if len(dull) > MOST_POINTS:
            dull = dull.iloc[:: -(-len(dull) // MOST_POINTS)]
        marker = style.MARKERS[at % len(style.MARKERS)]
        points: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "none"}
        axes.plot(dull["peak"] / GIB, dull["value"], markersize=2.2, alpha=0.35, markeredgewidth=0, **points)
        axes.step(best["peak"] / GIB, best["value"], where="post", color=colour, linewidth=1)
        axes.plot(
            best["peak"] / GIB, best["value"], markersize=4, markeredgecolor="white", markeredgewidth=0.4, **points
        )
    _mark_limit(axes, rows)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(style.tick)
    style.ruled(axes, "both")
    style.panel_title(axes, model)


def _colour(at: int, many: int) -> tuple[float, ...]:
    from matplotlib import colormaps

    return colormaps["viridis"](0.92 * at / max(1, many - 1))


def _mark_limit(axes: Axes, rows: pd.DataFrame) -> None:
    """The memory of the GPU available to a process, where the data name the GPU."""
    kinds = {str(kind).lower() for kind in rows["gpu"].dropna()}
    sizes = {usable_bytes(GPUS[kind]) for kind in kinds if kind in GPUS}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is not None and np.max(rows["peak"]) > 0.3 * size:
        axes.axvline(size / GIB, color=style.INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            "the GPU's memory", (size / GIB, 0.98), xycoords=("data", "axes fraction"), xytext=(-2, 0),
            textcoords="offset points", rotation=90, ha="right", va="top", fontsize=style.SMALL, color=style.FAINT,
        )  # fmt: skip


def _legend(figure: Figure, nodes: list[int]) -> None:
    from matplotlib.lines import Line2D

    shown = list(enumerate(nodes)) if len(nodes) <= 10 else list(enumerate(nodes))[:: -(-len(nodes) // 10)]
    keys = [
        Line2D([], [], color=_colour(at, len(nodes)), marker=style.MARKERS[at % len(style.MARKERS)], markersize=4,
               linewidth=1, label=f"{count} node{'s' * (count != 1)}")
        for at, count in shown
    ]  # fmt: skip
    figure.legend(
        handles=keys, loc="outside right center", frameon=False, fontsize=style.SMALL, handlelength=1.8, borderpad=0.2
    )


def _kind(rows: pd.DataFrame) -> str:
    text = "Lines: the configurations of a node count that no other beats in both memory and throughput."
    kinds = [str(kind) for kind in rows["memory_kind"].dropna().unique()] if "memory_kind" in rows else []
    return f"{text} Memory: {kinds[0]}." if len(kinds) == 1 else text
