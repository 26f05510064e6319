"""Each winner against what is one step away on every axis: a peak, or the edge of the grid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from analysis.derive.axes import comparable_metric, short_name
from analysis.derive.best import CELL, in_order, is_simulated
from analysis.derive.neighbours import ROUNDED, STEPPED, neighbours
from analysis.figures import style
from analysis.figures.data import LackingError, Tables
from analysis.tables import as_rows
from analysis.text_fit import shortened

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 36
ROW_IN = 0.27
LABEL_PT = 92.0
"""room for the name of a cell"""
BEHIND, AHEAD = "#b3d4ea", "#f6c6a3"
"""the colours of a neighbour that is far behind the winner, and of one that is ahead of it"""
STEPS = {-1: "−", 1: "+", 0: ""}


def draw(tables: Tables) -> Figure:
    """A row per winner, a column per axis and step: the neighbour's value, and how far it is behind."""
    metric = comparable_metric(tables.records)
    if metric is None:
        raise LackingError("no run has a throughput or MFU yet")
    table = neighbours(tables.records, tables.plan, metric)
    if table.empty:
        raise LackingError("no axis has two values in the sweep")
    if (table["how"] == "unknown").all():
        raise LackingError("no neighbour of a winner was measured, and the step-time model predicts none")
    cells = in_order(table, {(str(model), int(nodes)) for model, nodes in table[CELL].itertuples(index=False)})
    columns = [
        (axis, step) for axis in STEPPED for step in STEPS if ((table["axis"] == axis) & (table["step"] == step)).any()
    ]
    shown = cells[:MOST_ROWS]
    figure = style.sheet(
        "The winners and their neighbours",
        held=[f"{metric.label.split(' (')[0]} of the neighbour against the winner of its cell", f"{len(cells)} cells"],
        notes=[
            "A neighbour differs from the winner by the next value (−, +) of one axis, or the best of values "
            "without an order; data-parallel degree and accumulation follow. Below its value: how much slower (−) "
            "or faster (+) it is. In italics with ≈: not measured, predicted by the step-time model. tie: "
            "measured within noise. edge: the sweep has no further value there, though one is possible. cannot "
            "run: the plan rejects it. Empty: there is none, or nothing is known of it.",
            *[f"{len(cells) - len(shown)} cells are left out."] * (len(cells) > len(shown)),
        ],
        simulated=is_simulated(tables.records),
        height_in=ROW_IN * (len(shown) + 1),
    )
    _draw(figure.axes[0], table, shown, columns)
    return figure


def _draw(axes: Axes, table: pd.DataFrame, cells: list[tuple[str, int]], columns: list[tuple[str, int]]) -> None:
    from matplotlib.patches import Rectangle

    places = {cell: y for y, cell in enumerate(cells)}
    worst = max(0.05, 1 - float(table["ratio"].min())) if table["ratio"].notna().any() else 1.0
    tiles = {  # of several values without an order the best, which comes last
        (columns.index((row["axis"], row["step"])), places.get((str(row["model"]), int(row["nodes"])))): row
        for row in as_rows(table.sort_values("ratio", na_position="first", kind="stable"))
    }
    for (x, y), row in tiles.items():
        if y is None:
            continue
        face = _face(row, worst)
        if face is not None:
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", linewidth=1))
        _write(axes, x, y, row)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(cells), 0)
    names = [f"{short_name(axis)} {STEPS[step]}" for axis, step in columns]
    axes.set_xticks([x + 0.5 for x in range(len(columns))], names, fontsize=style.SMALL)
    axes.xaxis.tick_top()
    labels = [shortened(f"{model} · {nodes} node{'s' * (nodes > 1)}", LABEL_PT, style.SMALL) for model, nodes in cells]
    axes.set_yticks([y + 0.5 for y in range(len(cells))], labels, fontsize=style.SMALL)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _face(row: dict[str, Any], worst: float) -> Any:
    """Deeper blue the further it is behind, orange where it is ahead; grey where it cannot be."""
    from matplotlib.colors import to_rgb

    if row["how"] in ("failed", "rejected"):
        return "#e8e8e8"
    if row["how"] == "edge":
        return "#f7f7f7"
    if math.isnan(row["ratio"]):
        return None
    far = to_rgb(BEHIND if row["ratio"] <= 1 else AHEAD)
    strength = 0.0 if abs(1 - row["ratio"]) < ROUNDED else min(1.0, abs(1 - row["ratio"]) / worst)
    return tuple(1 - (0.25 + 0.75 * strength) * (1 - part) for part in far)


def _write(axes: Axes, x: int, y: int, row: dict[str, Any]) -> None:
    below = {"edge": "edge", "failed": _short(row["reason"]), "rejected": _rejected(row["reason"])}.get(row["how"], "")
    if not math.isnan(row["ratio"]):
        below = f"{'≈' if row['how'] == 'predicted' else ''}{_percent(row['ratio'])}{' tie' if row['tie'] else ''}"
    ink = style.FAINT if row["how"] in ("edge", "failed", "rejected", "unknown") else style.INK
    slant = "italic" if row["how"] == "predicted" else "normal"
    text = "\n".join(part for part in (row["value"], below) if part)
    axes.text(
        x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=5.75, color=ink, style=slant, parse_math=False,
        linespacing=1.05,
    )  # fmt: skip


def _percent(ratio: float) -> str:
    percent = 100 * (ratio - 1)
    return f"{percent:+.0f} %".replace("-", "−") if abs(percent) >= 100 * ROUNDED else "0 %"


def _rejected(reason: str) -> str:
    """By what, where it is memory; a rule's name is longer than a tile."""
    return reason if reason == "memory" else "cannot run"


def _short(reason: str) -> str:
    return {"oom_cuda": "OOM", "oom_host": "OOM host", "unknown": "failed"}.get(reason, reason.replace("_", " ")[:12])
