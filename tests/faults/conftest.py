"""The environment of the fault tests: the workload registered, a memory cgroup, a small scratch disk."""

import os
import uuid
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.faults.bench import Bench
from tests.support.mounts import full_mount

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
