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
Row = Mapping[str, Any]


def neighbours(records: pd.DataFrame, plan: pd.DataFrame | None, metric: Metric) -> dict[tuple[Any, ...], list[Row]]:
    """(model, nodes) -> a row per axis and step from the winner.

    Columns: ``axis``; ``step`` (-1, +1, or 0 for another value of an axis without order); ``value`` of
    the neighbour, as text; ``ratio``: how good it is as a fraction of the winner, above 1 if better; ``how``:
    measured, failed, rejected, edge (the sweep has no further value) or unknown; ``reason``: the outcome of a failure,
    the rule of a rejection; ``tie``: it was measured within noise of the winner.
    """
    winners = best_per_cell(records, metric.name)
    final = counting(completed(records))
    if plan is None or not set(STEPPED) <= set(plan.columns):
        plan = pd.DataFrame(columns=[*CELL, *STEPPED, "status", "reasons"])
    tables = [measured(records, metric), final[failed(final)], plan]
    of_axis = [_one_axis_away(table, winners) for table in tables]
    values = _values([*tables, final])
    better = 1 if metric.higher_is_better else -1
    found: dict[tuple[Any, ...], list[Row]] = {}
    for winner in as_rows(winners):
        cell = winner["model"], winner["nodes"]
        for axis in STEPPED:
            around = [rows.get((*cell, axis), []) for rows in of_axis]
            steps = steps_of(winner, axis, values[axis].get(cell[0], set()))
            sides = (_compared(winner, around, better, axis, *step) for step in steps)
            found.setdefault(cell, []).extend(filter(None, sides))
    return found


def _values(tables: Sequence[pd.DataFrame]) -> dict[str, dict[str, set[Any]]]:
    """Axis -> model -> the values that the sweep has of it."""
    found: dict[str, dict[str, set[Any]]] = {axis: {} for axis in STEPPED}
    for table in tables:
        for axis in STEPPED:
            pairs = table[["model", axis]].dropna().drop_duplicates()
            for model, value in zip(pairs["model"], pairs[axis], strict=True):
                found[axis].setdefault(model, set()).add(value)
    return found


def _one_axis_away(table: pd.DataFrame, winners: pd.DataFrame) -> dict[tuple[Any, ...], list[Row]]:
    """(model, nodes, axis) -> the rows that differ from the cell's winner by that axis, and by what follows from it."""
    names = [name for name in CONFIGURATION_NAMES if name in table and name not in (*CELL, *FOLLOWING)]
    if table.empty:
        return {}
    theirs = winners.set_index(CELL)[names].add_prefix("best ")
    rows = table.join(theirs, on=CELL, how="inner").reset_index(drop=True)
    differs = pd.DataFrame({name: ~_equal(rows[name], rows[f"best {name}"]) for name in names})
    one = differs[differs.sum(axis=1) == 1].idxmax(axis=1)
    found: dict[tuple[Any, ...], list[Row]] = {}
    for axis, row in zip(one, as_rows(rows.loc[one.index, table.columns]), strict=True):
        found.setdefault((row["model"], row["nodes"], axis), []).append(row)
    return found


def _equal(left: pd.Series[Any], right: pd.Series[Any]) -> pd.Series[bool]:
    """Where both have the same value, or neither has one."""
    same = left.astype(object) == right.astype(object)
    return same.fillna(False).astype(bool) | (left.isna() & right.isna())


def _compared(
    winner: Row,
    around: Sequence[Sequence[Row]],
    better: int,
    axis: str,
    step: int,
    value: Any,
) -> dict[str, Any] | None:
    """The row of one neighbour; None where it cannot be. ``value`` None: the sweep has none in that direction.

    ``around``: the measured, failed and planned rows that differ by the axis. ``better``: -1 where a lower value is.
    """
    row: dict[str, Any] = {"axis": axis, "step": step, "value": "" if value is None else _text(value)}
    row |= {"ratio": np.nan, "how": "edge", "reason": "", "tie": False}
    if value is None:
        return row
    measured_rows, failed_rows, plan_rows = ([one for one in rows if one[axis] == value] for rows in around)
    if measured_rows:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = (np.array([one["value"] for one in measured_rows], float) / winner["value"]) ** better
        best = int(np.argmax(ratios))
        tie = str(measured_rows[best]["run_id"]) in winner["ties"]
        return row | {"ratio": float(ratios[best]), "how": "measured", "tie": tie}
    if failed_rows:
        return row | {"how": "failed", "reason": str(failed_rows[-1]["outcome"])}
    if plan_rows and all(one["status"] == "rejected" for one in plan_rows):
        first = next(iter(items_of(plan_rows[0]["reasons"])), "")
        return row | {"how": "rejected", "reason": str(first).partition(":")[0]}  # the rule that it names
    return row | {"how": "unknown"} if stepped(winner, axis, value) is not None else None


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


def steps_of(winner: Row, axis: str, values: set[Any]) -> list[tuple[int, Any]]:
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


def _has_room(winner: Row, axis: str) -> bool:
    """Whether a value above the winner's can exist at all: GPUs and batch allow its double."""
    if axis in LAST:
        return bool(winner[axis] < LAST[axis])
    return stepped(winner, axis, 2 * winner[axis]) is not None


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, (int, float, np.integer, np.floating)) else str(value)


def described(row: Row) -> str:
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


def summary(of_winner: Sequence[Row]) -> str:
    """A winner's neighbours in a sentence: how far behind they are, and what would have to be tried."""
    known = [row for row in of_winner if row["how"] == "measured"]
    edges = list(dict.fromkeys(row["axis"] for row in of_winner if row["how"] == "edge"))
    words = []
    if known:
        nearest = max(known, key=lambda row: row["ratio"])
        noise = ", within noise" if nearest["tie"] else ""
        of = f"of {len(known)} measured neighbours the nearest" if len(known) > 1 else "the one measured neighbour"
        words.append(f"{of} ({nearest['axis']} {nearest['value']}) is {1 - nearest['ratio']:.0%} behind{noise}")
    if edges:
        words.append(f"at the edge of the grid in {', '.join(edges)}")
    return "; ".join(words)
