"""The limits of prediction on recorded results, by kind of row: python -m benchmarks.prediction_limits RESULTS.parquet.

RESULTS comes from `sweep import`. Prints Markdown: the failures that the static rules leave, by predicted memory and by
pipeline, and the successes of the same kind; and the error of predicted peaks, uncalibrated and after a fifth of the
runs, in the order of a sweep and in random orders.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration import calibrate
from sweep.foreign.files import read_recorded
from sweep.physics import memory
from sweep.physics.profiles import PROFILES
from sweep.search.replay import RecordedRun, promising_order

NANOTRON = PROFILES["nanotron"]
USES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
SEEDS = 5
KINDS = ("uncalibrated", "after the first fifth", "after a fifth by chance", "were each run's build known")


def failures(recorded: RecordedRun) -> list[str]:
    """Failures whose layout never worked, that no static rule rejects, by kind."""
    c, ok = recorded.candidates, recorded.worked
    worked_too = np.isin(c.duplicates, c.duplicates[ok])
    failed = ~ok & ~worked_too
    left, use = failed & ~c.impossible, c.memory_use
    lines = [f"{failed.sum()} failed layouts, {(failed & c.impossible).sum()} rejected by the static rules", ""]
    lines += ["| predicted memory, of what there is | failed | worked |", "|---|---|---|"]
    for low, high in itertools.pairwise(USES):
        mine = (use > low) & (use <= high)
        lines.append(f"| {low:.0%} to {high:.0%} | {(left & mine).sum()} | {(ok & mine).sum()} |")
    lines += ["", "| pipeline stages | failed | of these under 60 % of the memory | worked |", "|---|---|---|---|"]
    stages = np.asarray(c.columns["pp"])
    for pp in np.unique(stages[left]):
        mine = stages == pp
        counts = [(left & mine).sum(), (left & mine & (use <= 0.6)).sum(), (ok & mine).sum()]
        lines.append(f"| {pp} | " + " | ".join(map(str, counts)) + " |")
    near = (failed & (c.impossible | (use > 0.6))).sum() / failed.sum()
    return [*lines, "", f"Were all over 60 % rejected, {near:.1%} of the failures would be avoided."]


def peaks(recorded: RecordedRun) -> list[str]:
    """Mean absolute errors of predicted peaks."""
    c, measured = recorded.candidates, recorded.peak_memory_bytes
    rows = np.flatnonzero(recorded.worked & np.isfinite(measured))
    again = memory.breakdown(c.columns, NANOTRON, "first")["total"]
    keeping = dataclasses.replace(NANOTRON, gathered_inputs_retained=True)
    best = np.minimum(_error(again, measured), _error(memory.breakdown(c.columns, keeping, "first")["total"], measured))
    order = np.array([i for i in promising_order(c) if recorded.worked[i] and np.isfinite(measured[i])])
    fifth = len(rows) // 5
    first = _calibrated(c.columns, again, measured, order[:fifth])
    chance = [np.random.default_rng(seed).permutation(rows)[:fifth] for seed in range(SEEDS)]
    by_chance = np.mean([_calibrated(c.columns, again, measured, known) for known in chance], axis=0)
    lines = [f"| peaks of | runs | in the first fifth | {' | '.join(KINDS)} |", "|---" * (3 + len(KINDS)) + "|"]
    errors = (_error(again, measured), first, by_chance, best)
    widths = np.asarray(c.columns["tp"])
    for name, mine in [("all", rows), *((f"tp {tp}", rows[widths[rows] == tp]) for tp in np.unique(widths[rows]))]:
        columns = " | ".join(f"{error[mine].mean():.1%}" for error in errors)
        lines.append(f"| {name} | {len(mine)} | {np.isin(mine, order[:fifth]).sum()} | {columns} |")
    return lines


def _calibrated(columns: Any, predicted: Any, measured: Any, known: Any) -> Any:
    """The error of every run after a calibration by the known ones."""
    some = {name: np.asarray(value)[known] for name, value in columns.items()}
    return _error(predicted * calibrate(some, predicted[known], measured[known]).scale(columns), measured)


def _error(predicted: Any, measured: Any) -> Any:
    return np.abs(predicted / measured - 1)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    recorded = read_recorded(Path(sys.argv[1]), ())
    print("\n".join([*failures(recorded), "", *peaks(recorded)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
