"""Real limits and failures of the scheduler: the sweep completes, and nothing is submitted in a loop."""

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from sweep.state.events import AttemptStarted, PilotIntended, PilotSubmitted, SubmitDelayed
from tests.support import driving
from tests.support.clients import made_client
from tests.support.driving import wait_for
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.services import program

REFUSED = 6
"""failed submissions that a sweep may have, with pauses of 5, 10, 20, … s between them"""


def launch(tmp_path, cluster, runs, per_pilot=1, step_s=0.05, path=None, poll_s=1):
    """A launcher in the background, and its sweep's directory."""
    site = {"poll_interval_s": poll_s, "max_pilots": 8, "max_runs_per_pilot": per_pilot}
    grid = driving.simulated(site, **driving.ONE_LAYOUT, repeats=runs, iterations=3, params={"step_s": step_s})
    env = cluster.env if path is None else {**cluster.env, "PATH": f"{path}{os.pathsep}{cluster.env['PATH']}"}
    with (tmp_path / "launch.log").open("wb") as log:
        return driving.launching(tmp_path, grid, executor="slurm", env=env, output=log), tmp_path / "s"


def wait(process, tmp_path, timeout=200):
    assert process.wait(timeout=timeout) == 0, (tmp_path / "launch.log").read_text()[-3000:]


def exists(directory):
    return (directory / "provenance.json").exists()


def delayed(directory):
    return exists(directory) and driving.state_of(directory).delayed


def status(directory):
    reported = driving.succeeds("status", directory, "--json")
    shown = driving.run("status", directory)
    return json.loads(reported.stdout)["submit_delayed"], shown.stdout


def assert_no_loop(directory, runs):
    """No more submissions than runs and a few refused ones; no token twice."""
    intents = driving.events_of(directory, PilotIntended)
    submitted = driving.events_of(directory, PilotSubmitted)
    assert len(submitted) <= runs
    assert len(intents) <= len(submitted) + REFUSED
    assert set(Counter(event.token for event in intents).values()) == {1}


@pytest.mark.slurm
def test_max_submit_jobs(slurm_or_skip, tmp_path):
    extra = "AccountingStorageEnforce=limits,qos\nMinJobAge=2"
    with Cluster(nodes=4, accounting=True, extra=extra) as cluster:
        cluster.limit_user("MaxSubmitJobsPerUser=3")
        process, directory = launch(tmp_path, cluster, runs=5, step_s=1.0)
        wait_for(lambda: delayed(directory), 90)
        reported, shown = status(directory)
        wait(process, tmp_path)
        jobs = [row for row in cluster.sacct() if row["JobID"].isdigit()]
    assert "you have reached your limit of jobs in the queue" in reported
    assert "QOSMaxSubmitJobPerUserLimit" in reported, "Slurm's own message too"
    assert "tries again" in " ".join(shown.split())
    driving.assert_each_run_measured_once(directory)
    assert_no_loop(directory, runs=5)
    assert len(jobs) == 5
    assert status(directory)[0] is None, "no error once all is done"


@pytest.mark.long
@pytest.mark.slurm
def test_max_job_count(slurm_or_skip, tmp_path):
    """Other jobs fill the queue, with room for two."""
    with Cluster(nodes=2, accounting=False, extra="MaxJobCount=20\nMinJobAge=2") as cluster:
        for _ in range(18):
            cluster.run("sbatch", "--hold", "--job-name=other", "--wrap", "true")
        process, directory = launch(tmp_path, cluster, runs=5)
        wait(process, tmp_path)
        others = [job for job in cluster.squeue().values() if job["name"] == "other"]
        log = cluster.logs(lines=10_000)
    assert "MaxJobCount limit" in log, "the limit was reached"
    assert len(others) == 18
    driving.assert_each_run_measured_once(directory)
    assert_no_loop(directory, runs=5)


@pytest.mark.slurm
def test_submissions_that_time_out_and_were_accepted(tmp_path, slurm_cluster):
    """A slow controller takes the job, and its reply is too late: the job is found by its name, never resubmitted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    late = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    made_client(folder / "sbatch", f'{program("sbatch")} "$@" > /dev/null\necho "{late}" >&2\nexit 1')
    process, directory = launch(tmp_path, slurm_cluster, runs=6, per_pilot=3, step_s=1.0, path=folder)
    wait(process, tmp_path)
    driving.assert_each_run_measured_once(directory)
    prefix = driving.open_sweep(Path(directory)).sweep_id
    names = Counter(job["name"] for job in slurm_cluster.squeue().values() if job["name"].startswith(prefix))
    assert set(names.values()) == {1}
    assert_no_loop(directory, runs=6)
    jobs = [pilot.job_id for pilot in driving.state_of(directory).pilots.values() if pilot.started_at is not None]
    assert None not in jobs, "found by its name, or reported by the pilot itself"
    assert len(set(jobs)) == len(jobs) >= 2


@pytest.mark.slurm
@pytest.mark.long  # minutes on two cores
def test_a_controller_that_is_away_and_then_slow(slurm_or_skip, tmp_path):
    with Cluster(nodes=2, accounting=False) as cluster:
        cluster.stop_slurmctld()
        process, directory = launch(tmp_path, cluster, runs=3, per_pilot=3, step_s=1.0)
        wait_for(lambda: delayed(directory), 90)
        reported, _ = status(directory)
        cluster.start_slurmctld()
        wait_for(lambda: driving.events_of(directory, AttemptStarted), 90)
        with cluster.slurmctld_frozen():
            time.sleep(12)
        wait(process, tmp_path)
    assert "the controller is down or slow" in reported
    records = driving.assert_each_run_measured_once(directory)
    assert {record["attempt"] for record in records} == {1}, "an unresponsive controller is no reason to lose a run"
    assert_no_loop(directory, runs=3)


CALLED = """\
REAL "$@"; status=$?
echo "${0##*/} $status $*" >> "${0%/*}/calls"
exit $status
"""


@pytest.mark.slurm
@pytest.mark.long  # the pauses between refused submissions
def test_pilots_are_submitted_at_the_first_poll_that_a_controller_answers_again(slurm_or_skip, tmp_path):
    """Whatever the pause after the last refusal is by then: it grows to 40 s here, polls are 15 s apart."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue"):
        made_client(folder / name, CALLED.replace("REAL", program(name)))
    with Cluster(nodes=8, accounting=False) as cluster:
        cluster.stop_slurmctld()
        process, directory = launch(tmp_path, cluster, runs=8, path=folder, poll_s=15)
        wait_for(lambda: exists(directory) and len(driving.events_of(directory, SubmitDelayed)) >= 4, 240)
        token = driving.events_of(directory, PilotIntended)[0].token
        before = len((folder / "calls").read_text().splitlines())
        cluster.start_slurmctld()
        wait(process, tmp_path)
    calls = (folder / "calls").read_text().splitlines()[before:]
    accepted = next(number for number, call in enumerate(calls) if call.startswith("sbatch 0"))
    asked = [call for call in calls[:accepted] if call.startswith("squeue 0") and f"--name={token}" in call]
    assert len(asked) == 1, calls
    driving.assert_each_run_measured_once(directory)
