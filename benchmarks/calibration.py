"""How far predictions of unmeasured runs are off when `guided` ends a cell: python -m benchmarks.calibration

By the number of measured runs in the cell: the root mean square of (true - predicted) over the posterior's spread (1 if
it were exact), and what `guided` takes it for (`sweep.search.guided.wider`). Of synthetic clusters that no strategy is
judged on; the search replayed has the posterior's own spreads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.synthetic_clusters import synthetic_cluster
from sweep.search import guided
from sweep.search.budget import Budget
from sweep.search.observations import Known
from sweep.search.saving import steps

FIRST, MOST = 1000, 10_000
LIMITS = (1, 5, 8, 12, 20, MOST)


def errors(seed: int) -> Any:
    """(unmeasured runs that can work, 2): error over spread, measured runs of its cell."""
    made = synthetic_cluster(seed)
    c = made.recorded.candidates
    known = Known(c)
    with patch.object(guided, "WIDER", 1.0), patch.object(guided, "FEW", 0.0):
        for _ in steps(known, made.recorded, guided.Guided(), Budget()):
            pass
    rows, posterior = np.flatnonzero(~known.begun & ~made.doomed), known.posterior()
    off = (np.log(made.true_rates[rows]) - posterior.log_rates(rows)) / posterior.spreads(rows)
    measured = np.bincount(c.cells[~np.isnan(known.log_rates)], minlength=len(c.cell_names))
    return np.stack([off, measured[c.cells[rows]]], axis=1)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=120)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    with ProcessPoolExecutor(given.processes) as pool:
        off, measured = np.concatenate(list(pool.map(errors, range(FIRST, FIRST + given.seeds)))).T
    print("| measured runs in the cell | unmeasured runs | error over spread | taken for |\n|---|---|---|---|")
    for low, high in pairwise(LIMITS):
        mine = (measured >= low) & (measured < high)
        taken = guided.WIDER * np.sqrt(1 + guided.FEW / measured[mine])
        shown = f"{low} to {high - 1}" if high < MOST else f"{low} and more"
        print(
            f"| {shown} | {mine.sum():,} | {np.sqrt(np.mean(off[mine] ** 2)):.2f} | {np.sqrt(np.mean(taken**2)):.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
