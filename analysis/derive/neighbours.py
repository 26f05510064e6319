"""The winner of each cell against what differs from it on one axis: a peak, a plateau, or the edge of the grid.

The data-parallel degree and the accumulation follow a step on another axis, since GPUs and batch are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.derive.axes import AXES
from analysis.derive.best import best_per_cell, completed, counting, measured
from analysis.metrics import Metric
from analysis.tables import as_rows, known
from sweep.records.schema import CONFIGURATION_NAMES

FOLLOWING = ("dp", "grad_accum")
"""They follow from the others: GPUs = dp * tp * pp * cp, batch = dp * micro_batch_size * grad_accum"""
STEPPED = tuple(name for name in AXES if name not in FOLLOWING)
SPLITTING = ("tp", "pp", "cp")
"""Degrees that divide the GPUs with dp"""
LAST = {"zero": 3}
"""The highest value of an axis that does not double"""
Row = Mapping[str, Any]


def neighbours(records: pd.DataFrame, plan: pd.DataFrame | None, metric: Metric) -> dict[tuple[Any, ...], str]:
    """(model, nodes) -> how far behind the winner the nearest of those is that differ by one axis, and on which axes it
    has the last value that the sweep has, though there may be a further one. Empty where neither can be said.
    """
    winners, rows = best_per_cell(records, metric.name), measured(records, metric)
    of_cell: dict[tuple[Any, ...], list[Row]] = {}
    for row in as_rows(rows[rows["stopped"].isna()]):
        of_cell.setdefault((row["model"], row["nodes"]), []).append(row)
    planned = [plan] if plan is not None and set(STEPPED) <= set(plan.columns) else []
    values = _values([counting(completed(records)), *planned])
    found = {}
    for winner in as_rows(winners):
        model, nodes = winner["model"], winner["nodes"]
        apart = [(_apart(winner, row), row) for row in of_cell[model, nodes]]
        around = [(name, row) for names, row in apart for name in names if len(names) == 1 and name in STEPPED]
        edges = [axis for axis in STEPPED if at_edge(winner, axis, values[axis].get(model, set()))]
        words = [_nearest(winner, around, metric)] if around else []
        words += [f"at the edge of the grid in {', '.join(edges)}"] if edges else []
        found[model, nodes] = "; ".join(words)
    return found


def _nearest(winner: Row, around: Sequence[tuple[str, Row]], metric: Metric) -> str:
    """``around``: (axis, row)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (np.array([row["value"] for _, row in around], float) / winner["value"]) ** metric.better
    axis, row = around[int(np.argmax(ratios))]
    noise = ", within noise" if str(row["run_id"]) in winner["ties"] else ""
    of = f"of {len(around)} runs one axis away, the best" if len(around) > 1 else "the one run one axis away"
    return f"{of} ({axis} {_text(row[axis])}) is {1 - ratios.max():.0%} behind{noise}"


def _apart(one: Row, other: Row) -> list[str]:
    """In what two configurations differ, but for what follows from it."""
    return [
        name
        for name in CONFIGURATION_NAMES
        if name not in FOLLOWING
        and (known(one[name]) != known(other[name]) or (known(one[name]) and one[name] != other[name]))
    ]


def _values(tables: Sequence[pd.DataFrame]) -> dict[str, dict[str, set[Any]]]:
    """Axis -> model -> the values that the sweep has of it."""
    found: dict[str, dict[str, set[Any]]] = {axis: {} for axis in STEPPED}
    for table in tables:
        for axis in STEPPED:
            pairs = table[["model", axis]].dropna().drop_duplicates()
            for model, value in zip(pairs["model"], pairs[axis], strict=True):
                found[axis].setdefault(model, set()).add(value)
    return found


def at_edge(winner: Row, axis: str, values: set[Any]) -> bool:
    """Whether the winner has the first or the last value of an axis of numbers, and there may be one beyond: GPUs and
    batch allow its double, or its half. Not where the sweep has one value, or the winner's is null.
    """
    current, numbers = winner[axis], [one for one in values if isinstance(one, (int, float, np.number))]
    if len(numbers) < len(values) or len(values) < 2 or current not in values or isinstance(current, (bool, np.bool_)):
        return False
    if axis in LAST:
        return bool(current == max(numbers) < LAST[axis])
    first, last = current == min(numbers), current == max(numbers)
    return bool((first and current > 1) or (last and stepped(winner, axis, 2 * current) is not None))


def stepped(winner: Row, axis: str, value: Any) -> dict[str, Any] | None:
    """The winner's record with another value on an axis, dp and grad_accum following; None if they are not whole."""
    read = [*FOLLOWING, "micro_batch_size", *((axis,) if axis in SPLITTING else ())]
    if any(pd.isna(winner[name]) for name in read):
        return None
    layout = {**winner, axis: value}
    if axis in SPLITTING:
        layout["dp"] = winner["dp"] * winner[axis] / value
    if axis in (*SPLITTING, "micro_batch_size"):
        sequences = winner["dp"] * winner["micro_batch_size"] * winner["grad_accum"]
        layout["grad_accum"] = sequences / (layout["dp"] * layout["micro_batch_size"])
    whole = all(layout[name] >= 1 and float(layout[name]).is_integer() for name in FOLLOWING)
    return {**layout, **{name: int(layout[name]) for name in FOLLOWING}} if whole else None


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, (int, float, np.integer, np.floating)) else str(value)
