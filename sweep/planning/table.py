"""The plan as a table: one row per candidate, runs first and in their order, then the rejected with every reason.

Arrow arrays are made from numpy arrays and texts by their buffers, since ``pa.array`` imports pandas, even for a list
of texts. A plan of 6,144 candidates (``benchmarks/plan_speed.py 10``) took 1.4 s of CPU and 160 MiB with it, 1.0 s and
119 MiB without; one of 1.4 million 3.7 s and 490 MiB, without 3.3 s and 410 MiB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sweep.contract import LAYOUT_NUMBERS, LAYOUT_WORDS, further_of
from sweep.planning.expand import Columns, Indices
from sweep.planning.reasons import Numbered, combinations

INTEGERS = ("nodes", "gpus", "gpus_per_node", "sequence_length", *LAYOUT_NUMBERS)
WORDS = ("model", *LAYOUT_WORDS, "dtype", "params", "env", "further")
TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("status", TEXT),
        ("position", pa.int32()),
        ("run_id", pa.string()),
        ("model", TEXT),
        *((name, pa.int32()) for name in INTEGERS),
        ("global_batch_tokens", pa.int64()),
        *((name, TEXT) for name in WORDS[1:]),
        ("compile", pa.bool_()),
        ("repeat", pa.int32()),
        ("predicted_peak_bytes", pa.int64()),
        ("predicted_step_s", pa.float64()),
        ("predicted_s", pa.float64()),
        ("run_json", pa.string()),
        ("reasons", pa.list_(TEXT)),
    ]
)
"""status: run or rejected. position: the place in the measurement order; null if rejected, as are run_id, run_json,
repeat and predictions of time. predicted_peak_bytes: of the heaviest rank, as torch counts it; null if the
workload's memory profile is unknown. predicted_step_s: of one optimizer step, predicted_s: of one attempt; null if the
hardware's speed is unknown. params, env and further (fields of the layout that are not at their default:
``sweep.contract.FURTHER``) are JSON. dp and grad_accum are null if their equation has no solution."""


MOST_TEXT_BYTES = int(np.iinfo(np.int32).max)
"""of one Arrow array: its offsets are 32-bit"""
PARQUET = {
    "compression": "zstd",
    "use_dictionary": ["status", *WORDS, "reasons.list.element"],
    "write_statistics": False,
    "write_page_checksum": True,
}
"""how a plan is written: plans are read whole, and numbers of millions of candidates cost less as they are"""
CANDIDATE = ("model", *INTEGERS, "global_batch_tokens", *WORDS[1:], "compile")
"""the columns that distinguish candidates"""


class Words:
    """The texts of each text column, with numbers that are valid for the whole table."""

    def __init__(self) -> None:
        self.numbered = {name: Numbered() for name in (*WORDS, "reasons")}

    def codes(self, columns: Columns, name: str, rows: Indices) -> Indices:
        """The numbers of the column's values at the rows."""
        if name in ("params", "env", "further"):
            kinds, places = combinations(columns, columns.named[name], rows)
            if name == "further":
                kinds = [further_of(kind) for kind in kinds]
            texts = [json.dumps(kind, sort_keys=True, separators=(",", ":")) for kind in kinds]
            return np.asarray([self.numbered[name][text] for text in texts], dtype=np.int64)[places]
        column = "model row" if name == "model" else name
        known = columns.coded(column)
        if known is None:
            return np.full(len(rows), self.numbered[name][str(columns[column])])
        values, codes = known
        return np.asarray([self.numbered[name][str(v)] for v in values], dtype=np.int64)[codes[rows]]

    def dictionaries(self) -> dict[str, Any]:
        """Column -> its texts, which all chunks of the table share: one of each chunk's own would be quadratic."""
        status = {"status": texts(["run", "rejected"])}
        return status | {name: texts(list(known)) for name, known in self.numbered.items()}


def integers(columns: Columns, name: str, rows: Indices) -> Any:
    """The column at the rows, scalars repeated."""
    column = columns[name]
    if np.ndim(column) == 0:
        return np.full(len(rows), column)
    return column[rows]


def candidates(columns: Columns, rows: Indices, known: Words) -> dict[str, Any]:
    """The rows as arrays: small ones, since there may be millions."""
    whole = np.broadcast_to(columns["dp is whole"], columns.size)[rows]
    near = np.broadcast_to(columns["batch is near"], columns.size)[rows] & whole
    missing = {"dp": ~whole, "grad_accum": ~near, "global_batch_tokens": ~near}
    plain = plain_candidates(columns, rows, known)
    return {name: one if name in WORDS else typed(name, one, missing.get(name)) for name, one in plain.items()}


def plain_candidates(columns: Columns, rows: Indices, known: Words) -> dict[str, Any]:
    """The rows by column, whether or not their equations have a solution; texts by their numbers."""
    names = (*INTEGERS, "global_batch_tokens", "compile")
    out = {name: integers(columns, name, rows) for name in names}
    return out | {name: known.codes(columns, name, rows).astype(np.int32) for name in WORDS}


def table_of(size: int, arrays: Mapping[str, Any], dictionaries: Mapping[str, Any]) -> Any:
    """Arrays of one status as a table of the SCHEMA; absent columns are null."""
    coded = {name: words(arrays[name], dictionaries[name]) for name in ("status", *WORDS)}
    arrays = {**arrays, **coded}
    full = [arrays[f.name] if f.name in arrays else pa.nulls(size, f.type) for f in SCHEMA]
    return pa.Table.from_arrays(full, schema=SCHEMA)


def numbers(values: npt.NDArray[Any], kind: Any, missing: npt.NDArray[np.bool_] | None = None) -> Any:
    """The numbers as an array of the Arrow type ``kind``, null where ``missing``."""
    if pa.types.is_boolean(kind):
        data = np.packbits(values.astype(bool), bitorder="little")
    else:
        data = np.ascontiguousarray(values, dtype=kind.to_pandas_dtype())
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data)])


def typed(name: str, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> Any:
    """The numbers as an array of the column's type in SCHEMA."""
    return numbers(values, SCHEMA.field(name).type, missing)


def texts(values: Sequence[str]) -> Any:
    """The texts as an array."""
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if ends[-1] > MOST_TEXT_BYTES:
        raise OverflowError("over 2 GiB of text in one array")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def words(codes: npt.NDArray[Any], dictionary: Any) -> Any:
    """Codes into an array of texts."""
    return pa.DictionaryArray.from_arrays(numbers(codes, pa.int32()), dictionary)


def lists(offsets: npt.NDArray[Any], values: Any) -> Any:
    """One list per pair of neighbouring offsets."""
    return pa.ListArray.from_arrays(numbers(offsets, pa.int32()), values)


def further(table: Any, earlier: Sequence[Any]) -> Any:
    """The rows of the plan's table (``sweep.planning.table.SCHEMA``) that no earlier plan has.

    A run is identified by its run_id; a rejected candidate by its configuration, so that a run stays a run.
    """
    import pyarrow.compute as pc  # import takes a tenth of a second: only an extension needs it

    is_run = pc.is_valid(table.column("run_id"))
    known = pa.chunked_array([chunk for plan in earlier for chunk in plan.column("run_id").chunks], pa.string())
    runs = table.filter(is_run)
    runs = runs.filter(pc.invert(pc.is_in(runs.column("run_id"), value_set=known.drop_null())))
    before = sum(int(pc.sum(pc.is_valid(plan.column("run_id"))).as_py() or 0) for plan in earlier)
    places = numbers(np.arange(before, before + runs.num_rows), pa.int32())
    at = SCHEMA.get_field_index("position")
    rejected = table.filter(pc.invert(is_run))
    keys = _keys(rejected).append_column("row", pa.array(np.arange(rejected.num_rows)))
    before_keys = pa.concat_tables([_keys(plan) for plan in earlier])
    rows = keys.join(before_keys, keys=list(CANDIDATE), join_type="left anti").column("row")
    unknown = rejected.take(rows.take(pc.sort_indices(rows)))
    return pa.concat_tables([runs.set_column(at, SCHEMA.field(at), places), unknown])


def _keys(table: Any) -> Any:
    """The columns as values that a join compares: null is equal to nothing there."""
    import pyarrow.compute as pc

    columns = []
    for name in CANDIDATE:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        absent = "" if pa.types.is_string(column.type) else -1
        columns.append(column if pa.types.is_boolean(column.type) else pc.fill_null(column, absent))
    return pa.table(columns, names=list(CANDIDATE))
