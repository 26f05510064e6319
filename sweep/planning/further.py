"""What a plan adds to the plans before it: the runs and rejected candidates that none of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweep.planning.arrow import numbers
from sweep.planning.table import INTEGERS, SCHEMA, WORDS

CANDIDATE = ("model", *INTEGERS, "global_batch_tokens", *WORDS[1:], "compile")
"""the columns that tell candidates apart"""


def further(table: Any, earlier: Sequence[Any]) -> Any:
    """The rows of the plan's table (``sweep.planning.table.SCHEMA``) that are new beside the earlier plans' tables.

    A run is known by its run_id; a rejected candidate by its configuration, so that one which was a run stays one.
    """
    is_run = pc.is_valid(table.column("run_id"))
    known = pa.chunked_array([chunk for plan in earlier for chunk in plan.column("run_id").chunks], pa.string())
    runs = table.filter(is_run)
    runs = runs.filter(pc.invert(pc.is_in(runs.column("run_id"), value_set=known.drop_null())))
    before = sum(int(pc.sum(pc.is_valid(plan.column("run_id"))).as_py() or 0) for plan in earlier)
    places = numbers(np.arange(before, before + runs.num_rows), pa.int32())
    at = SCHEMA.get_field_index("position")
    return pa.concat_tables([runs.set_column(at, SCHEMA.field(at), places), _unknown(table, is_run, earlier)])


def _unknown(table: Any, is_run: Any, earlier: Sequence[Any]) -> Any:
    """The rejected candidates that no earlier plan has, in their order."""
    rejected = table.filter(pc.invert(is_run))
    keys = _keys(rejected).append_column("row", pa.array(np.arange(rejected.num_rows)))
    known = pa.concat_tables([_keys(plan) for plan in earlier])
    new = keys.join(known, keys=list(CANDIDATE), join_type="left anti")
    rows = new.column("row")
    return rejected.take(rows.take(pc.sort_indices(rows)))


def _keys(table: Any) -> Any:
    """The columns as values that a join compares: null is equal to nothing there."""
    columns = []
    for name in CANDIDATE:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        columns.append(column if pa.types.is_boolean(column.type) else pc.fill_null(column, _absent(column.type)))
    return pa.table(columns, names=list(CANDIDATE))


def _absent(kind: Any) -> Any:
    return pa.scalar("", kind) if pa.types.is_string(kind) else pa.scalar(-1, kind)
