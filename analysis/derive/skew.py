"""Whether the best configuration of balanced routing is also the best where tokens prefer some experts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.derive.best import CELL, completed, measured
from analysis.metrics import Metric
from analysis.tables import as_rows
from sweep.records.schema import CONFIGURATION_NAMES

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import pandas as pd

BALANCED = "balanced"


def under_skew(records: pd.DataFrame, metric: Metric) -> list[dict[str, Any]]:
    """A row per cell and other routing, where both were measured, cells in the order of the records.

    ``model``, ``nodes``, ``routing``; ``balanced`` and ``best``: the records of both winners; ``measured``: whether the
    balanced winner was measured under this routing; then ``loss``: what it loses there against the best, as a
    fraction; ``stays``: it is the best there, or their intervals overlap.
    """
    rows = as_rows(measured(completed(records), metric))
    sign = 1 if metric.higher_is_better else -1
    cells: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in sorted(rows, key=lambda row: -sign * float(row["value"])):
        cells.setdefault(tuple(row[name] for name in CELL), {}).setdefault(str(row["routing"]), []).append(row)
    found = []
    for by_routing in cells.values():
        if BALANCED in by_routing:
            winner = by_routing.pop(BALANCED)[0]
            found += [_compared(winner, routing, by_routing[routing], sign) for routing in sorted(by_routing)]
    return found


def _compared(winner: Mapping[str, Any], routing: str, others: list[dict[str, Any]], sign: int) -> dict[str, Any]:
    """``others``: the cell's configurations under the routing, the best first."""
    best = others[0]
    again = next((row for row in others if _configuration(row) == _configuration(winner)), None)
    facts = {"model": winner["model"], "nodes": int(winner["nodes"]), "routing": routing}
    facts |= {"balanced": winner, "best": best, "measured": again is not None}
    if again is None:
        return {**facts, "loss": None, "stays": False}
    ratio = float(again["value"]) / float(best["value"])
    overlap = again["high"] >= best["low"] if sign > 0 else again["low"] <= best["high"]
    return {**facts, "loss": 1 - ratio if sign > 0 else 1 - 1 / ratio, "stays": bool(overlap)}


def _configuration(row: Mapping[str, Any]) -> Hashable:
    return tuple(str(row.get(name)) for name in CONFIGURATION_NAMES if name != "routing")
