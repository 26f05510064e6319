"""When only an agent is killed, no process is left, on one machine and on a node."""

import contextlib
import os
import signal
import time

import psutil
import pytest

from tests.support import driving
from tests.support.pilot_parts import (
    GRID,
)

DAEMONS = GRID.replace("step_s: 0.02", "step_s: 0.5, fault: leak_child, fault_iteration: 1, fault_s: 600").replace(
    "[1, 2]", "[1]"
)


def agent_pids(directory):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "sweep.pilot.agent" in words and any(str(directory) in word for word in words):
                found.append(process.pid)
    return found


def daemons(directory):
    """Processes forked from a zygote whose session's leader has gone."""
    if not (directory / "provenance.json").exists():
        return []
    pids = [
        int(words.split()[0]) for words in driving.marked_processes(directory) if "sweep.pilot.agent.zygote" in words
    ]
    return [pid for pid in pids if psutil.pid_exists(pid) and not psutil.pid_exists(os.getsid(pid))]


def killed_agent_leaves_nothing(directory, launcher):
    """Kill an agent during an attempt that has leaked a daemon; the run is still measured."""
    deadline = time.monotonic() + 60
    while not daemons(directory):
        assert time.monotonic() < deadline, "no daemon was leaked"
        time.sleep(0.05)
    os.kill(agent_pids(directory)[0], signal.SIGKILL)
    assert launcher.wait(120) == 0
    outcomes = [record["outcome"] for record in driving.records_of(directory)]
    assert outcomes == ["node_fail", "ok"]
    assert driving.marked_processes(directory) == []


def test_an_agent_that_dies_alone_leaves_nothing_on_this_machine(tmp_path):
    (tmp_path / "grid.yaml").write_text(DAEMONS)
    words = ("launch", tmp_path / "grid.yaml", "--dir", tmp_path / "s", "--executor", "local", "--yes")
    killed_agent_leaves_nothing(tmp_path / "s", driving.start(*words))


@pytest.mark.slurm
def test_an_agent_that_dies_alone_leaves_nothing_on_its_node(tmp_path, slurm_cluster):
    (tmp_path / "grid.yaml").write_text(DAEMONS.replace("pilot_time: 10m", "pilot_time: 10m, poll_interval_s: 1"))
    words = ("launch", tmp_path / "grid.yaml", "--dir", tmp_path / "s", "--executor", "slurm", "--yes")
    killed_agent_leaves_nothing(tmp_path / "s", driving.start(*words, env=slurm_cluster.env))
