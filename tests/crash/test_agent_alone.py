"""When only an agent is killed, no process is left, on one machine and on a node."""

import time

import pytest

from tests.support import driving
from tests.support.pilot_parts import GRID
from tests.support.process_kinds import find

DAEMONS = GRID.replace("step_s: 0.02", "step_s: 0.5, fault: leak_child, fault_iteration: 1, fault_s: 600").replace(
    "[1, 2]", "[1]"
)


def killed_agent_leaves_nothing(directory, launcher):
    """Kill an agent during an attempt that has leaked a daemon; the run is still measured."""
    deadline = time.monotonic() + 60
    while not ((directory / "provenance.json").exists() and find("daemon", directory, launcher)):
        assert time.monotonic() < deadline, "no daemon was leaked"
        time.sleep(0.05)
    (agent,) = find("agent", directory, launcher)
    agent.kill()
    assert launcher.wait(120) == 0
    outcomes = [record["outcome"] for record in driving.records_of(directory)]
    assert outcomes == ["network", "ok"]
    assert driving.state_of(directory).excluded_nodes == {}, "the node works"
    assert driving.marked_processes(directory) == []


@pytest.mark.long  # on Slurm above, and with its launcher in test_each_kind.py
def test_an_agent_that_dies_alone_leaves_nothing_on_this_machine(tmp_path):
    killed_agent_leaves_nothing(tmp_path / "s", driving.launching(tmp_path, DAEMONS))


@pytest.mark.slurm
def test_an_agent_that_dies_alone_leaves_nothing_on_its_node(tmp_path, slurm_cluster):
    grid = DAEMONS.replace("pilot_time: 10m", "pilot_time: 10m, poll_interval_s: 1")
    launcher = driving.launching(tmp_path, grid, executor="slurm", env=slurm_cluster.env)
    killed_agent_leaves_nothing(tmp_path / "s", launcher)
