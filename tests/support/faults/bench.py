"""Run a sweep of the faulty workload, wait for events in it, and measure what a fault cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from sweep.state.events import PilotStarted
from tests.support import driving

BASE = {
    "name": "faults",
    "workload": "faulty",
    "models": ["tiny-1M"],
    "nodes": [2],
    "sequence_length": 64,
    "global_batch": 4096,
    "dtype": ["fp32"],
    "remeasure": 0,
    "iterations": 4,
    "warmup_iterations": 2,
    "timeouts": {"start": "120s", "first_iteration": "60s", "steady": "8s"},
    "site": {"gpu": "cpu", "gpus_per_node": 2, "pilot_time": "20m", "poll_interval_s": 1, "max_pilots": 1},
}


@dataclass
class Bench:
    """One sweep of the faulty workload on the cluster."""

    root: Path
    cluster: object
    env: dict[str, str]
    marks: Path

    @property
    def directory(self) -> Path:
        return self.root / "s"

    def write(self, site=None, **grid) -> Path:
        """The grid: BASE with the given changes."""
        site = {**BASE["site"], **(site or {})}
        (self.root / "grid.yaml").write_text(yaml.safe_dump({**BASE, **grid, "site": site}))
        return self.root / "grid.yaml"

    def start(self, site=None, directory=None, **grid):
        """Launch in the background."""
        output = (self.root / "launch.out").open("ab")
        where = directory or self.directory
        words = ("launch", self.write(site, **grid), "--dir", where, "--executor", "slurm", "--yes")
        return driving.start(*words, env=self.env, output=output)

    def resume(self):
        return driving.start("resume", self.directory, env=self.env, output=(self.root / "launch.out").open("ab"))

    def output(self) -> str:
        """What the launcher and the pilots wrote."""
        files = [self.root / "launch.out", *sorted((self.directory / "pilots").glob("*/stderr"))]
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in files if path.exists())

    def records(self) -> list[dict]:
        return driving.records_of(self.directory)

    def wait_for_attempt(self, timeout_s=120):
        """Wait until an attempt has been running for 3 s."""

        def running():
            if not (self.directory / "provenance.json").exists():
                return False
            attempts = [a for run in driving.state_of(self.directory).runs.values() for a in run.attempts.values()]
            return any(a.outcome is None and a.started_at and time.time() - a.started_at > 3 for a in attempts)

        wait_for(running, timeout_s, self.output)

    def pilot(self, number=-1) -> PilotStarted:
        """The event of a pilot's start."""
        return driving.events_of(self.directory, PilotStarted)[number]

    def fault_at(self, record: dict) -> float:
        """When the attempt's rank injected the fault."""
        (mark,) = self.marks.glob(f"{record['run_id']}.{record['attempt']}.*")
        return int(mark.suffix[1:]) / 1e9

    def left(self, timeout_s=60) -> list[str]:
        return driving.wait_until_unmarked(self.directory, timeout_s)


def wait_for(condition, timeout_s=60, output=lambda: ""):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"timed out; {output()}"
        time.sleep(0.2)
