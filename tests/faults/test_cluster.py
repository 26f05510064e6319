"""What the scheduler, its nodes and the file system do to a sweep of real torch ranks, and how it carries on."""

import contextlib
import json
import signal
import subprocess
import time

import pytest

from tests import driving
from tests.faults.driver import note, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.parallel, pytest.mark.timeout(600)]

RUNS = {"models": ["tiny-4M"], "micro_batch_size": [1, 2, 4], "params": {"step_s": 1.0}}
"""three healthy runs of some seven seconds"""


def end(bench, launcher, codes=(0,), timeout_s=400):
    """The launch to its end; how long it took processes of the sweep to be gone."""
    assert launcher.wait(timeout_s) in codes, bench.said()
    return bench.left()


def outcomes(bench):
    return [record["outcome"] for record in bench.records()]


def assert_all_measured(bench, runs=3):
    assert outcomes(bench).count("ok") == runs, [(r["outcome"], r["message"]) for r in bench.records()]


def report(bench, fault, struck, record, left):
    """A row: what the struck attempt became, and whether the runs went on."""
    detect_s = record["ended_at"] - struck if record is not None else None
    clean_s = record["teardown_s"] if record is not None else None
    done = "ok" if outcomes(bench).count("ok") >= 3 else "-"
    note(fault, record["outcome"] if record is not None else "ok", detect_s, clean_s, left, done)


def failed(bench, outcome):
    return next((record for record in bench.records() if record["outcome"] == outcome), None)


def gone(pid):
    with contextlib.suppress(Exception):
        return "zombie" in subprocess.run(["ps", "-o", "state=", str(pid)], capture_output=True, text=True).stdout
    return True


@pytest.mark.long
def test_scancel(bench, slurm_cluster):
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    struck, job = time.time(), bench.pilot()["job_id"]
    slurm_cluster.run("scancel", job)
    wait_for(lambda: not any(job in str(p.environ().get("SLURM_JOB_ID")) for p in slurm_cluster.job_processes()), 30)
    clean_s = time.time() - struck
    left = end(bench, launcher)
    record = failed(bench, "preempted")
    assert record is not None, "the leader recorded within KillWait"
    assert record["ended_at"] - struck < 5, "KillWait is 5 s on this cluster"
    note("scancel", record["outcome"], record["ended_at"] - struck, clean_s, left, "ok")
    assert_all_measured(bench)
    assert left == []


@pytest.mark.long
def test_a_nodes_death(bench, slurm_cluster):
    """The run that was on it is node_fail, and is measured elsewhere; the node is left out and shown."""
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    node, struck = bench.pilot()["nodes"][1], time.time()
    slurm_cluster.kill_node(node)
    try:
        left = end(bench, launcher)
    finally:
        slurm_cluster.start_slurmd(node)
    record = failed(bench, "node_fail")
    report(bench, "a node's death", struck, record, left)
    assert record["ended_at"] - struck < 30
    assert_all_measured(bench)
    again = [r for r in bench.records() if r["run_id"] == record["run_id"]]
    assert [r["outcome"] for r in again] == ["node_fail", "ok"]
    assert set(again[0]["node_names"]).isdisjoint(again[1]["node_names"]), "tried elsewhere"
    assert all(
        node not in r["node_names"] for r in bench.records() if r["outcome"] == "ok" and r["started_at"] > struck
    )
    shown = json.loads(driving.run("status", bench.directory, "--json", env=bench.env).stdout)["bad_nodes"]
    assert list(shown) == [node]
    assert "node_fail" in shown[node]
    assert left == []
    wait_for(lambda: slurm_cluster.node_states()[node] == "idle", 90)


@pytest.mark.long
def test_the_leaders_nodes_death(bench, slurm_cluster):
    """The agents that are left end their ranks and cancel the job; resume carries on."""
    launcher = bench.start(**{**RUNS, "micro_batch_size": [1]})
    bench.wait_for_attempt()
    job, node, struck = bench.pilot()["job_id"], bench.pilot()["nodes"][0], time.time()
    slurm_cluster.kill_node(node)
    launcher.kill()
    launcher.wait()
    try:
        assert bench.left(60) == [], "no rank is left within a minute"
        clean_s = time.time() - struck
        ended = ("COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL")
        wait_for(lambda: slurm_cluster.squeue().get(job, {"state": "COMPLETED"})["state"] in ended, 60)
        gone_s = time.time() - struck
        assert gone_s < 60
        left = end(bench, bench.resume())
    finally:
        slurm_cluster.start_slurmd(node)
    record = failed(bench, "lost")
    assert record is not None
    note("the leader's node's death", record["outcome"], gone_s, clean_s, left, "ok")
    assert_all_measured(bench, 1)
    assert left == []
    wait_for(lambda: slurm_cluster.node_states()[node] == "idle", 90)


@pytest.mark.long
def test_slurmd_alone_killed(bench, slurm_cluster):
    """Its steps live on: nothing is lost."""
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    node = bench.pilot()["nodes"][1]
    slurm_cluster.kill_slurmd(node)
    time.sleep(5)
    slurm_cluster.start_slurmd(node)
    left = end(bench, launcher)
    note("slurmd alone killed, back after 5 s", "ok", None, None, left, "ok")
    assert outcomes(bench) == ["ok"] * 3
    wait_for(lambda: slurm_cluster.node_states()[node] == "idle", 90)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [10, 60])
def test_slurmctld_down_and_back(bench, slurm_cluster, seconds):
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    slurm_cluster.stop_slurmctld()
    time.sleep(seconds)
    slurm_cluster.start_slurmctld()
    left = end(bench, launcher)
    note(f"slurmctld down for {seconds} s", "ok", None, None, left, "ok")
    assert outcomes(bench) == ["ok"] * 3
    assert len(driving.world_of(bench.directory).pilots) == 1
    slurm_cluster.wait_idle(90)


@pytest.mark.long
def test_slurmdbd_down(bench, slurm_cluster):
    slurm_cluster.stop_slurmdbd()
    try:
        left = end(bench, bench.start(**RUNS))
    finally:
        slurm_cluster.start_slurmdbd()
    note("slurmdbd down", "ok", None, None, left, "ok")
    assert outcomes(bench) == ["ok"] * 3


@pytest.fixture
def shared_disk(tmp_path):
    """The sweep's file system, that can be made to refuse."""
    path = tmp_path / "s"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(path)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield path
    for name in ("claims", "logs", "."):
        subprocess.run(["umount", "--lazy", str(path / name)], check=False, capture_output=True)


@contextlib.contextmanager
def unwritable(path):
    """New files: read-only. Files that are open: no space left (a file system in use cannot be remounted)."""
    for name in ("claims", "logs"):
        subprocess.run(["mount", "--bind", str(path / name), str(path / name)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(path / name)], check=True)
    with contextlib.suppress(OSError), (path / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"0" * 4096):
            pass
    try:
        yield
    finally:
        (path / "filler").unlink()
        for name in ("claims", "logs"):
            subprocess.run(["umount", "--lazy", str(path / name)], check=True)


@pytest.mark.long
def test_the_shared_directory_refuses_for_a_while(bench, shared_disk):
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    with unwritable(shared_disk):
        with pytest.raises(OSError, match="Read-only"):
            (shared_disk / "claims" / "x").touch()
        time.sleep(20)
        assert launcher.poll() is None, bench.said()
    left = end(bench, launcher)
    note("shared directory unwritable for 20 s", "ok", None, None, left, "ok")
    assert outcomes(bench) == ["ok"] * 3
    assert len(driving.world_of(bench.directory).pilots) == 1, bench.said()
    assert left == []


@pytest.mark.long
def test_the_jobs_time_limit(bench, slurm_cluster):
    """Slurm's own limit is lowered under a pilot: SIGTERM, a record, and the runs go on in the next pilot."""
    launcher = bench.start(**{**RUNS, "params": {"step_s": 20.0}}, timeouts={"steady": "60s"})
    bench.wait_for_attempt()
    job = bench.pilot()["job_id"]
    slurm_cluster.run("scontrol", "update", f"jobid={job}", "TimeLimit=1")
    wait_for(lambda: failed(bench, "preempted") is not None, 200, bench.said)
    record = failed(bench, "preempted")
    left_of_job = [p for p in slurm_cluster.job_processes() if p.environ().get("SLURM_JOB_ID") == job]
    driving.run("cancel", bench.directory, env=bench.env)
    launcher.wait(60)
    left = bench.left()
    note("job time limit", record["outcome"], None, record["teardown_s"], left, "ok")
    assert left == []
    assert not [p for p in left_of_job if p.is_running() and p.status() != "zombie"]


@pytest.mark.long
def test_a_dead_pilots_remains_are_cleared_by_the_next(bench, slurm_cluster):
    """The leader and the agents are killed with no chance to clean; ranks that outlive them are ended by the next."""
    launcher = bench.start(**{**RUNS, "nodes": [8]})
    bench.wait_for_attempt()
    mark = driving.events_of(bench.directory, "pilot_intent")[0]["token"]
    orphan = subprocess.Popen(
        ["sleep", "600"], env={**bench.env, "SWEEP_PILOT": mark, "SWEEP_NODE": "n1"}, start_new_session=True
    )
    stranger = subprocess.Popen(
        ["sleep", "600"], env={**bench.env, "SWEEP_PILOT": "another-sweep-p0001"}, start_new_session=True
    )
    try:
        slurm_cluster.run("scancel", "--signal=KILL", "--full", bench.pilot()["job_id"])
        end(bench, launcher)
        assert orphan.wait(30) == -signal.SIGKILL
        assert stranger.poll() is None
        assert_all_measured(bench)
    finally:
        for process in (orphan, stranger):
            process.kill()
            process.wait()
