"""The two sides of a comparison: one row per configuration, the best row of each cell, and which rows are a pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.derive import best
from analysis.metrics import Metric
from analysis.tables import as_rows, known
from sweep.contract import LAYOUT_FIELDS

if TYPE_CHECKING:
    import pandas as pd

SAME = ("model", "nodes", "gpus_per_node", "sequence_length", "global_batch_tokens", *LAYOUT_FIELDS)
MAY_CHANGE = ("workload", "gpu", "dtype", "compile", "shape_json", "params_json", "env_json")
"""Part of a run's identity, unless each sweep has one value throughout: then it is what the comparison is about"""

Row = Mapping[str, Any]
Pair = tuple[Row, Row]
"""(of A, of B)"""
Cell = tuple[str, int]


def columns_needed() -> list[str]:
    """The columns that comparisons read."""
    return list(dict.fromkeys([*best.NEEDED, "message", "versions_json", "parameters_total", "started_at"]))


class Side:
    """One sweep: what was measured, one row per configuration, and the best row of each cell."""

    def __init__(self, records: pd.DataFrame, metric: Metric) -> None:
        missing = [name for name in columns_needed() if name not in records and name not in best.CELL]
        records = records.assign(**dict.fromkeys(missing)) if missing else records
        self.all_rows = best.counting(best.completed(records)).dropna(subset=best.CELL)
        measured = best.measured(records, metric)
        measured = measured[(measured["value"] > 0) & measured["stopped"].isna()].sort_values(
            "value", ascending=not metric.higher_is_better
        )
        self.rows = as_rows(measured)
        self.best: dict[Cell, Row] = {}
        for row in self.rows:
            self.best.setdefault(cell_of(row), row)
        tried = self.all_rows[best.succeeded(self.all_rows) | best.failed(self.all_rows)]
        self.tried = {cell_of(row) for row in tried[best.CELL].to_dict("records")}


def identity(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Columns that make two runs the same, and what differs between the sweeps as a whole."""
    names, conditions = list(SAME), []
    for name in MAY_CHANGE:
        here, there = (sorted({str(v) for v in frame[name].dropna()}) for frame in (a, b))
        if here != there and len(here) <= 1 and len(there) <= 1:
            conditions.append((name, "".join(here) or "not stated", "".join(there) or "not stated"))
        else:
            names.append(name)
    return names, conditions


def key_of(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """What a run is, comparable between sweeps: 8 and 8.0 are equal, missing values are None."""
    values = (row.get(name) for name in names)  # an older table has no column of a further field
    return tuple((str(one) if isinstance(one, str) else float(one)) if known(one) else None for one in values)


def cell_of(row: Row) -> Cell:
    """(model, nodes)."""
    return str(row["model"]), int(row["nodes"])


def pairs_of(a: Sequence[Row], b: Sequence[Row], names: Sequence[str]) -> Iterator[Pair]:
    """Rows of the same configuration. Where a side has it twice, the better row."""
    there: dict[tuple[Any, ...], Row] = {}
    for row in b:
        there.setdefault(key_of(row, names), row)
    for row in a:
        other = there.pop(key_of(row, names), None)
        if other is not None:
            yield row, other
