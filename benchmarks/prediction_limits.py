"""The limits of prediction on recorded results, by kind of row: python -m benchmarks.prediction_limits RESULTS.parquet.

RESULTS comes from `sweep import`. Prints Markdown: the failures that the static rules leave, by predicted memory and by
pipeline, and the successes of the same kind.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

from sweep.foreign.files import read_recorded
from sweep.search.saving import RecordedRun

USES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)


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


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    recorded = read_recorded(Path(sys.argv[1]), ())
    print("\n".join(failures(recorded)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
