"""Do two runs of one layout differ by less than the interval that they state? Measures each layout several times.

    python -m benchmarks.repeatability [--repeats 8] [--iterations 30] [--quiet 0.02] [--json]

Each layout is measured by real sweeps on this machine (local executor, torch, CPU), all first times before any second.
A run has an interval that covers its median step time with at least 90 % confidence. Compared are the medians of every
two runs of one layout: their difference against the narrower of the two intervals, and whether the intervals touch.

This is meaningful on a quiet machine only. So a yardstick, the same matrix products on all cores for a second, is
timed right before and right after each run: a pair is *quiet* where its four readings lie within `--quiet` of each
other. All other pairs are shown separately: they measure the machine's noise, not the measurement's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import torch

from analysis.derive.best import trimmed
from sweep.state.events import Recorded, decoder
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader

GRID = """
name: repeatability
models: [tiny-1M]
nodes: [1]
sequence_length: 128
global_batch: 1024
{axes}
micro_batch_size: 4
dtype: fp32
iterations: {iterations}
params: {{cpu_memory: false}}
site: {{name: here, gpu: cpu, gpus_per_node: {ranks}, max_local_ranks: {ranks}, pilot_time: 30m}}
"""
LAYOUTS = {
    "1 rank": (1, "tp: 1\npp: 1\nzero: 0\nrecompute: none"),
    "1 rank, full recomputation": (1, "tp: 1\npp: 1\nzero: 0\nrecompute: full"),
    "2 ranks, dp=2": (2, "tp: 1\npp: 1\nzero: 0\nrecompute: none"),
    "2 ranks, dp=2 zero=3": (2, "tp: 1\npp: 1\nzero: 3\nrecompute: none"),
    "2 ranks, pp=2": (2, "tp: 1\npp: 2\nzero: 0\nrecompute: none"),
}
"""name -> ranks, lines of the grid"""


@dataclass(frozen=True)
class Stated:
    """One run's stated step time, in seconds, and the yardstick's readings around it."""

    median: float
    low: float
    high: float
    yardstick: tuple[float, float]
    """before and after, in seconds"""

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Pairs:
    """Some pairs of runs of one layout."""

    pairs: int
    within: int
    """of these, pairs whose medians differ by less than the narrower of the two intervals"""
    touching: int
    """pairs whose intervals share a value"""

    @staticmethod
    def of(pairs: list[tuple[Stated, Stated]]) -> Pairs:
        within = sum(abs(a.median - b.median) < min(a.width, b.width) for a, b in pairs)
        return Pairs(len(pairs), within, sum(a.low <= b.high and b.low <= a.high for a, b in pairs))


@dataclass(frozen=True)
class Repeated:
    """One layout, measured several times. Spread and intervals are relative to its step time."""

    layout: str
    runs: int
    step_ms: float
    half_interval: float
    """half width of the stated intervals, the median over runs"""
    spread: float
    """greatest median less the least"""
    quiet: Pairs
    other: Pairs


def compare(layout: str, runs: list[Stated], quiet: float) -> Repeated:
    """Every two runs of a layout against each other."""
    medians = [run.median for run in runs]
    step = statistics.median(medians)
    calm, rest = [], []
    for a, b in combinations(runs, 2):
        readings = (*a.yardstick, *b.yardstick)
        (calm if max(readings) <= (1 + quiet) * min(readings) else rest).append((a, b))
    return Repeated(
        layout=layout,
        runs=len(runs),
        step_ms=1e3 * step,
        half_interval=statistics.median(run.width / 2 for run in runs) / step,
        spread=(max(medians) - min(medians)) / step,
        quiet=Pairs.of(calm),
        other=Pairs.of(rest),
    )


def yardstick(seconds: float = 1.0) -> float:
    """The median time of some fixed matrix products, on all cores."""
    torch.set_num_threads(os.cpu_count() or 1)
    x, w = torch.ones(256, 256), torch.eye(256)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(50):
            x = torch.tanh(x @ w)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(layout: str, iterations: int) -> Stated:
    """One run of the layout, by a separate sweep, between two readings of the yardstick."""
    ranks, axes = LAYOUTS[layout]
    with tempfile.TemporaryDirectory() as folder:
        grid, directory = Path(folder) / "grid.yaml", Path(folder) / "sweep"
        grid.write_text(GRID.format(axes=axes, ranks=ranks, iterations=iterations))
        before = yardstick()
        _launch(grid, directory)
        after = yardstick()
        events = JournalReader(SweepDir(directory), decode=decoder(dict)).new_events()
    (record,) = (event.record for event in events if isinstance(event, Recorded))
    times, skip = sorted(record["step_times_s"]), trimmed(iterations)
    return Stated(record["step_time_median_s"], times[skip], times[-1 - skip], (before, after))


def _launch(grid: Path, directory: Path) -> None:
    """Measure all of the grid. The sweep ends with this program."""
    command = [sys.executable, "-m", "sweep.cli.main"]
    try:
        launch = [*command, "launch", str(grid), "--dir", str(directory), "--executor", "local", "--yes"]
        subprocess.run(launch, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except BaseException:
        subprocess.run([*command, "cancel", str(directory)], check=False, stdout=subprocess.DEVNULL)
        raise


def table(rows: list[Repeated]) -> str:
    """The rows as Markdown."""
    head = ["layout", "runs", "step (ms)", "stated: ±", "spread of medians"]
    head += ["quiet pairs: within", "touching", "other pairs: within", "touching"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [row.layout, str(row.runs), f"{row.step_ms:.1f}", f"{row.half_interval:.1%}", f"{row.spread:.1%}"]
        for pairs in (row.quiet, row.other):
            cells += [f"{pairs.within} of {pairs.pairs}", f"{pairs.touching} of {pairs.pairs}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeatability", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=8, help="measurements of each layout")
    parser.add_argument("--iterations", type=int, default=30, help="timed iterations of each")
    parser.add_argument("--quiet", type=float, default=0.02, help="by how much a quiet pair's yardsticks may differ")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    runs: dict[str, list[Stated]] = defaultdict(list)
    for turn in range(asked.repeats):
        for layout in LAYOUTS:
            runs[layout].append(measure(layout, asked.iterations))
            print(f"{turn + 1} of {asked.repeats}: {layout}: {runs[layout][-1]}", file=sys.stderr, flush=True)
    rows = [compare(layout, found, asked.quiet) for layout, found in runs.items()]
    if asked.json:
        measured = {layout: [asdict(run) for run in found] for layout, found in runs.items()}
        print(json.dumps({"runs": measured, "layouts": [asdict(row) for row in rows]}))
    else:
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
