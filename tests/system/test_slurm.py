"""The main job on a real Slurm cluster: torch ranks over several nodes, few jobs, and what the scheduler does."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from sweep.state.events import PilotEnded, PilotStarted
from tests.support import driving
from tests.support.driving import running_attempt, wait_for
from tests.support.paths import REPOSITORY

pytestmark = pytest.mark.slurm

EXAMPLE = REPOSITORY / "examples" / "slurm-tiny.yaml"


def launch(tmp_path, cluster, *options, **grid):
    words = driving.launch_words(tmp_path, driving.slow(**grid), *options, executor="slurm")
    return driving.run(*words, env=cluster.env, timeout=280)


def measuring(tmp_path, cluster, **grid):
    """A sweep's directory and its launcher, once a run is being measured."""
    launcher = driving.launching(tmp_path, driving.slow(**grid), executor="slurm", env=cluster.env)
    wait_for(lambda: running_attempt(tmp_path / "s"))
    return tmp_path / "s", launcher


@pytest.mark.long  # its parts: real ranks on two nodes below, many nodes in the tests of packing and growing
def test_torch_ranks_over_one_two_and_four_nodes(tmp_path, slurm_cluster):
    directory = tmp_path / "s"
    words = driving.launch_words(tmp_path, EXAMPLE.read_text(), "--json", executor="slurm")
    done = driving.succeeds(*words, env=slurm_cluster.env)
    summary = json.loads(done.stdout)
    cells, best = 3, 2
    assert list(summary["counts"]) == ["ok"]
    assert summary["counts"]["ok"] >= 12 + cells * best  # the best of each cell are measured again
    assert Path(summary["heatmap"]).read_bytes().startswith(b"\x89PNG")
    records = driving.assert_each_run_measured_once(directory)
    assert {record["nodes"] for record in records} == {1, 2, 4}
    assert {record["node_names"][0][0] for record in records} == {"n"}
    assert all(len(set(record["node_names"])) == record["nodes"] for record in records)
    jobs = {record["job_id"] for record in records}
    assert len(jobs) <= 3, "runs of one allocation share it"
    states = {row["JobID"]: row["State"] for row in slurm_cluster.sacct() if row["JobID"] in jobs}
    assert set(states) == jobs


def test_a_cluster_without_accounting(tmp_path, slurm_cluster_no_accounting):
    done = launch(tmp_path, slurm_cluster_no_accounting, step_s=0.05, nodes=[1, 2])
    assert done.returncode == 0, done.stderr
    driving.assert_each_run_measured_once(tmp_path / "s")


def test_options_of_the_agents_srun(tmp_path, slurm_cluster):
    """As Pyxis' --container-image would be: here one that Slurm's accounting shows."""
    words = ("-o", "site.srun=[--job-name=agents-here, '--comment=a b; $(c)']", "-o", "micro_batch_size=1")
    done = launch(tmp_path, slurm_cluster, *words, nodes=2, step_s=0.05)
    assert done.returncode == 0, done.stderr
    driving.assert_each_run_measured_once(tmp_path / "s")
    wait_for(lambda: "agents-here" in {row["JobName"] for row in slurm_cluster.sacct()})  # accounting lags


def test_cancel_ends_ranks_and_jobs_and_resume_carries_on(tmp_path, slurm_cluster):
    directory, launcher = measuring(tmp_path, slurm_cluster)
    outcomes = []
    while "cancelled" not in outcomes:
        if outcomes:  # on a busy machine the one that ran has ended by then
            launcher = driving.start("resume", directory, env=slurm_cluster.env)
            wait_for(lambda: running_attempt(directory))
        driving.succeeds("cancel", directory, env=slurm_cluster.env)
        assert launcher.wait(60) == 1
        assert driving.wait_until_unmarked(directory, 20) == []
        outcomes = [record["outcome"] for record in driving.records_of(directory)]
    assert set(outcomes) <= {"ok", "cancelled"}
    slurm_cluster.wait_idle()
    driving.succeeds("resume", directory, env=slurm_cluster.env)
    records = driving.records_of(directory)
    assert sum(record["outcome"] == "ok" for record in records) == 4


def test_scancel_of_a_pilot_leaves_a_record_and_the_run_is_measured_again(tmp_path, slurm_cluster):
    directory, launcher = measuring(tmp_path, slurm_cluster)
    job = driving.events_of(directory, PilotStarted)[0].job_id
    slurm_cluster.run("scancel", job)
    assert launcher.wait(120) == 0
    records = driving.records_of(directory)
    assert [r["outcome"] for r in records if r["job_id"] == job][-1] == "preempted"
    assert sum(r["outcome"] == "ok" for r in records) == 4
    assert driving.wait_until_unmarked(directory, 20) == []


def test_the_warning_signal_drains_a_pilot(tmp_path, slurm_cluster):
    directory, launcher = measuring(tmp_path, slurm_cluster)
    job = driving.events_of(directory, PilotStarted)[0].job_id
    slurm_cluster.run("scancel", "--signal=USR2", "--batch", job)
    assert launcher.wait(120) == 0
    ended = driving.events_of(directory, PilotEnded)[0]
    assert ended.reason == "drained at the warning signal"
    driving.assert_each_run_measured_once(directory)


def test_a_dead_node_ends_its_run_as_node_fail_and_the_run_is_measured_elsewhere(tmp_path, slurm_cluster):
    directory, launcher = measuring(tmp_path, slurm_cluster, nodes=2)
    second = driving.events_of(directory, PilotStarted)[0].nodes[1]
    slurm_cluster.kill_node(second)
    try:
        assert launcher.wait(150) == 0
    finally:
        slurm_cluster.start_slurmd(second)
        wait_for(lambda: slurm_cluster.node_states()[second] == "idle", 60)
    outcomes = [record["outcome"] for record in driving.records_of(directory)]
    assert outcomes.count("node_fail") == 1
    assert outcomes.count("ok") == 4
    assert driving.wait_until_unmarked(directory, 20) == []


def test_a_refused_pilot_stops_the_launch_with_the_schedulers_message(tmp_path, slurm_cluster):
    directory = tmp_path / "s"
    done = launch(tmp_path, slurm_cluster, "-o", "site.partition=nowhere")
    assert done.returncode == 1
    assert "nowhere" in (directory / "site.yaml").read_text()
    assert "invalid partition" in done.stderr.lower()
    assert f"mend what it names in {directory}/site.yaml, then `sweep resume {directory}`" in done.stderr
    assert len(driving.state_of(directory).pilots) == 1


def test_detach_submits_and_status_follows(tmp_path, slurm_cluster):
    directory = tmp_path / "s"
    done = launch(tmp_path, slurm_cluster, "--detach", step_s=0.05)
    assert done.returncode == 0, done.stderr
    slurm_cluster.wait_idle(90)
    status = json.loads(driving.run("status", directory, "--json").stdout)
    assert status["counts"] == {"ok": 4}
    done = driving.succeeds("resume", directory, env=slurm_cluster.env)
    driving.assert_each_run_measured_once(directory)


def test_a_pilot_near_its_wall_time_starts_nothing_that_cannot_end(tmp_path, slurm_cluster):
    """Runs of 3.5 s in pilots of one minute: no job reaches its limit, every run is measured."""
    directory = tmp_path / "s"
    done = launch(tmp_path, slurm_cluster, pilot_time="60s")
    assert done.returncode == 0, done.stderr
    driving.assert_each_run_measured_once(directory)
    jobs = {pilot.job_id for pilot in driving.state_of(directory).pilots.values()}
    states = {row["State"] for row in slurm_cluster.sacct() if row["JobID"] in jobs}
    assert "TIMEOUT" not in states


def test_the_script_and_the_process_list_hold_no_secret(tmp_path, slurm_cluster):
    directory, launcher = measuring(tmp_path, slurm_cluster)
    name = driving.events_of(directory, PilotStarted)[0].pilot
    key = json.loads((directory / "pilots" / name / "rendezvous").read_text())["key"]
    everything = subprocess.run(["ps", "axeww"], capture_output=True, text=True, check=True).stdout
    assert key not in everything
    assert key not in (directory / "pilots" / name / "pilot.sbatch").read_text()
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    driving.run("cancel", directory, env=slurm_cluster.env)
    driving.wait_for(lambda: not (directory / "pilots" / name / "rendezvous").exists())  # once its agents have left
