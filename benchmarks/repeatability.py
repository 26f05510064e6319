"""Do two runs of one layout differ by less than the interval that they state? Measures each layout several times.

    python -m benchmarks.repeatability [--repeats 8] [--iterations 30] [--ranks 1 2] [--json]

Each layout is measured by a real sweep on this machine (local executor, torch, CPU), all first times before any second.
A run states the interval that covers its median step time with 95 % confidence. Compared are the medians of every two
runs of one layout: their difference against the narrower of the two stated intervals, and whether the intervals touch.
Means something on a quiet machine only, so it says first how busy the machine is without it, and how far the machine
itself is from one speed: a loop of plain Python in as many processes as there are repeats, one after another.
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
from typing import Any

from sweep.store import JournalReader, SweepDir

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
repeats: {repeats}
params: {{cpu_memory: false}}
site: {{name: here, gpu: cpu, gpus_per_node: {ranks}, max_local_ranks: {ranks}, pilot_time: 30m}}
"""
AXES = {
    1: "tp: 1\npp: 1\nzero: 0\nrecompute: [none, full]",
    2: "tp: 1\npp: [1, 2]\nzero: [0, 3]\nconstraints: [pp == 1 or zero == 0]",
}
"""ranks -> the layouts that are measured"""


@dataclass(frozen=True)
class Stated:
    """What one run says of its step time, in seconds."""

    median: float
    low: float
    high: float
    confidence: float

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Repeated:
    """One layout, measured several times. All but ``step_ms`` and counts are relative to its step time."""

    layout: str
    runs: int
    step_ms: float
    half_interval: float
    """half of what the runs state, the median over runs"""
    spread: float
    """greatest median less the least"""
    largest_difference_in_intervals: float
    """of two medians, in units of the narrower of the two intervals"""
    pairs: int
    pairs_within: int
    """pairs whose medians differ by less than the narrower interval"""
    pairs_touching: int
    """pairs whose intervals share a value"""


def compare(layout: str, runs: list[Stated]) -> Repeated:
    """Every two runs of a layout against each other."""
    pairs = list(combinations(runs, 2))
    step = statistics.median(run.median for run in runs)
    medians = [run.median for run in runs]
    apart = [abs(a.median - b.median) / min(a.width, b.width) for a, b in pairs]
    return Repeated(
        layout=layout,
        runs=len(runs),
        step_ms=1e3 * step,
        half_interval=statistics.median(run.width / 2 for run in runs) / step,
        spread=(max(medians) - min(medians)) / step,
        largest_difference_in_intervals=max(apart),
        pairs=len(pairs),
        pairs_within=sum(far < 1 for far in apart),
        pairs_touching=sum(a.low <= b.high and b.low <= a.high for a, b in pairs),
    )


def measure(ranks: int, repeats: int, iterations: int) -> list[Repeated]:
    """Sweep the layouts of so many ranks, and compare what their runs state."""
    with tempfile.TemporaryDirectory() as folder:
        grid, directory = Path(folder) / "grid.yaml", Path(folder) / "sweep"
        grid.write_text(GRID.format(axes=AXES[ranks], ranks=ranks, repeats=repeats, iterations=iterations))
        _launch(grid, directory)
        events = JournalReader(SweepDir(directory)).new_events()
        records = [event["record"] for event in events if event["event"] == "record"]
    runs = defaultdict(list)
    for record in records:
        if record["outcome"] == "ok":
            further = json.loads(record["extra_json"])
            low, high = further["step_time_interval_s"]
            confidence = further["step_time_interval_confidence"]
            runs[_name(record)].append(Stated(record["step_time_median_s"], low, high, confidence))
    return [compare(name, found) for name, found in sorted(runs.items()) if len(found) > 1]


def _launch(grid: Path, directory: Path) -> None:
    """Measure all of the grid. Whatever ends this program ends the sweep too."""
    command = [sys.executable, "-m", "sweep.cli.main"]
    try:
        launch = [*command, "launch", str(grid), "--dir", str(directory), "--executor", "local", "--yes"]
        subprocess.run(launch, check=True, stdout=subprocess.DEVNULL)
    except BaseException:
        subprocess.run([*command, "cancel", str(directory)], check=False, stdout=subprocess.DEVNULL)
        raise


def busy_cores(seconds: float = 2.0) -> float:
    """How many cores others keep busy: to be asked while nothing of this program runs."""

    def ticks() -> tuple[int, int]:
        values = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(values), values[3] + values[4]

    total, idle = ticks()
    time.sleep(seconds)
    later, later_idle = ticks()
    share = 1 - (later_idle - idle) / max(1, later - total)
    return share * (os.cpu_count() or 1)


LOOP = """
import statistics, time
def once():
    start, total = time.perf_counter(), 0
    for number in range(300_000):
        total += number * number
    return time.perf_counter() - start
print(statistics.median(once() for _ in range({loops})))
"""


def spread_of_the_machine(processes: int, loops: int) -> float:
    """Greatest median less the least, relative to their median, of the same plain loop in process after process."""
    command = [sys.executable, "-c", LOOP.format(loops=loops)]
    medians = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(processes)]
    return (max(medians) - min(medians)) / statistics.median(medians)


def _name(record: dict[str, Any]) -> str:
    axes = " ".join(f"{axis}={record[axis]}" for axis in ("dp", "pp", "zero", "recompute"))
    return f"{record['gpus']} ranks: {axes}" if record["gpus"] > 1 else f"1 rank: {axes}"


def table(rows: list[Repeated]) -> str:
    """The rows as Markdown."""
    head = ["layout", "runs", "step (ms)", "stated: ±", "spread of medians", "largest difference", "within", "touching"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [row.layout, str(row.runs), f"{row.step_ms:.1f}", f"{row.half_interval:.1%}", f"{row.spread:.1%}"]
        cells += [f"{row.largest_difference_in_intervals:.2f} intervals", f"{row.pairs_within} of {row.pairs}"]
        lines.append(f"| {' | '.join([*cells, f'{row.pairs_touching} of {row.pairs}'])} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeatability", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=8, help="measurements of each layout")
    parser.add_argument("--iterations", type=int, default=30, help="timed iterations of each")
    parser.add_argument("--ranks", type=int, nargs="+", choices=sorted(AXES), default=sorted(AXES))
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    busy, rows = [], []
    for ranks in asked.ranks:
        busy.append(busy_cores())
        rows += measure(ranks, asked.repeats, asked.iterations)
    busy.append(busy_cores())
    machine = {
        "cores": os.cpu_count(),
        "others_busy_cores": busy,
        "spread_of_a_plain_loop": spread_of_the_machine(asked.repeats, asked.iterations),
    }
    if asked.json:
        print(json.dumps({**machine, "layouts": [asdict(row) for row in rows]}))
    else:
        others = ", ".join(f"{cores:.2f}" for cores in busy)
        print(f"{os.cpu_count()} cores, of which others kept busy before, between and after: {others}")
        print(f"a plain loop in {asked.repeats} processes: spread {machine['spread_of_a_plain_loop']:.1%}")
        print(f"\n{table(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
