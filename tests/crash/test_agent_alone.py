"""When agents are killed, nothing is left of what their ranks started: here daemons with an empty environment."""

import os
import time

import psutil
import pytest

from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.process_kinds import find

BARE = str(REPOSITORY / "tests" / "support" / "bare_daemons")


def daemons(seconds):
    """The leaked processes, by their only mark: for how long they sleep."""
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", str(seconds)]]


def nothing_is_left(tmp_path, kinds, outcome, executor="local", env=None):
    """Kill processes of these kinds during an attempt that has leaked daemons; the run is measured all the same."""
    directory, seconds, env = tmp_path / "s", 90_000.0 + os.getpid(), env or {}
    path = os.pathsep.join(filter(None, (BARE, env.get("PYTHONPATH") or os.environ.get("PYTHONPATH"))))
    leak = {"step_s": 0.5, "fault": "leak_child", "fault_iteration": 1, "fault_s": seconds}
    grid = driving.simulated({"poll_interval_s": 1}, global_batch=1024, micro_batch_size=1, params=leak)
    launcher = driving.launching(tmp_path, grid, executor=executor, env={**env, "PYTHONPATH": path})
    deadline = time.monotonic() + 60
    while not daemons(seconds):
        assert time.monotonic() < deadline, "no daemon was leaked"
        time.sleep(0.05)
    for process in [process for kind in kinds for process in find(kind, directory, launcher)]:
        process.kill()
    assert launcher.wait(180) == 0
    assert [record["outcome"] for record in driving.records_of(directory)] == [outcome, "ok"]
    assert driving.state_of(directory).excluded_nodes == {}, "the node works"
    assert driving.marked_processes(directory) == []
    left = daemons(seconds)
    for process in left:
        process.kill()
    assert left == []


@pytest.mark.slurm
def test_an_agent_that_dies_alone_leaves_nothing_on_its_node(tmp_path, slurm_cluster):
    nothing_is_left(tmp_path, ["agent"], "network", "slurm", slurm_cluster.env)


@pytest.mark.long
@pytest.mark.slurm
def test_an_agent_that_dies_with_its_leader_leaves_nothing_on_its_node(tmp_path, slurm_cluster):
    nothing_is_left(tmp_path, ["leader", "agent"], "lost", "slurm", slurm_cluster.env)
