"""Two real Slurm clusters on one shared file system: a resume on the other's login node doubles nothing."""

import os
import signal

import pytest

from tests.support import driving
from tests.support.driving import running_attempt, wait_for
from tests.support.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm


def test_a_resume_on_another_cluster_measures_no_run_twice(tmp_path, slurm_cluster_no_accounting):
    """Its Slurm does not know the pilot's job, which still runs: that is no sign of its end."""
    directory = tmp_path / "s"
    first = slurm_cluster_no_accounting
    launcher = driving.launching(tmp_path, driving.slow(1.0), executor="slurm", env=first.env)
    wait_for(lambda: running_attempt(directory))
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    with Cluster(nodes=2, gpus_per_node=2, accounting=False) as second:
        done = driving.run("resume", directory, env=second.env)
        second.wait_idle()
    assert done.returncode == 0, done.stderr
    assert "and this host asks" in done.stderr
    records = driving.assert_each_run_measured_once(directory)
    assert {record["outcome"] for record in records} == {"ok"}, "nothing was declared lost"
    first.wait_idle()
