"""Failures of the scheduler, nodes and file system in a sweep of real torch ranks, and its recovery."""

import contextlib
import json
import signal
import subprocess
import time

import psutil
import pytest

from sweep.state.events import PilotIntended
from tests.support import driving
from tests.support.driving import wait_for
from tests.support.faults.table import note
from tests.support.mounts import mounted

pytestmark = [pytest.mark.slurm, pytest.mark.parallel, pytest.mark.timeout(600)]

RUNS = {"models": ["tiny-4M"], "micro_batch_size": [1, 2, 4], "params": {"step_s": 1.0}}
"""three healthy runs of about seven seconds"""


def end(bench, launcher, codes=(0,), timeout_s=400):
    """Wait for the launcher; seconds until all processes of the sweep were gone."""
    assert launcher.wait(timeout_s) in codes, bench.output()
    return bench.left()


def outcomes(bench):
    return [record["outcome"] for record in bench.records()]


def assert_all_measured(bench, runs=3):
    assert outcomes(bench).count("ok") == runs, [(r["outcome"], r["message"]) for r in bench.records()]


def record_at(bench, fault_at):
    """The record of the attempt running at that time."""
    return next(r for r in bench.records() if r["started_at"] <= fault_at <= r["ended_at"])


def following(bench, since):
    """The outcome of the first attempt started later; "-" without one."""
    later = [r for r in bench.records() if r["started_at"] > since]
    return min(later, key=lambda r: r["started_at"])["outcome"] if later else "-"


def report(bench, fault, fault_at, left, clean_s=None):
    """Write a row: the outcome of the affected attempt and of the next one. Called after all other checks."""
    record = record_at(bench, fault_at)
    if record["outcome"] == "ok":
        note(fault, "ok", None, None, left, following(bench, fault_at))
        return
    detect_s = record["ended_at"] - record["teardown_s"] - fault_at
    clean_s = record["teardown_s"] if clean_s is None else clean_s
    note(fault, record["outcome"], detect_s, clean_s, left, following(bench, fault_at))


def failed(bench, outcome):
    return next((record for record in bench.records() if record["outcome"] == outcome), None)


@pytest.mark.long
def test_scancel(bench, slurm_cluster):
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    fault_at, job = time.time(), bench.pilot().job_id
    slurm_cluster.run("scancel", job)
    wait_for(lambda: not any(job in str(p.environ().get("SLURM_JOB_ID")) for p in slurm_cluster.job_processes()), 30)
    clean_s = time.time() - fault_at
    left = end(bench, launcher)
    record = failed(bench, "preempted")
    assert record is not None, "the leader recorded within KillWait"
    assert record["ended_at"] - fault_at < 5, "KillWait is 5 s on this cluster"
    assert_all_measured(bench)
    assert left == []
    report(bench, "scancel", fault_at, left, clean_s)


@pytest.mark.long
def test_a_nodes_death(bench, slurm_cluster):
    """The run that was on it is node_fail, and is measured elsewhere; the node is left out and shown."""
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    node, fault_at = bench.pilot().nodes[1], time.time()
    slurm_cluster.kill_node(node)
    try:
        left = end(bench, launcher)
    finally:
        slurm_cluster.start_slurmd(node)
    record = failed(bench, "node_fail")
    assert record["ended_at"] - fault_at < 30
    assert_all_measured(bench)
    again = [r for r in bench.records() if r["run_id"] == record["run_id"]]
    assert [r["outcome"] for r in again] == ["node_fail", "ok"]
    assert set(again[0]["node_names"]).isdisjoint(again[1]["node_names"]), "retried on other nodes"
    assert all(
        node not in r["node_names"] for r in bench.records() if r["outcome"] == "ok" and r["started_at"] > fault_at
    )
    shown = json.loads(driving.run("status", bench.directory, "--json", env=bench.env).stdout)["excluded_nodes"]
    assert list(shown) == [node]
    assert "node_fail" in shown[node]
    assert left == []
    report(bench, "a node's death", fault_at, left)
    wait_for(lambda: slurm_cluster.node_states()[node] == "idle", 90)


@pytest.mark.long
def test_the_leaders_nodes_death(bench, slurm_cluster):
    """The remaining agents end their ranks and cancel the job; resume carries on."""
    launcher = bench.start(**{**RUNS, "micro_batch_size": [1]})
    bench.wait_for_attempt()
    job, node, fault_at = bench.pilot().job_id, bench.pilot().nodes[0], time.time()
    slurm_cluster.kill_node(node)
    launcher.kill()
    launcher.wait()
    try:
        assert bench.left(60) == [], "no rank is left within a minute"
        clean_s = time.time() - fault_at
        ended = ("COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL")
        wait_for(lambda: slurm_cluster.squeue().get(job, {"state": "COMPLETED"})["state"] in ended, 60)
        gone_s = time.time() - fault_at
        assert gone_s < 60
        left = end(bench, bench.resume())
    finally:
        slurm_cluster.start_slurmd(node)
    record = failed(bench, "lost")
    assert record is not None
    assert_all_measured(bench, 1)
    assert left == []
    note("the leader's node's death", record["outcome"], gone_s, clean_s, left, following(bench, fault_at))
    wait_for(lambda: slurm_cluster.node_states()[node] == "idle", 90)


@pytest.mark.long
def test_slurmd_alone_killed(bench, slurm_cluster):
    """Its steps keep running: no attempt is lost."""
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    node, fault_at = bench.pilot().nodes[1], time.time()
    slurm_cluster.kill_slurmd(node)
    time.sleep(5)
    slurm_cluster.start_slurmd(node)
    left = end(bench, launcher)
    assert outcomes(bench) == ["ok"] * 3
    assert left == []
    report(bench, "slurmd alone killed, back after 5 s", fault_at, left)
    wait_for(lambda: slurm_cluster.node_states()[node] == "idle", 90)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [10, 60])
def test_slurmctld_down_and_back(bench, slurm_cluster, seconds):
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    fault_at = time.time()
    slurm_cluster.stop_slurmctld()
    time.sleep(seconds)
    slurm_cluster.start_slurmctld()
    left = end(bench, launcher)
    assert outcomes(bench) == ["ok"] * 3
    assert len(driving.state_of(bench.directory).pilots) == 1
    assert left == []
    report(bench, f"slurmctld down for {seconds} s", fault_at, left)
    slurm_cluster.wait_idle(90)


@pytest.mark.long
def test_slurmdbd_down(bench, slurm_cluster):
    """From before the launch to after the last record."""
    slurm_cluster.stop_slurmdbd()
    try:
        left = end(bench, bench.start(**RUNS))
    finally:
        slurm_cluster.start_slurmdbd()
    assert outcomes(bench) == ["ok"] * 3
    assert left == []
    report(bench, "slurmdbd down", bench.records()[0]["started_at"], left)


@pytest.fixture
def small_shared_disk(tmp_path):
    """The sweep's file system, small."""
    with mounted(tmp_path / "s", "-t", "tmpfs", "-o", "size=32m,mode=0700", "none") as path:
        yield path


@pytest.fixture
def ext4_shared_disk(tmp_path):
    """The sweep's file system, that can be frozen, and where the immutable attribute stops root too."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    with mounted(tmp_path / "s", "-o", "loop", str(image)) as path:
        (path / "lost+found").rmdir()
        yield path


@contextlib.contextmanager
def full_and_read_only(path):
    """New files: read-only. Files that are open: no space left (a file system in use cannot be remounted)."""
    for name in ("claims", "logs"):
        subprocess.run(["mount", "--bind", str(path / name), str(path / name)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(path / name)], check=True)
    with contextlib.suppress(OSError), (path / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"0" * 4096):
            pass
    try:
        with pytest.raises(OSError, match="Read-only"):
            (path / "claims" / "x").touch()
        yield
    finally:
        (path / "filler").unlink()
        for name in ("claims", "logs"):
            subprocess.run(["umount", "--lazy", str(path / name)], check=True)


@contextlib.contextmanager
def immutable(path):
    """Neither new files nor a further byte in those that are open. Root ignores modes, but not this."""
    subprocess.run(["chattr", "-R", "+i", str(path)], check=True)
    try:
        with pytest.raises(OSError, match="not permitted"):
            (path / "claims" / "x").touch()
        yield
    finally:
        subprocess.run(["chattr", "-R", "-i", str(path)], check=True)


@contextlib.contextmanager
def frozen(path):
    """Every write blocks, as with a failed file server."""
    subprocess.run(["fsfreeze", "--freeze", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(path)], check=True)


def assert_tolerated(bench, path, refusal, seconds, words):
    """No attempt, pilot or launcher is lost; pending writes are done later."""
    launcher = bench.start(**RUNS)
    bench.wait_for_attempt()
    with refusal(path):
        fault_at = time.time()
        time.sleep(seconds)
        assert launcher.poll() is None, bench.output()
    left = end(bench, launcher)
    assert outcomes(bench) == ["ok"] * 3
    assert len(driving.state_of(bench.directory).pilots) == 1, bench.output()
    assert left == []
    report(bench, words, fault_at, left)


@pytest.mark.long
def test_the_shared_directory_is_full_and_read_only_for_a_while(bench, small_shared_disk):
    words = "shared directory: new files meet a read-only mount, open ones a full disk, for 20 s"
    assert_tolerated(bench, small_shared_disk, full_and_read_only, 20, words)


@pytest.mark.long
def test_the_shared_directory_is_immutable_for_a_while(bench, ext4_shared_disk):
    words = "shared directory: immutable, open files too, for 30 s"
    assert_tolerated(bench, ext4_shared_disk, immutable, 30, words)


@pytest.mark.long
def test_the_shared_directory_hangs_for_a_while(bench, ext4_shared_disk):
    """Longer than the agents' timeout for a leader, and the launcher's for a pilot."""
    words = "shared directory: frozen, every write hangs, for 45 s"
    assert_tolerated(bench, ext4_shared_disk, frozen, 45, words)


def is_of(process, job):
    """Whether it is one of the job's that has not ended."""
    try:
        return process.environ().get("SLURM_JOB_ID") == job
    except psutil.Error:
        return False


@pytest.mark.long
def test_the_jobs_time_limit(bench, slurm_cluster):
    """Slurm's own limit is lowered, below what the current run needs: SIGTERM, a record, the next pilot."""
    one = {**RUNS, "micro_batch_size": [1], "params": {"step_s": 16.0}}
    launcher = bench.start(**one, timeouts={"steady": "60s"})
    bench.wait_for_attempt()
    job = bench.pilot().job_id
    slurm_cluster.run("scontrol", "update", f"jobid={job}", "TimeLimit=1")
    wait_for(lambda: failed(bench, "preempted") is not None, 150, bench.output)
    of_job = [p for p in slurm_cluster.job_processes() if is_of(p, job)]
    left = end(bench, launcher)
    assert left == []
    assert not [p for p in of_job if p.is_running() and p.status() != "zombie"]
    assert_all_measured(bench, 1)
    record = failed(bench, "preempted")
    assert (record["job_id"], outcomes(bench).count("preempted")) == (job, 1)
    note("job time limit", "preempted", None, record["teardown_s"], left, following(bench, record["ended_at"]))


@pytest.mark.long
def test_a_dead_pilots_processes_are_cleared_by_the_next(bench, slurm_cluster):
    """The leader and the agents are killed with no chance to clean; surviving ranks are ended by the next pilot."""
    launcher = bench.start(**{**RUNS, "nodes": [8]})
    bench.wait_for_attempt()
    mark = driving.events_of(bench.directory, PilotIntended)[0].token
    orphan = subprocess.Popen(
        ["sleep", "600"], env={**bench.env, "SWEEP_PILOT": mark, "SWEEP_NODE": "n1"}, start_new_session=True
    )
    stranger = subprocess.Popen(
        ["sleep", "600"], env={**bench.env, "SWEEP_PILOT": "another-sweep-p0001"}, start_new_session=True
    )
    try:
        slurm_cluster.run("scancel", "--signal=KILL", "--full", bench.pilot().job_id)
        end(bench, launcher)
        assert orphan.wait(30) == -signal.SIGKILL
        assert stranger.poll() is None
        assert_all_measured(bench)
    finally:
        for process in (orphan, stranger):
            process.kill()
            process.wait()
