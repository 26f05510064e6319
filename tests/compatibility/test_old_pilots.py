"""Pilots that commit 5362d08 started, under a launcher of the current code: they finish, or end cleanly."""

import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections import Counter

import psutil
import pytest

from tests.support.old_directories import doubled, events, processes, records, start, sweep
from tests.support.paths import REPOSITORY

COMMIT = "5362d08"
GRID = """\
name: old-pilot
workload: simulated
models: [tiny-1M]
nodes: [1, 2]
sequence_length: 64
global_batch: 4096
dtype: [fp32]
micro_batch_size: [1, 2, 4]
warmup_iterations: 1
iterations: 3
params: {step_s: 0.25}
site: {gpu: cpu, gpus_per_node: 2, pilot_time: 10m}
"""
RUNS = 6
WAITING_ZYGOTE = """\
import os, sys, time

open({replaced!r} + ".awaited", "w").close()
while not os.path.exists({replaced!r}):
    time.sleep(0.02)
os.execv(sys.executable, [sys.executable, "-m", "sweep.pilot.zygote", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The code of the old commit, from this checkout's history."""
    git = ["git", "-C", str(REPOSITORY)]
    known = [*git, "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    if shutil.which("git") is None or subprocess.run(known, capture_output=True).returncode:
        pytest.skip(f"this checkout's history lacks commit {COMMIT}: no repository, or a shallow one")
    folder = tmp_path_factory.mktemp("old")
    packed = subprocess.run(
        [*git, "archive", COMMIT, "sweep", "analysis", "bench_workloads", "templates"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


@pytest.fixture
def begun(old, tmp_path):
    """A sweep whose launcher and pilot are of the old code: (its directory, the launcher). The pilot measures."""
    directory, launcher = launch(tmp_path, old)
    yield directory, launcher
    killed(launcher)
    end(directory)


def launch(folder, code):
    """Start the sweep with the code of a checkout, and wait until its pilot measures."""
    (folder / "grid.yaml").write_text(GRID)
    directory = folder / "s"
    options = ["--dir", directory, "--executor", "local", "--yes"]
    launcher = start("launch", folder / "grid.yaml", *options, cwd=folder, checkout=code)
    wait_for(lambda: measuring(directory))
    assert leader(directory).environ()["PYTHONPATH"] == str(code)
    return directory, launcher


def wait_for(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def measuring(directory):
    """An attempt is running."""
    if not (directory / "provenance.json").exists():
        return False
    kinds = Counter(event["event"] for event in events(directory))
    return kinds["attempt_started"] > kinds["record"]


def leader(directory):
    """The process that leads the first pilot."""
    started = min((directory / "pilots").glob("*/started"))
    return psutil.Process(json.loads(started.read_text())["pid"])


def outcomes(directory, pilot=None):
    return Counter(record["outcome"] for record in records(directory) if pilot in (None, record["pilot"]))


def assert_ended_well(directory, within_s=10.0):
    """Each run was measured once, each attempt left one record, and no process is left."""
    ok = Counter(record["run_id"] for record in records(directory) if record["outcome"] == "ok")
    assert sorted(ok.values()) == [1] * RUNS
    assert_left_clean(directory, within_s)


def assert_left_clean(directory, within_s=10.0):
    assert doubled(directory) == []
    deadline = time.monotonic() + within_s
    while (left := processes(directory)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []


def killed(launcher):
    launcher.kill()
    launcher.wait()


def end(directory):
    """End all processes where a test failed."""
    for line in processes(directory):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(line.split()[0])).kill()


def test_an_old_pilot_measures_on_under_a_new_launcher(begun):
    directory, launcher = begun
    killed(launcher)
    before = len(records(directory))
    done = sweep("resume", directory, cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    assert_ended_well(directory)
    assert outcomes(directory) == {"ok": RUNS}
    assert outcomes(directory, "p0001")["ok"] > before, "the old pilot measured nothing under the new launcher"


@pytest.mark.long
def test_a_new_launcher_replaces_a_running_old_one(begun):
    directory, launcher = begun
    refused = sweep("resume", directory, cwd=directory.parent)
    assert refused.returncode == 2
    assert f"process {launcher.pid} on this host" in refused.stderr
    done = sweep("resume", directory, "--takeover", cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    assert launcher.wait(30) in (0, 1)
    assert_ended_well(directory)
    assert outcomes(directory) == {"ok": RUNS}


@pytest.mark.long
def test_what_an_old_pilot_leaves_when_it_dies_is_measured_by_a_new_one(begun):
    directory, launcher = begun
    killed(launcher)
    leader(directory).kill()
    done = sweep("resume", directory, cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    assert_ended_well(directory, within_s=30.0)
    assert outcomes(directory)["lost"] == 1
    assert outcomes(directory, "p0001")["ok"] < RUNS


@pytest.mark.parametrize(
    "lives",
    [pytest.param(False, id="launcher killed"), pytest.param(True, id="launcher alive", marks=pytest.mark.long)],
)
def test_cancel_ends_an_old_pilot(begun, lives):
    directory, launcher = begun
    if not lives:
        killed(launcher)
    done = sweep("cancel", directory, "--json", cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"cancelled": True, "pilots_open": []}
    assert not lives or launcher.wait(30) == 1
    assert_left_clean(directory)
    assert set(outcomes(directory)) <= {"ok", "cancelled"}
    assert outcomes(directory)["ok"] < RUNS
    if not lives:
        done = sweep("resume", directory, cwd=directory.parent)
        assert done.returncode == 0, done.stderr
        assert_ended_well(directory)


def test_the_code_is_replaced_before_a_pilot_executes_its_first_zygote(old, tmp_path):
    """As by `git pull` in a checkout that a pilot runs from: what the pilot executes from then on is new code.

    An agent executes `sweep.pilot.zygote` before the first run of a workload, by that name. Here the old module of that
    name waits until the code is replaced and starts from scratch: in the middle of imports no update could be right.
    """
    code, held, replaced = tmp_path / "code", tmp_path / "held", tmp_path / "replaced"
    shutil.copytree(old, held)
    (held / "sweep/pilot/zygote.py").write_text(WAITING_ZYGOTE.format(replaced=str(replaced)))
    code.symlink_to(held)
    directory, launcher = launch(tmp_path, code)
    wait_for(tmp_path.joinpath("replaced.awaited").exists)  # the leader has imported the workload by then
    killed(launcher)
    code.unlink()
    code.symlink_to(REPOSITORY)
    replaced.touch()
    assert_it_measures_on(directory)


@pytest.mark.long
def test_the_code_is_replaced_while_a_pilot_measures(old, tmp_path):
    code = tmp_path / "code"
    code.symlink_to(old)
    directory, launcher = launch(tmp_path, code)
    wait_for(lambda: records(directory))
    killed(launcher)
    code.unlink()
    code.symlink_to(REPOSITORY)
    assert_it_measures_on(directory)


def assert_it_measures_on(directory):
    try:
        done = sweep("resume", directory, cwd=directory.parent)
        assert outcomes(directory)["ok"] == RUNS, outcomes(directory)
        assert done.returncode == 0, done.stderr
        assert_ended_well(directory)
    finally:
        end(directory)


@pytest.mark.long
def test_an_interrupted_new_launcher_stops_an_old_pilot(begun):
    directory, launcher = begun
    killed(launcher)
    new = start("resume", directory, cwd=directory.parent, errors=subprocess.PIPE)
    assert b"1 running" in new.stderr.readline()  # it watches
    new.send_signal(signal.SIGINT)
    _, words = new.communicate(timeout=60)
    assert new.returncode == 130, words.decode()
    assert_left_clean(directory)
    assert set(outcomes(directory)) <= {"ok", "cancelled"}


# --- on Slurm, where a pilot may wait in the queue while the code is replaced


def launch_on_slurm(folder, code, cluster):
    """Submit the sweep's pilots with the code of a checkout, and leave: the ids of their jobs."""
    (folder / "grid.yaml").write_text(GRID.replace("pilot_time: 10m", "pilot_time: 10m, poll_interval_s: 1"))
    arguments = ["--dir", folder / "s", "--executor", "slurm", "--yes", "--detach", "--json"]
    done = sweep("launch", folder / "grid.yaml", *arguments, cwd=folder, checkout=code, env=cluster.env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["jobs"]


@pytest.fixture
def cluster(slurm_cluster):
    """The shared cluster, idle afterwards."""
    yield slurm_cluster
    slurm_cluster.cancel_all()
    slurm_cluster.wait_idle()


@pytest.mark.slurm
def test_an_old_job_measures_on_under_a_new_launcher(old, tmp_path, cluster):
    directory, jobs = tmp_path / "s", launch_on_slurm(tmp_path, old, cluster)
    wait_for(lambda: measuring(directory))
    assert leader(directory).environ()["PYTHONPATH"] == str(old)
    done = sweep("resume", directory, cwd=tmp_path, env=cluster.env)
    assert done.returncode == 0, done.stderr
    assert_ended_well(directory, within_s=30.0)
    assert {record["job_id"] for record in records(directory)} == set(jobs)


@pytest.mark.long
@pytest.mark.slurm
def test_a_job_that_waited_in_the_queue_while_the_code_was_replaced(old, tmp_path, cluster):
    """What submitit pickled, the script and the order are old code; what they start is new code."""
    code = tmp_path / "code"
    code.symlink_to(old)
    blocker = cluster.run("sbatch", "--parsable", "-N8", "--exclusive", "--wrap", "sleep 300").strip()
    jobs = launch_on_slurm(tmp_path, code, cluster)
    assert {cluster.squeue()[job]["state"] for job in jobs} == {"PENDING"}
    code.unlink()
    code.symlink_to(REPOSITORY)
    cluster.run("scancel", blocker)
    directory = tmp_path / "s"
    done = sweep("resume", directory, cwd=tmp_path, env=cluster.env)
    assert done.returncode == 0, done.stderr
    assert_ended_well(directory, within_s=30.0)
    assert {record["job_id"] for record in records(directory)} == set(jobs), "the waiting jobs measured nothing"
