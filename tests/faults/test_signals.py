"""Signals of the scheduler to the agents alone, and processes that are stopped for a while: no node is accused."""

import contextlib
import random
import signal
import subprocess
import time

import psutil
import pytest

from sweep.state.events import NodeBad, PilotEnded, PilotUnresponsive
from tests.support import driving
from tests.support.faults.table import note
from tests.support.process_kinds import find


def launch(tmp_path, executor, env=None, *, nodes, batches, step_s):
    keys = {"nodes": nodes, "micro_batch_size": batches, "iterations": 4, "warmup_iterations": 2}
    keys |= {"params": {"step_s": step_s}, "timeouts": {"steady": "8s"}}
    grid = driving.simulated({"pilot_time": "20m", "poll_interval_s": 1, "max_pilots": 1}, **keys)
    return driving.launching(tmp_path, grid, env=env, output=(tmp_path / "launch.out").open("ab"), executor=executor)


def assert_requeued(directory, hits):
    """Each hit ended an attempt as preempted, no node is accused, and every run was measured."""
    records = driving.assert_each_run_measured_once(directory)
    ended = [(record["outcome"], record["message"]) for record in records]
    assert {outcome for outcome, _ in ended} == {"ok", "preempted"}, ended
    assert [outcome for outcome, _ in ended].count("preempted") <= hits
    assert not driving.events_of(directory, NodeBad)
    assert not driving.state_of(directory).excluded_nodes


@pytest.mark.parametrize("late_s", [pytest.param(0.0, marks=pytest.mark.long), 1.5])
def test_agents_that_are_terminated_report_it_and_the_run_is_measured_again(tmp_path, late_s):
    """SIGTERM to ranks, fork servers, agents, as Slurm signals a step: none to the leader, late to the agents."""
    launcher = launch(tmp_path, "local", nodes=[2], batches=[1], step_s=0.7)
    directory = tmp_path / "s"
    driving.wait_for(lambda: driving.running_attempt(directory, 1.0))
    processes = {kind: find(kind, directory, launcher) for kind in ("rank", "fork server", "agent")}
    for kind, found in processes.items():
        if kind == "agent":
            time.sleep(late_s)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.terminate()
    assert launcher.wait(90) == 0, driving.output_of(tmp_path)
    assert_requeued(directory, 1)
    reasons = [event.reason for event in driving.events_of(directory, PilotEnded)]
    assert reasons == ["received SIGTERM", "no remaining run fits"], driving.output_of(tmp_path)
    assert driving.wait_until_unmarked(directory, 10) == []


def open_jobs(directory):
    return {pilot.job_id for pilot in driving.state_of(directory).pilots.values() if not pilot.ended}


def terminate_steps(tmp_path, cluster, hits, seed, batches):
    """`scancel -s TERM` of the pilot's job at random moments of its runs."""
    chance = random.Random(seed)
    launcher = launch(tmp_path, "slurm", cluster.env, nodes=[1, 2], batches=batches, step_s=0.5)
    directory = tmp_path / "s"
    done = 0
    while done < hits and launcher.poll() is None:
        driving.wait_for(lambda: driving.running_attempt(directory, 1.0) or launcher.poll() is not None, 120)
        time.sleep(chance.uniform(0.0, 1.5))
        jobs = [job for job, found in cluster.squeue().items() if found["state"] == "RUNNING"]
        if not jobs:
            continue
        done += 1
        subprocess.run(["scancel", "-s", "TERM", *jobs], env=cluster.env, check=True)
        driving.wait_for(lambda jobs=jobs: not open_jobs(directory).intersection(jobs), 60)
    if launcher.poll() is None:
        launcher.wait(200)
    driving.succeeds("resume", directory, env=cluster.env)
    assert done == hits, "each run was measured before"
    assert_requeued(directory, 8 * hits)
    left = driving.wait_until_unmarked(directory, 30)
    assert left == []
    hit = next(record for record in driving.records_of(directory) if record["outcome"] == "preempted")
    note("`scancel -s TERM`: the steps alone are signalled", "preempted", None, hit["teardown_s"], left, "ok")


@pytest.mark.slurm
def test_a_signal_to_the_steps_of_a_job_requeues_its_runs(tmp_path, slurm_cluster):
    terminate_steps(tmp_path, slurm_cluster, 2, 1, [1, 2])


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(1800)
def test_twenty_signals_to_the_steps_of_jobs(tmp_path, slurm_cluster):
    """The runs are few, so that each is hit several times."""
    terminate_steps(tmp_path, slurm_cluster, 20, 2, [1, 2, 4, 8])


def stopped(processes, seconds):
    """Stop them all, and let them continue."""
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        if number is signal.SIGSTOP:
            time.sleep(seconds)


STOPPED = {
    ("agent",): "an agent is stopped (SIGSTOP) for 30 s",
    ("leader",): "the leader is stopped for 30 s",
    ("leader", "agent", "fork server", "rank"): "all processes of a pilot are stopped for 30 s",
}


@pytest.mark.long
@pytest.mark.parametrize("kinds", STOPPED, ids="-".join)
def test_processes_that_are_stopped_for_30_s(tmp_path, kinds):
    """Their run is measured, in the same pilot, at the first attempt."""
    launcher = launch(tmp_path, "local", nodes=[2], batches=[1, 2], step_s=1.0)
    directory = tmp_path / "s"
    driving.wait_for(lambda: driving.running_attempt(directory, 1.0))
    found = [process for kind in kinds for process in find(kind, directory, launcher)]
    stopped(found[:1] if kinds == ("agent",) else found, 30)
    assert launcher.wait(120) == 0, driving.output_of(tmp_path)
    assert [record["outcome"] for record in driving.records_of(directory)] == ["ok", "ok"], driving.output_of(tmp_path)
    assert [event.reason for event in driving.events_of(directory, PilotEnded)] == ["no remaining run fits"]
    note(STOPPED[kinds], "ok", None, None, driving.wait_until_unmarked(directory, 10), "ok")


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.parametrize("seconds", [40, 75])
def test_a_suspended_job_continues(tmp_path, slurm_cluster, seconds):
    """`scontrol suspend`, as gang scheduling does it."""
    launcher = launch(tmp_path, "slurm", slurm_cluster.env, nodes=[2], batches=[1, 2], step_s=1.5)
    directory = tmp_path / "s"
    driving.wait_for(lambda: driving.running_attempt(directory, 1.0), 120)
    (job,) = [job for job, found in slurm_cluster.squeue().items() if found["state"] == "RUNNING"]
    slurm_cluster.run("scontrol", "suspend", job)
    time.sleep(seconds)
    slurm_cluster.run("scontrol", "resume", job)
    assert launcher.wait(200) == 0, driving.output_of(tmp_path)
    records = driving.records_of(directory)
    assert [record["outcome"] for record in records] == ["ok", "ok"], driving.output_of(tmp_path)
    assert not driving.events_of(directory, PilotUnresponsive)
    assert [event.reason for event in driving.events_of(directory, PilotEnded)] == ["no remaining run fits"]
    note(f"`scontrol suspend` for {seconds} s", "ok", None, None, driving.wait_until_unmarked(directory, 10), "ok")
