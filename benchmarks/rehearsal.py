"""Thousands of simulated runs of mixed widths on a real Slurm cluster of many virtual nodes, on this one machine.

    python -m benchmarks.rehearsal [--nodes 64] [--gpus-per-node 8] [--runs 5000] [--iteration 0.5] [--max-pilots 16]
                                   [--keep DIR]

Needs what ``python -m tests.support.slurm.cluster up`` needs (root, Debian's Slurm, MariaDB). The runs are 1, 2, 4 and
8 nodes wide, as 4 : 3 : 2 : 1 in number. Their ranks sleep; those of a node are threads of one process, as their
records state. Everything else is as in a sweep on a cluster: launcher, sbatch, leaders, agents, claims,
journals. Prints JSON. Allocations are from Slurm's accounting (sacct, whole seconds); times of attempts are from the
records.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.creations import Creations
from benchmarks.model import TAIL, area
from sweep.state.events import Recorded, decoder
from sweep.state.state import SweepState
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader
from sweep.store.sweep import open_sweep

if TYPE_CHECKING:
    from tests.support.slurm.cluster import Cluster

WIDTHS_OF_TEN = {1: 4, 2: 3, 4: 2, 8: 1}
"""nodes -> how many of ten runs: the micro-batch sizes that give the global batch"""
GRID = """
name: rehearsal
strategy: prune
workload: simulated
models: [tiny-1M]
nodes: [1, 2, 4, 8]
sequence_length: 64
global_batch: {global_batch}
dtype: [fp32]
tp: 1
pp: 1
zero: [0]
micro_batch_size: [1, 2, 4, 8]
iterations: 5
repeats: {repeats}
params: {{step_s: {iteration_s}, one_process_per_node: true}}
site:
  gpu: cpu
  gpus_per_node: {gpus_per_node}
  pilot_time: 30m
  max_pilots: {max_pilots}
"""
POLL_S = 0.5
Span = tuple[float, float, int]
"""begin and end, unix seconds, and nodes"""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """The parameters of a rehearsal."""

    runs: int = 5000
    gpus_per_node: int = 8
    iteration_s: float = 0.5
    """of each run's 7 iterations, warm-up included"""
    max_pilots: int = 16

    def __post_init__(self) -> None:
        if self.runs % sum(WIDTHS_OF_TEN.values()):
            raise ValueError(f"runs must be a multiple of {sum(WIDTHS_OF_TEN.values())}, not {self.runs}")

    def grid(self) -> str:
        """The grid: a global batch of one sequence per GPU on 8 nodes, so that ten candidates of a repeat can work."""
        return GRID.format(
            global_batch=64 * 8 * self.gpus_per_node,
            repeats=self.runs // sum(WIDTHS_OF_TEN.values()),
            iteration_s=self.iteration_s,
            gpus_per_node=self.gpus_per_node,
            max_pilots=self.max_pilots,
        )


@dataclass
class Launcher:
    """CPU and memory of the launcher's process, measured from outside."""

    peak_mib: int = 0
    """of its own memory"""
    peak_with_children_mib: int = 0
    cpu_s: float = 0.0
    seconds: float = 0.0

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Poll it until it ends."""
        begin, seen = time.monotonic(), psutil.Process(process.pid)
        while process.poll() is None:
            try:
                own = seen.memory_info().rss
                others = sum(child.memory_info().rss for child in seen.children(recursive=True))
                self.peak_mib = max(self.peak_mib, own >> 20)
                self.peak_with_children_mib = max(self.peak_with_children_mib, (own + others) >> 20)
                self.cpu_s = sum(seen.cpu_times()[:4])
            except psutil.Error:
                pass
            time.sleep(POLL_S)
        self.seconds = time.monotonic() - begin


def rehearse(cluster: Cluster, folder: Path, rehearsal: Rehearsal) -> dict[str, Any]:
    """Launch the sweep in `folder`, wait for its end, and return what it used."""
    (folder / "grid.yaml").write_text(rehearsal.grid())
    directory, launcher = folder / "sweep", Launcher()
    words = ("launch", folder / "grid.yaml", "--dir", directory, "--executor", "slurm", "--yes")
    with Creations(folder) as seen, (folder / "launcher.out").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweep.cli.main", *map(str, words)],
            env=cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        launcher.follow(process)
    return {
        "exit": process.returncode,
        **summary(directory, held_of(cluster)),
        "creations_per_run": round(seen.count / rehearsal.runs, 2),
        "creations_overflowed": seen.overflowed,
        "wall_s": round(launcher.seconds),
        "launcher_peak_mib": launcher.peak_mib,
        "launcher_peak_with_children_mib": launcher.peak_with_children_mib,
        "launcher_cpu_share": round(launcher.cpu_s / launcher.seconds, 4),
        "load": round(os.getloadavg()[2], 1),
    }


def held_of(cluster: Cluster) -> list[Span]:
    """What Slurm allocated to the cluster's jobs."""
    fields = "NNodes,Start,End"
    lines = cluster.run("sacct", "-a", "-n", "-P", "-X", "-D", "-S", "now-1days", "-o", fields).splitlines()
    rows = [line.split("|") for line in lines]
    return [(_unix(begin), _unix(end), int(nodes)) for nodes, begin, end in rows if _is_time(begin)]


def summary(directory: Path, held: list[Span]) -> dict[str, Any]:
    """The sweep's records and Slurm's accounting combined."""
    sweep_state = SweepState()
    sweep_state.apply_all(JournalReader(SweepDir(directory)).new_events())
    events = JournalReader(SweepDir(directory), decode=decoder(dict)).new_events()
    records = [event.record for event in events if isinstance(event, Recorded)]
    taken = [(record["started_at"], record["ended_at"], record["nodes"]) for record in records]
    begin, end = min(one[0] for one in held), max(one[1] for one in held)
    until = end - TAIL * (end - begin)
    packed = sorted(over_lower_bound(records).values())
    ok = Counter(record["run_id"] for record in records if record["outcome"] == "ok")
    planned = {one.run_id for one in open_sweep(directory).runs}
    return {
        "runs": len(planned),
        "attempts": len(records),
        "outcomes": dict(Counter(record["outcome"] for record in records)),
        "lost": len(planned - set(ok)),
        "doubled": sum(count > 1 for count in ok.values()),
        "widths": dict(sorted(Counter(record["nodes"] for record in records).items())),
        "ranks_in_one_process": max(json.loads(r["extra_json"]).get("ranks_in_one_process", 1) for r in records),
        "jobs": len(held),
        "share_in_attempts": round(area(taken, end) / area(held, end), 4),
        "share_in_attempts_but_last_5_percent": round(area(taken, until) / area(held, until), 4),
        "pilots_over_lower_bound": {"median": round(statistics.median(packed), 3), "worst": round(packed[-1], 3)},
        "idle_before_an_attempt_s": round(sum(r["pilot_idle_s"] or 0.0 for r in records) / len(records), 3),
        "start_s": round(sum(r["start_s"] or 0.0 for r in records) / len(records), 3),
        "teardown_s": round(sum(r["teardown_s"] or 0.0 for r in records) / len(records), 3),
    }


def over_lower_bound(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Pilot -> its time from the first attempt's start to the last one's end, over the minimum for these.

    The minimum is their node-seconds over the pilot's nodes, or the longest attempt. 1.0: packed without a gap.
    """
    by_pilot: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        by_pilot[record["pilot"]].append(record)
    return {name: _packed(of_pilot) for name, of_pilot in by_pilot.items()}


def _packed(records: Sequence[Mapping[str, Any]]) -> float:
    lasted = [record["ended_at"] - record["started_at"] for record in records]
    nodes = len({node for record in records for node in record["node_names"]})
    busy = sum(seconds * record["nodes"] for seconds, record in zip(lasted, records, strict=True))
    whole = max(record["ended_at"] for record in records) - min(record["started_at"] for record in records)
    return float(whole / max(busy / nodes, *lasted))


def _is_time(text: str) -> bool:
    return text not in ("", "None", "Unknown")


def _unix(text: str) -> float:
    """A time of sacct; for a running job the current time."""
    return datetime.fromisoformat(text).timestamp() if _is_time(text) else time.time()


def main() -> int:
    from tests.support.slurm.cluster import Cluster

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rehearsal", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--iteration", type=float, default=0.5, help="seconds")
    parser.add_argument("--max-pilots", type=int, default=16)
    parser.add_argument("--keep", type=Path, help="a new directory that is kept")
    given = parser.parse_args()
    rehearsal = Rehearsal(
        runs=given.runs, gpus_per_node=given.gpus_per_node, iteration_s=given.iteration, max_pilots=given.max_pilots
    )
    folder = given.keep or Path(tempfile.mkdtemp(prefix="rehearsal-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with Cluster(
            nodes=given.nodes, gpus_per_node=given.gpus_per_node, accounting=True, own_processes=True
        ) as cluster:
            print(json.dumps(rehearse(cluster, folder, rehearsal), indent=1))
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
