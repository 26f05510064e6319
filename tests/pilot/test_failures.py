"""What a pilot bears: a file system that hangs, nodes that go, agents that die, late words."""

import asyncio
import contextlib
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sweep.contract import Measurement, Workload
from sweep.outcomes import Outcome
from sweep.pilot.agent.agent import Agent
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.files import Files
from sweep.pilot.leader.nodes import Link
from sweep.pilot.leader.record import record_of
from sweep.pilot.leader.watchdog import Verdict
from sweep.pilot.limits import Limits
from sweep.store.directory import try_claim
from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import (
    GRID,
    PREPARE,
    Mute,
    Scripted,
    a_run,
    conducted,
    order,
    played,
    result_of,
    runner_on,
)


def test_the_loop_goes_on_while_the_file_system_hangs(standing):
    async def scenario():
        files = Files(standing.directory, "pilot-p0001")
        hung = asyncio.ensure_future(files.do(lambda: time.sleep(1.0)))
        written = asyncio.ensure_future(files.append({"event": "alive", "time": 1.0}))
        ticks = 0
        while not hung.done():
            await asyncio.sleep(0.02)
            ticks += 1
        await written
        files.close()
        return ticks

    assert asyncio.run(scenario()) > 20, "pings must go out meanwhile"
    assert len(driving.events_of(standing.directory.path, "alive")) == 1, "what came after the hang is in order"


def test_a_node_that_went_before_the_attempt_began_costs_no_start_limit(standing):
    async def scenario():
        return await runner_on(standing, Link("n1", Mute(), alive=False)).conduct()

    began = time.monotonic()
    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert result.accused == ("n1",)
    assert time.monotonic() - began < 5


def test_a_failure_nobody_thought_of_costs_the_attempt_and_its_nodes_are_cleared(standing):
    class Failing(Mute):
        def send(self, message):
            super().send(message)
            if message["do"] == "start":
                raise ZeroDivisionError

    async def scenario():
        link = Link("n1", Failing())
        return await played(runner_on(standing, link), link)

    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.UNKNOWN
    assert "ZeroDivisionError" in result.message
    assert not result.not_cleaned


def test_the_record_says_what_ran_beside_it(standing):
    record, _ = record_of(conducted(standing), result_of(Outcome.HANG), None, 2.0)
    assert json.loads(record["extra_json"])["beside"] == ["other.1"]


def test_what_a_workload_finds_odd_is_noted_once(standing):
    odd = Measurement(step_times_s=[0.1] * 5, extra={"notes": ["the trainer says 2, its steps make 3"]})
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, odd), None, 2.0)
    assert record["notes"].count("the trainer says 2, its steps make 3") == 1
    assert record["outcome"] == "ok"


@pytest.mark.parametrize(("limit_s", "outcome"), [(900.0, "time_limit"), (850.0, "time_limit"), (300.0, "preempted")])
def test_a_run_longer_than_a_whole_pilot_is_not_tried_for_ever(standing, limit_s, outcome):
    record, _ = record_of(conducted(standing, limit_s), result_of(Outcome.TIME_LIMIT), None, 2.0)
    assert record["outcome"] == outcome
    assert ("pilot_time" in record["message"]) is (limit_s == 850.0)


def test_only_the_user_or_the_scheduler_cancels(standing):
    stopping = Verdict(Outcome.CANCELLED, "cancelled by the user")
    cancelled = result_of(Outcome.CANCELLED)
    assert record_of(conducted(standing), cancelled, stopping, 2.0)[0]["outcome"] == "cancelled"
    assert record_of(conducted(standing), cancelled, None, 2.0)[0]["outcome"] == "unknown"


def fill(directory):
    """Files until no more can be made there."""
    for number in range(100):
        try:
            (directory / str(number)).touch()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return
            raise
    raise AssertionError("never full")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_node_without_room_for_the_attempt_says_disk_full(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=8", "none", scratch], check=True)

    async def scenario():
        agent, line = Agent("n1", 0, scratch), Scripted({**PREPARE, "first": True})
        fill(scratch)
        await agent.serve(line)
        return line.sent

    try:
        *_, answer = asyncio.run(scenario())
    finally:
        subprocess.run(["umount", "-l", scratch], check=True)
    assert answer["outcome"] == "disk_full"


def test_a_claim_that_was_made_before_an_error_is_ours(standing):
    holder = {"pilot": "p0001", "job_id": "7", "time": 5.0}
    assert try_claim(standing.directory, "r", 1, holder)
    assert try_claim(standing.directory, "r", 1, holder), "asked again after its answer was lost"
    assert not try_claim(standing.directory, "r", 1, {**holder, "pilot": "p0002"})


def test_what_ends_with_the_whole_job_accuses_no_node(standing):
    stopping = Verdict(Outcome.PREEMPTED, "the pilot's job was told to end (SIGTERM)")
    slurm = dataclasses.replace(conducted(standing), order=order(executor="slurm"))
    accusing = dataclasses.replace(result_of(Outcome.NODE_FAIL), accused=("n1",))
    record, about = record_of(slurm, accusing, stopping, 2.0)
    assert (record["outcome"], about) == ("preempted", {})
    record, about = record_of(slurm, accusing, None, 2.0)
    assert (record["outcome"], about["accused"]) == ("node_fail", ["n1"])


PLUG_IN = """
from sweep.contract import Workload
AXES = frozenset({"dp", "dtype", "micro_batch_size", "grad_accum"})
WORKLOAD = Workload(name="plugged", main="plugged:main", axes=AXES)
"""


def test_a_workload_that_the_node_does_not_have_is_an_import_error(tmp_path):
    """A plug-in of the login node alone."""
    plug_in, grid = tmp_path / "plug-in", tmp_path / "grid.yaml"
    info = plug_in / "plugged-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[sweep.workloads]\nplugged = plugged:WORKLOAD\n")
    (plug_in / "plugged.py").write_text(PLUG_IN)
    text = GRID.replace("workload: simulated", "workload: plugged").replace("params: {step_s: 0.02}\n", "")
    grid.write_text(text.replace("site: {", f"site: {{env: {{PYTHONPATH: {REPOSITORY}}}, "))
    words = ("launch", grid, "--dir", tmp_path / "s", "--executor", "local", "--yes")
    driving.run(*words, env={"PYTHONPATH": os.pathsep.join(map(str, (plug_in, REPOSITORY)))})
    records = [event["record"] for event in driving.events_of(tmp_path / "s", "record")]
    assert [record["outcome"] for record in records] == ["import_error"] * 2
    assert all("plugged" in record["message"] for record in records)


def test_no_rank_began_where_an_agent_still_imports(standing, monkeypatch):
    """Another node's trouble ended the attempt: who is late with its answer is busy, not dirty."""
    monkeypatch.setattr("sweep.pilot.leader.attempt.GRACE_S", 0.1)
    monkeypatch.setattr("sweep.pilot.leader.attempt.CLEAN_S", 0.1)

    async def scenario():
        links = [Link("n1", Mute(), alive=False), Link("n2", Mute())]
        run = dataclasses.replace(a_run(standing), nodes=2)
        runner = AttemptRunner("r.1", run, Workload(name="w", main="n:m", axes={}), links, Limits(), 0)
        return await runner.conduct(), links

    result, links = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert links[1].clean
    assert not result.not_cleaned


PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
CHILD = """
from sweep.pilot.job import StepDaemon
above = StepDaemon()
print(above.died, flush=True)
input()
print(above.died, flush=True)
"""


def test_a_leader_notices_that_the_daemon_above_it_died():
    above = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert above.stdout.readline() == "False\n"
    above.kill()
    above.wait()
    above.stdin.write("\n")
    above.stdin.flush()
    assert above.stdout.readline() == "True\n"


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
    """Processes forked from a warm image whose session's leader has gone."""
    if not (directory / "provenance.json").exists():
        return []
    pids = [
        int(words.split()[0]) for words in driving.marked_processes(directory) if "sweep.pilot.agent.zygote" in words
    ]
    return [pid for pid in pids if psutil.pid_exists(pid) and not psutil.pid_exists(os.getsid(pid))]


def killed_agent_leaves_nothing(directory, launcher):
    """Kill an agent in the middle of an attempt that has let a daemon go; the run is measured all the same."""
    deadline = time.monotonic() + 60
    while not daemons(directory):
        assert time.monotonic() < deadline, "no daemon was let go"
        time.sleep(0.05)
    os.kill(agent_pids(directory)[0], signal.SIGKILL)
    assert launcher.wait(120) == 0
    outcomes = [event["record"]["outcome"] for event in driving.events_of(directory, "record")]
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
