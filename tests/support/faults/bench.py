"""Run a sweep of the faulty workload, wait for events in it, and measure what a fault cost."""

from dataclasses import dataclass
from pathlib import Path

from sweep.state.events import PilotStarted
from tests.support import driving

TIMEOUTS = {"start": "120s", "first_iteration": "60s", "steady": "8s"}
BASE = {"workload": "faulty", "strategy": "guided", "nodes": 2, "remeasure": 0, "timeouts": TIMEOUTS}
BASE |= {"iterations": 4, "warmup_iterations": 2}
SITE = {"pilot_time": "20m", "poll_interval_s": 1, "max_pilots": 1}


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

    def start(self, site=None, **grid):
        """Launch in the background: BASE with the given changes."""
        text = driving.simulated({**SITE, **(site or {})}, **{**BASE, **grid})
        output = (self.root / "launch.out").open("ab")
        return driving.launching(self.root, text, executor="slurm", env=self.env, output=output)

    def resume(self):
        return driving.start("resume", self.directory, env=self.env, output=(self.root / "launch.out").open("ab"))

    def output(self) -> str:
        return driving.output_of(self.root)

    def records(self) -> list[dict]:
        return driving.records_of(self.directory)

    def wait_for_attempt(self, timeout_s=120):
        """Wait until an attempt has been running for 3 s."""
        driving.wait_for(lambda: driving.running_attempt(self.directory, 3.0), timeout_s, self.output)

    def pilot(self, number=-1) -> PilotStarted:
        """The event of a pilot's start."""
        return driving.events_of(self.directory, PilotStarted)[number]

    def fault_at(self, record: dict) -> float:
        """When the attempt's rank injected the fault."""
        (mark,) = self.marks.glob(f"{record['run_id']}.{record['attempt']}.*")
        return int(mark.suffix[1:]) / 1e9

    def left(self, timeout_s=60) -> list[str]:
        return driving.wait_until_unmarked(self.directory, timeout_s)
