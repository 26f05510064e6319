"""In which order runs are measured: the most promising of every cell first, then the next of every cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sweep.physics.hardware import Gpu
from sweep.physics.rough import peak_memory_bytes, step_time_s
from sweep.planning.columns import Columns, Indices

ASSUMED_START_S = 30.0
"""import, rendezvous, build and teardown of one attempt, before any is measured"""
ASSUMED_RUN_S = 60.0
"""one attempt on hardware whose speed is not known"""


def merits(columns: Columns, rows: Indices, gpu: Gpu) -> tuple[Any, Any]:
    """(step time in seconds, cost) of each row; by cost the runs are ordered.

    The cost is the time per token, a hundred times as much where the rough peak memory is over what the GPU has.
    """
    taken = _Taken(columns, rows)
    step_s = np.broadcast_to(step_time_s(taken, gpu), len(rows))
    cost = step_s / taken["global_batch_tokens"]
    if gpu.memory_bytes is not None:
        cost = np.where(peak_memory_bytes(taken) > gpu.memory_bytes, 100 * cost, cost)
    return step_s, np.broadcast_to(cost, len(rows))


class _Taken(Mapping[str, Any]):
    """Some rows of columns, taken when asked for."""

    def __init__(self, columns: Columns, rows: Indices) -> None:
        self._columns, self._rows = columns, rows

    def __getitem__(self, name: str) -> Any:
        column = self._columns[name]
        return column if np.ndim(column) == 0 else column[self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def order(cells: Sequence[Any], costs: Any, repeats: Any, ids: Sequence[str]) -> Indices:
    """The order of the runs, given each one's (nodes, model), cost, repeat and run_id."""
    digest = np.array([int(run_id[-16:], 16) for run_id in ids], dtype=np.uint64)
    numbers = {cell: i for i, cell in enumerate(sorted(set(cells)))}
    cell = np.array([numbers[c] for c in cells], dtype=np.int64)
    cost, repeat = np.asarray(costs, dtype=np.float64), np.asarray(repeats, dtype=np.int64)
    by_cell = np.lexsort((digest, cost, repeat, cell))
    starts = np.concatenate([[True], np.diff(cell[by_cell]) != 0]) if len(by_cell) else np.array([], dtype=bool)
    place = np.arange(len(by_cell)) - np.maximum.accumulate(np.where(starts, np.arange(len(by_cell)), 0))
    rank = np.empty(len(by_cell), dtype=np.int64)
    rank[by_cell] = place
    found: Indices = np.lexsort((digest, cell, rank, repeat))
    return found
