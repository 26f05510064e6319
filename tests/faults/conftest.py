"""The environment of the fault tests: the workload registered, a memory cgroup, a small scratch disk."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweep.state.events import PilotStarted
from tests.support import driving
from tests.support.mounts import full_mount

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


__all__ = ["full_mount"]

MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 3 << 29
"""one pilot uses up to 1.0 GB of it; to fill the rest must take seconds on a machine that touches memory slowly"""
SCRATCH_SIZE = "48m"


@pytest.fixture(scope="session")
def registered(tmp_path_factory):
    """A directory for PYTHONPATH that registers the workload as an installed package would."""
    root = tmp_path_factory.mktemp("plugin")
    driving.plug_in(root, "faulty", "tests.support.faults.workload:WORKLOAD")
    return root


@pytest.fixture(scope="session")
def memory_cgroup():
    """A real memory cgroup of version 1 or 2, as this machine allows; skip where none can be made."""
    name = f"sweep-test-{uuid.uuid4().hex[:8]}"
    v1 = MEMORY.is_dir()
    group = (MEMORY if v1 else Path("/sys/fs/cgroup")) / name
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(LIMIT_BYTES))
    except OSError:
        pytest.skip("memory cgroups are not writable here")
    yield group
    for process in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(process)
    group.rmdir()


@pytest.fixture
def bench(tmp_path, registered, slurm_cluster):
    """Drives sweeps of the faulty workload on the cluster."""
    marks = tmp_path / "marks"
    marks.mkdir()
    env = {**slurm_cluster.env, "FAULT_MARKS": str(marks)}
    env["PYTHONPATH"] = os.pathsep.join([str(registered), env["PYTHONPATH"]])
    return Bench(tmp_path, slurm_cluster, env, marks)


@pytest.fixture
def small_disk(full_mount):
    """A small node-local disk."""
    return full_mount(SCRATCH_SIZE)
