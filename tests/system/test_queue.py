"""Why a pilot waits in the queue of a real Slurm: shown with what the user can do, which is then done."""

import pytest

from tests.support import driving
from tests.support.driving import wait_for

RUN = {**driving.ONE_LAYOUT, "iterations": 3, "params": {"step_s": 0.05}}
GRID = driving.simulated({"poll_interval_s": 1}, nodes=2, **RUN)


@pytest.mark.slurm
def test_a_pilot_that_never_starts_says_why_and_starts_once_that_is_mended(tmp_path, slurm_cluster):
    directory, output = tmp_path / "s", tmp_path / "out"
    partition = slurm_cluster.run("sinfo", "--noheader", "--format=%R").split()[0]
    limit = ("scontrol", "update", f"partitionname={partition}")
    slurm_cluster.run(*limit, "maxnodes=1")
    try:
        launcher = driving.launching(tmp_path, GRID, executor="slurm", env=slurm_cluster.env, output=output.open("wb"))
        wait_for(lambda: waits(directory) == "PartitionNodeLimit")
        job = driving.state_of(directory).pilots["p0001"].job_id
        slurm_cluster.run("scontrol", "uhold", job)
        wait_for(lambda: waits(directory) == "JobHeldUser")
        release = f"scontrol release {job}"
        assert f"it is held by its user (JobHeldUser); release it: `{release}`" in shown(directory)
        slurm_cluster.run(*limit, "maxnodes=unlimited")
        slurm_cluster.run(*release.split())
        assert launcher.wait(90) == 0
    finally:
        slurm_cluster.run(*limit, "maxnodes=unlimited")
    assert "1 of them never to start (JobHeldUser)" in output.read_text()
    assert "never to start" not in shown(directory)
    driving.assert_each_run_measured_once(directory)


def waits(directory):
    pilots = driving.state_of(directory).pilots if (directory / "provenance.json").exists() else {}
    return pilots["p0001"].waits if pilots else None


def shown(directory):
    """What ``sweep status`` prints, on one line."""
    return " ".join(driving.succeeds("status", directory).stdout.split())
