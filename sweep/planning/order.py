"""In which order runs are measured: the most promising of every cell first, then the next of every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sweep.planning.columns import Indices

ASSUMED_START_S = 30.0
"""import, rendezvous, build and teardown of one attempt, before any is measured"""
ASSUMED_RUN_S = 60.0
"""one attempt on hardware whose speed is not known"""


def costs(step_s: Any, tokens: Any, over: Any) -> Any:
    """What runs are ordered by: seconds per token, a hundred times as much where the predicted memory is over."""
    return step_s / tokens * np.where(over, 100.0, 1.0)


def order(cells: Sequence[Any], cost: Any, repeats: Any, ids: Sequence[str]) -> Indices:
    """The order of the runs, given each one's (nodes, model), cost, repeat and run_id."""
    digest = np.array([int(run_id[-16:], 16) for run_id in ids], dtype=np.uint64)
    numbers = {cell: i for i, cell in enumerate(sorted(set(cells)))}
    cell = np.array([numbers[c] for c in cells], dtype=np.int64)
    cost, repeat = np.asarray(cost, dtype=np.float64), np.asarray(repeats, dtype=np.int64)
    by_cell = np.lexsort((digest, cost, repeat, cell))
    starts = np.concatenate([[True], np.diff(cell[by_cell]) != 0]) if len(by_cell) else np.array([], dtype=bool)
    place = np.arange(len(by_cell)) - np.maximum.accumulate(np.where(starts, np.arange(len(by_cell)), 0))
    rank = np.empty(len(by_cell), dtype=np.int64)
    rank[by_cell] = place
    found: Indices = np.lexsort((digest, cell, rank, repeat))
    return found
