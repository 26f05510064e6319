"""What ends agents on healthy nodes accuses none of these, and the run is measured."""

import pytest

from sweep.state.events import PilotStarted
from tests.support import driving
from tests.support.driving import running_attempt, wait_for
from tests.support.process_kinds import find

pytestmark = [pytest.mark.slurm, pytest.mark.long]  # an agent alone: tests/crash/test_agent_alone.py


def step_cancelled(job, cluster, **_):
    cluster.run("scancel", f"{job}.0")


def node_released(job, cluster, **_):
    cluster.run("scontrol", "update", f"jobid={job}", "numnodes=1")


def agents_killed(directory, **_):
    for agent in find("agent", directory, None):
        agent.kill()


@pytest.mark.parametrize(
    ("act", "outcome"), [(step_cancelled, "preempted"), (node_released, "preempted"), (agents_killed, "network")]
)
def test_no_healthy_node_is_excluded(tmp_path, slurm_cluster, act, outcome):
    directory = tmp_path / "s"
    one = ("-o", "micro_batch_size=1")
    launcher = driving.launching(tmp_path, driving.slow(nodes=2), *one, executor="slurm", env=slurm_cluster.env)
    wait_for(lambda: running_attempt(directory))
    act(job=driving.events_of(directory, PilotStarted)[0].job_id, cluster=slurm_cluster, directory=directory)
    assert launcher.wait(200) == 0
    assert [record["outcome"] for record in driving.records_of(directory)] == [outcome, "ok"]
    assert driving.state_of(directory).excluded_nodes == {}
    assert driving.wait_until_unmarked(directory, 20) == []
