"""A pilot's job that an administrator requeues: its runs are measured once, and no job outlives the sweep."""

import pytest

from sweep.state.events import PilotStarted
from tests.support import driving
from tests.support.driving import running_attempt, wait_for

pytestmark = pytest.mark.slurm


def test_a_requeued_job_does_not_outlive_its_sweep(tmp_path, slurm_cluster):
    """Slurm starts it again two minutes later; the sweep is done before."""
    directory = tmp_path / "s"
    launcher = driving.launching(tmp_path, driving.slow(0.4), executor="slurm", env=slurm_cluster.env)
    wait_for(lambda: running_attempt(directory))
    job = driving.events_of(directory, PilotStarted)[0].job_id
    slurm_cluster.run("scontrol", "update", f"jobid={job}", "requeue=1")
    slurm_cluster.run("scontrol", "requeue", job)
    assert launcher.wait(200) == 0
    living = {"PENDING", "RUNNING"}
    assert slurm_cluster.squeue()[job]["state"] not in living
    records = driving.records_of(directory)
    assert sorted(record["outcome"] for record in records).count("ok") == 4
    assert {record["outcome"] for record in records} <= {"ok", "preempted"}
    slurm_cluster.wait_idle()
