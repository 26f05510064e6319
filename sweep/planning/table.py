"""The plan as a table: one row per candidate, runs first and in their order, then the rejected with every reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sweep.planning.arrow import numbers, words
from sweep.planning.columns import Columns, Indices
from sweep.planning.reasons import Book

INTEGERS = (
    *("nodes", "gpus", "gpus_per_node", "sequence_length"),
    *("dp", "tp", "pp", "cp", "ep", "zero", "micro_batch_size", "grad_accum"),
)
WORDS = ("model", "recompute", "pp_schedule", "dtype", "params", "env")
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
"""status: run or rejected. position: the place in the order of measuring; null where rejected, as are run_id, run_json,
repeat and predictions of time. predicted_peak_bytes: of the heaviest rank, as torch counts it; null where it is not
known what the workload keeps. predicted_step_s: of one optimizer step, predicted_s: of one attempt; null where the
hardware's speed is not known. params and env are JSON. dp and grad_accum are null where their equation has no
solution."""


class Words:
    """The texts of each column of words, with numbers that hold over the whole table."""

    def __init__(self) -> None:
        self.books: dict[str, Book] = {name: Book() for name in (*WORDS, "reasons")}

    def codes(self, columns: Columns, name: str, rows: Indices) -> Indices:
        """The numbers of the column's values at the rows."""
        if name in ("params", "env"):
            return _codes_of_json(self, columns, name, rows)
        column = columns[name]
        if np.ndim(column) == 0:
            return np.full(len(rows), self.books[name].number(str(column)))
        values, inverse = np.unique(column[rows], return_inverse=True)
        return np.asarray([self.books[name].number(str(v)) for v in values], dtype=np.int64)[inverse]

    def array(self, name: str, codes: Indices) -> Any:
        """Numbers as an Arrow dictionary column."""
        return words(codes, self.books[name].texts)


def _codes_of_json(book: Words, columns: Columns, name: str, rows: Indices) -> Indices:
    """One JSON text per combination of parameters (or variables) that occurs."""
    parts = columns.named[name]
    combined = np.zeros(len(rows), dtype=np.int64)
    for part in parts:
        if part in columns.codes:
            combined = combined * len(columns.values_of(part)) + columns.codes[part][rows]
    kinds, inverse = np.unique(combined, return_inverse=True)
    numbers = [book.books[name].number(_json(columns, parts, int(kind))) for kind in kinds]
    return np.asarray(numbers, dtype=np.int64)[inverse]


def _json(columns: Columns, parts: Sequence[str], kind: int) -> str:
    chosen: dict[str, Any] = {}
    for part in reversed(parts):
        values = columns.values_of(part)
        kind, index = divmod(kind, len(values)) if part in columns.codes else (kind, 0)
        chosen[part] = values[index]
    return json.dumps(chosen, sort_keys=True, separators=(",", ":"))


def integers(columns: Columns, name: str, rows: Indices) -> Any:
    """The column at the rows, scalars repeated."""
    column = columns[name]
    if np.ndim(column) == 0:
        return np.full(len(rows), column)
    return column[rows]


def candidates(columns: Columns, rows: Indices, book: Words) -> dict[str, Any]:
    """The rows as arrays: small ones, since there may be millions."""
    whole = np.broadcast_to(columns["dp is whole"], columns.size)[rows]
    near = np.broadcast_to(columns["batch is near"], columns.size)[rows] & whole
    missing = {"dp": ~whole, "grad_accum": ~near, "global_batch_tokens": ~near}
    out: dict[str, Any] = {}
    for name in INTEGERS:
        out[name] = numbers(integers(columns, name, rows), pa.int32(), missing.get(name))
    tokens = integers(columns, "global_batch_tokens", rows)
    out["global_batch_tokens"] = numbers(tokens, pa.int64(), missing["global_batch_tokens"])
    out["compile"] = numbers(integers(columns, "compile", rows), pa.bool_())
    for name in WORDS:
        out[name] = book.codes(columns, name, rows).astype(np.int32)
    return out


def table_of(status: str, size: int, arrays: Mapping[str, Any], book: Words) -> Any:
    """Arrays of one status as a table of the SCHEMA; what is absent is null."""
    arrays = dict(arrays)
    arrays["status"] = words(np.zeros(size), [status])
    for name in WORDS:
        arrays[name] = book.array(name, arrays[name])
    full = [arrays[f.name] if f.name in arrays else pa.nulls(size, f.type) for f in SCHEMA]
    return pa.Table.from_arrays(full, schema=SCHEMA)
