"""Which processes are a pilot's: by their marks, whatever their parent."""

import os
import subprocess
import sys
import time

import pytest

from sweep.pilot.agent import processes
from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK, Activity, allocated


@pytest.fixture
def sleeper():
    """Starts a process with these marks in its environment; ended with the test."""
    started = []

    def start(token, node):
        environment = {k: v for k, v in os.environ.items() if k not in (PILOT_MARK, NODE_MARK)}
        marks = {name: value for name, value in ((PILOT_MARK, token), (NODE_MARK, node)) if value is not None}
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**environment, **marks})
        started.append(process)
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def pids(found):
    return {process.pid for process in found}


def test_marks_show_whose_a_process_is(sleeper):
    token = f"test{os.getpid()}-p0001"
    mine, neighbour = sleeper(token, "n1"), sleeper(token, "n2")
    other, unmarked = sleeper(f"test{os.getpid()}-p0002", "n1"), sleeper(None, "n1")
    assert pids(processes.escaped(token, "n1", known=())) == {mine}
    assert processes.escaped(token, "n1", known=[mine]) == []
    assert pids(processes.of_tokens([token])) == {mine, neighbour}
    assert processes.tokens_of_sweep(f"test{os.getpid()}-") == {token, f"test{os.getpid()}-p0002"}
    assert unmarked not in pids(processes.of_tokens([""]))
    assert other not in pids(processes.of_tokens([token]))


def test_a_name_that_only_ends_with_the_mark_is_no_mark(sleeper, monkeypatch):
    token = f"test{os.getpid()}-suffix"
    monkeypatch.setenv(f"MY_{PILOT_MARK}", token)
    sleeper(None, None)
    assert processes.of_tokens([token]) == []


def test_dead_processes_are_not_listed(sleeper):
    token = f"test{os.getpid()}-dead"
    pid = sleeper(token, "n1")
    os.kill(pid, 9)
    time.sleep(0.2)  # a zombie, until its parent reaps it
    assert processes.of_tokens([token]) == []


def test_other_systems_ask_psutil(sleeper, monkeypatch):
    token = f"test{os.getpid()}-known"
    pid = sleeper(token, "n1")
    monkeypatch.setattr(processes.sys, "platform", "darwin")
    assert pids(processes.escaped(token, "n1", known=())) == {pid}


def test_only_allocated_gpus_are_checked():
    assert allocated({}) is None
    assert allocated({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}) == {"GPU-1", "GPU-2"}
    assert allocated({"SLURM_JOB_GPUS": "2,3"}) == {"2", "3"}


def test_work_is_seen_and_sleep_is_not():
    burn = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    rest = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        activity = Activity()
        time.sleep(0.5)
        assert not activity.busy(burn.pid), "nothing to compare with"
        activity.busy(rest.pid)
        deadline = time.monotonic() + 20
        worked = False
        while not worked and time.monotonic() < deadline:
            time.sleep(2.5)
            worked = activity.busy(burn.pid)
            assert not activity.busy(rest.pid)
        assert worked
    finally:
        for process in (burn, rest):
            process.kill()
            process.wait()
