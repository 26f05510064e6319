"""The winner of each cell against the layouts one step away on every axis: a peak, a plateau, or the edge of the grid.

One step on an axis is the next value that the sweep has for the model; the data-parallel degree and the accumulation
follow, since GPUs and batch are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.derive.axes import AXES
from analysis.derive.best import CELL, best_per_cell, completed, counting, failed, measured
from analysis.metrics import Metric
from analysis.tables import as_rows, items_of
from sweep.records.schema import CONFIGURATION_NAMES

FOLLOWING = ("dp", "grad_accum")
"""They follow from the others: GPUs = dp * tp * pp * cp, batch = dp * micro_batch_size * grad_accum"""
STEPPED = tuple(name for name in AXES if name not in FOLLOWING)
SPLITTING = ("tp", "pp", "cp")
"""Degrees that divide the GPUs with dp"""
ORDERED: Mapping[str, Sequence[str]] = {"recompute": ("none", "selective", "full")}
"""Values in order, from the fastest to the one that needs the least memory; numbers have their own order"""
LAST = {"zero": 3}
"""The highest value of an axis that does not double"""
ROUNDED = 0.005
"""a smaller difference is 0 % in a text"""
COLUMNS = ["model", "nodes", "axis", "step", "value", "ratio", "how", "reason", "tie"]


def neighbours(records: pd.DataFrame, plan: pd.DataFrame | None, metric: Metric) -> pd.DataFrame:
    """A row per winner, axis and step.

    Columns: model, nodes; ``axis``; ``step`` (-1, +1, or 0 for another value of an axis without order); ``value`` of
    the neighbour, as text; ``ratio``: how good it is as a fraction of the winner, above 1 if better; ``how``:
    measured, failed, rejected, edge (the sweep has no further value) or unknown; ``reason``: the outcome of a failure,
    the rule of a rejection; ``tie``: it was measured within noise of the winner.
    """
    winners = best_per_cell(records, metric.name)
    final = counting(completed(records))
    if plan is None or not set(STEPPED) <= set(plan.columns):
        plan = pd.DataFrame(columns=[*CELL, *STEPPED, "status", "reasons"])
    tables = [measured(records, metric), final[failed(final)], plan]
    cells = [dict(iter(table.groupby(CELL))) for table in tables]
    values = _values([*tables, final])
    found = []
    for winner in as_rows(winners):
        cell = winner["model"], winner["nodes"]
        around = [_Rows(of_cell.get(cell, table.head(0)), winner) for of_cell, table in zip(cells, tables, strict=True)]
        better = 1 if metric.higher_is_better else -1
        steps = [(axis, *step) for axis in STEPPED for step in steps_of(winner, axis, values[axis].get(cell[0], set()))]
        found += [
            {**dict(zip(CELL, cell, strict=True)), **side}
            for side in (_compared(winner, around, better, *s) for s in steps)
            if side
        ]
    return pd.DataFrame(found, columns=COLUMNS)


def _values(tables: Sequence[pd.DataFrame]) -> dict[str, dict[str, set[Any]]]:
    """Axis -> model -> the values that the sweep has of it."""
    found: dict[str, dict[str, set[Any]]] = {axis: {} for axis in STEPPED}
    for table in tables:
        for axis in STEPPED:
            pairs = table[["model", axis]].dropna().drop_duplicates()
            for model, value in zip(pairs["model"], pairs[axis], strict=True):
                found[axis].setdefault(model, set()).add(value)
    return found


class _Rows:
    """The rows of a winner's cell that differ from it by one axis, and by what follows from it."""

    def __init__(self, table: pd.DataFrame, winner: Mapping[str, Any]) -> None:
        self.table = table
        compared = [name for name in CONFIGURATION_NAMES if name in table and name not in FOLLOWING and len(table)]
        equal = {name: _equal(self.table[name], winner[name]) for name in compared}
        fixed = [equal.pop(name) for name in compared if name not in STEPPED]
        self._fixed = np.logical_and.reduce([np.ones(len(self.table), bool), *fixed])
        self._equal = equal

    def with_value(self, axis: str, value: Any) -> pd.DataFrame:
        """Those with another value on the axis."""
        if self.table.empty:
            return self.table
        others = [same for name, same in self._equal.items() if name != axis]
        mask = np.logical_and.reduce([self._fixed, _equal(self.table[axis], value), *others])
        return self.table[mask]


def _equal(column: pd.Series[Any], value: Any) -> np.ndarray:
    same = column.isna() if value is None or pd.isna(value) else (column == value).fillna(False)
    return same.to_numpy(bool)


def _compared(
    winner: Mapping[str, Any], around: Sequence[_Rows], better: int, axis: str, step: int, value: Any
) -> dict[str, Any] | None:
    """The row of one neighbour; None where it cannot be. ``value`` None: the sweep has none in that direction.

    ``around``: the measured, failed and planned rows of its cell. ``better``: -1 where a lower value is.
    """
    measured_rows, failed_rows, plan_rows = around
    row: dict[str, Any] = {"axis": axis, "step": step, "value": "" if value is None else _text(value)}
    row |= {"ratio": np.nan, "how": "edge", "reason": "", "tie": False}
    if value is None:
        return row
    found = measured_rows.with_value(axis, value)
    if len(found):
        ratio = (found["value"] / winner["value"]) ** better
        best = ratio.idxmax()
        tie = str(found.loc[best, "run_id"]) in winner["ties"]
        return row | {"ratio": float(ratio[best]), "how": "measured", "tie": tie}
    found = failed_rows.with_value(axis, value)
    if len(found):
        return row | {"how": "failed", "reason": str(found["outcome"].iloc[-1])}
    found = plan_rows.with_value(axis, value)
    if len(found) and (found["status"] == "rejected").all():
        first = next(iter(items_of(found["reasons"].iloc[0])), "")
        return row | {"how": "rejected", "reason": str(first).partition(":")[0]}  # the rule that it names
    return row | {"how": "unknown"} if stepped(winner, axis, value) is not None else None


def stepped(winner: Mapping[str, Any], axis: str, value: Any) -> dict[str, Any] | None:
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


def steps_of(winner: Mapping[str, Any], axis: str, values: set[Any]) -> list[tuple[int, Any]]:
    """(step, value) of the neighbours on an axis. Value None: the sweep has none there, though there may be one.

    None at all where the sweep has one value of the axis, or the winner's is null.
    """
    current = winner[axis]
    if current is None or pd.isna(current) or len(values | {current}) < 2:
        return []
    numbers = all(isinstance(v, (int, float, np.integer, np.floating)) and not isinstance(v, bool) for v in values)
    order: Sequence[Any] = sorted(values | {current}) if numbers else ORDERED.get(axis, ())
    if current not in order:
        return [(0, value) for value in sorted(values - {current}, key=str)]
    order = [value for value in order if value in values or value == current]
    at = order.index(current)
    found = []
    if at > 0 or (numbers and axis not in LAST and current > 1):
        found.append((-1, order[at - 1] if at > 0 else None))
    if at + 1 < len(order) or (numbers and _has_room(winner, axis)):
        found.append((1, order[at + 1] if at + 1 < len(order) else None))
    return found


def _has_room(winner: Mapping[str, Any], axis: str) -> bool:
    """Whether a value above the winner's can exist at all: GPUs and batch allow its double."""
    if axis in LAST:
        return bool(winner[axis] < LAST[axis])
    return stepped(winner, axis, 2 * winner[axis]) is not None


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, (int, float, np.integer, np.floating)) else str(value)


def described(row: Mapping[str, Any]) -> str:
    """One neighbour's result as text: 12 % slower, failed: oom_cuda, not in the sweep."""
    if row["how"] == "measured":
        percent = 100 * (row["ratio"] - 1)
        words = (
            f"{abs(percent):.0f} % {'slower' if percent < 0 else 'faster'}"
            if abs(percent) >= 100 * ROUNDED
            else "as fast"
        )
        return words + (", within noise" if row["tie"] else "")
    texts = {"failed": f"failed: {row['reason']}", "rejected": f"cannot run: {row['reason']}"}
    return texts.get(row["how"], "not in the sweep" if row["how"] == "edge" else "not measured")


def summary(of_winner: pd.DataFrame) -> str:
    """A winner's neighbours in a sentence: how far behind they are, and what would have to be tried."""
    known = of_winner[of_winner["how"] == "measured"]
    edges = list(dict.fromkeys(of_winner.loc[of_winner["how"] == "edge", "axis"]))
    words = []
    if len(known):
        nearest = known.loc[known["ratio"].idxmax()]
        noise = ", within noise" if nearest["tie"] else ""
        of = f"of {len(known)} measured neighbours the nearest" if len(known) > 1 else "the one measured neighbour"
        words.append(f"{of} ({nearest['axis']} {nearest['value']}) is {1 - nearest['ratio']:.0%} behind{noise}")
    if edges:
        words.append(f"at the edge of the grid in {', '.join(edges)}")
    return "; ".join(words)
