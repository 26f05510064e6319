"""Spread of step times over iterations, and nodes whose ranks are slower than the others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.derive.best import completed, counting, is_simulated, succeeded
from analysis.derive.nodes import health, rank_times
from analysis.figures import style
from analysis.figures.data import LackingError, Tables
from analysis.heatmap.caption import held_fixed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES = 24


def draw(tables: Tables) -> Figure:
    """Left: spread over iterations of every run, sorted. Right: the nodes whose ranks are slowest."""
    rows = counting(completed(tables.records))
    rows = rows[succeeded(rows)]
    spread = _spread(rows)
    nodes = health(tables.records)
    ranks = rank_times(tables.records)
    if spread.empty and ranks.empty:
        raise LackingError("no record states the times of single iterations or ranks")
    panels = [name for name, known in (("runs", len(spread)), ("nodes", len(ranks))) if known]
    figure = style.sheet(
        "Spread of step times" + (" and slow nodes" if len(ranks) else ""),
        held=held_fixed(rows),
        notes=_notes(panels, nodes),
        simulated=is_simulated(rows),
        columns=len(panels),
        height_in=max(2.6, 0.6 + 0.13 * min(len(nodes), MOST_NODES)) if len(ranks) else 2.6,
    )
    for axes, name in zip(figure.axes, panels, strict=True):
        if name == "runs":
            _draw_runs(axes, spread)
        else:
            _draw_nodes(axes, nodes.head(MOST_NODES), ranks)
    return figure


def _spread(rows: pd.DataFrame) -> pd.DataFrame:
    """Fastest and slowest iteration over the median, %, sorted by the slowest."""
    times: pd.DataFrame = rows[["step_time_min_s", "step_time_median_s", "step_time_max_s"]].astype(float).dropna()
    times = times[times["step_time_median_s"] > 0]
    low = 100 * (times["step_time_min_s"] / times["step_time_median_s"] - 1)
    high = 100 * (times["step_time_max_s"] / times["step_time_median_s"] - 1)
    found: pd.DataFrame = times.assign(low=low, high=high)
    found = found[(found["high"] > 0) | (found["low"] < 0)]  # a source with medians only has no spread
    return found.sort_values("high", kind="stable")


def _draw_runs(axes: Axes, spread: pd.DataFrame) -> None:
    share = 100 * (np.arange(len(spread)) + 1) / len(spread)
    share = share - 50 / len(spread)
    dots: dict[str, Any] = {"linestyle": "none", "markersize": 3.5 if len(spread) <= 60 else 1.5}
    axes.vlines(share, spread["low"], spread["high"], color="#b3d4ea", linewidth=max(0.4, min(3.0, 120 / len(spread))))
    axes.plot(share, spread["high"], "o", color=style.COLOURS[1], label="slowest iteration", **dots)
    axes.plot(share, spread["low"], "s", color=style.COLOURS[2], label="fastest iteration", **dots)
    axes.axhline(0, color=style.INK, linewidth=0.6)
    axes.set_xlim(0, 100)
    top = float(spread["high"].max())
    if top > 60:
        axes.set_yscale("symlog", linthresh=10)
        axes.set_yticks([-10, 0, 10, 100, *([1000] if top > 500 else [])])
    axes.yaxis.set_major_formatter(lambda value, _: f"+{style.tick(value)}" if value > 0 else style.tick(value))
    axes.set_xlabel("share of runs (%), steadiest first")
    axes.set_ylabel("against the run's median iteration (%)")
    axes.set_ylim(1.15 * min(float(spread["low"].min()), -1.0), 1.5 * max(top, 1.0))
    style.ruled(axes)
    style.legend(axes, loc="upper left")
    half = float(np.median(spread["high"]))
    style.panel_title(axes, f"{len(spread):,} runs: slowest iteration {half:+.1f}% (median)")


def _draw_nodes(axes: Axes, nodes: pd.DataFrame, ranks: pd.DataFrame) -> None:
    percent = 100 * (ranks["ratio"].astype(float) - 1)
    by_node = dict(list(percent.groupby(ranks["node"])))
    for at, (node, slow_attempts) in enumerate(zip(nodes["node"], nodes["slow"], strict=True)):
        values = by_node.get(node)
        if values is None:
            continue
        slow = slow_attempts > 0
        colour = style.BAD if slow else style.GOOD
        low, middle, high = np.percentile(values, [5, 50, 95])
        axes.plot([low, high], [at, at], color=colour, linewidth=1.2, alpha=0.6)
        axes.plot(middle, at, "s" if slow else "o", color=colour, markersize=4)
        axes.plot(values.max(), at, "|", color=colour, markersize=5)
    axes.axvline(0, color=style.INK, linewidth=0.6)
    style.row_labels(axes, [_label(row) for row in nodes.to_dict("records")])
    axes.set_xlabel("a rank's step time against the median rank (%)")
    style.ruled(axes, "x")
    style.panel_title(axes, "ranks by node, worst node first")


def _label(row: Mapping[Hashable, Any]) -> str:
    words = [str(row["node"])]
    if row["slow"]:
        words.append(f"slow {row['slow']}×")
    if row["faults"]:
        words.append(f"{row['faults']} fault{'s' * (row['faults'] != 1)}")
    return " · ".join(words)


def _notes(panels: list[str], nodes: pd.DataFrame) -> list[str]:
    notes = []
    if "nodes" in panels:
        notes.append(
            "Dot: median over ranks and attempts; line: 5th to 95th percentile; tick: the slowest. Square: it held an "
            "attempt's slow rank (own time clearly longer than the others'). Fault: an attempt that failed on it in a "
            "way that a node may cause."
        )
        if len(nodes) > MOST_NODES:
            notes.append(f"The worst {MOST_NODES} of {len(nodes)} nodes.")
    return notes
