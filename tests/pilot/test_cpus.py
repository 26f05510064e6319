"""An agent has all CPUs of its node, also where the nodes of a job differ: tried on real Slurm."""

import pytest

from sweep.pilot.job import all_cpus
from tests.support import driving
from tests.support.slurm.cluster import Cluster


@pytest.mark.parametrize(
    ("environment", "option"),
    [
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8(x4)"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8(x2),8"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8(x3),4"}, []),
        ({}, []),
    ],
)
def test_one_number_only_where_all_nodes_have_it(environment, option):
    assert all_cpus(environment) == option


@pytest.mark.slurm
def test_a_pilot_over_nodes_that_differ(tmp_path, slurm_or_skip):
    """The first node has 8 CPUs, the second 4: with the first's number the second agent would not start."""
    with Cluster(nodes=2, accounting=False, cpus_of={"n2": 4}) as cluster:
        driving.launched(tmp_path, driving.slow(0.01, nodes=2), executor="slurm", env=cluster.env)
        shown = cluster.run("scontrol", "show", "node", "n2")
        assert "CPUTot=4" in shown, shown
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    assert {record["outcome"] for record in records} == {"ok"}
