"""Two sweeps of one user on the same nodes: each loses, ends and cleans up only its own processes."""

import pytest

from sweep.state.events import AttemptStarted
from tests.support import driving
from tests.support.driving import SLOW
from tests.support.process_kinds import GRID, find, wait_for_daemons


def launch(tmp_path, name, text, executor, env):
    (tmp_path / f"{name}.yaml").write_text(text)
    words = ("launch", tmp_path / f"{name}.yaml", "--dir", tmp_path / name, "--executor", executor, "--yes")
    with (tmp_path / f"{name}.out").open("wb") as output:
        return driving.start(*words, env=env, output=output)


def one_is_killed_and_resumed_next_to_the_other(tmp_path, executor, quiet_nodes, cluster=None):
    """The records of the undisturbed sweep."""
    env = cluster.env if cluster is not None else None
    noisy = launch(tmp_path, "noisy", GRID.format(batches=[1, 2], step_s=0.3), executor, env)
    quiet = launch(tmp_path, "quiet", SLOW.format(nodes=quiet_nodes, step_s=0.7, pilot_time="10m"), executor, env)
    wait_for_daemons("leader", tmp_path / "noisy", noisy, cluster)
    noisy.kill()
    noisy.wait()
    find("leader", tmp_path / "noisy", noisy, cluster)[0].kill()
    driving.succeeds("resume", tmp_path / "noisy", env=env)
    assert quiet.wait(200) == 0, (tmp_path / "quiet.out").read_text()
    driving.assert_each_run_measured_once(tmp_path / "noisy")
    for name in ("noisy", "quiet"):
        assert driving.wait_until_unmarked(tmp_path / name, 30) == []
    return driving.assert_each_run_measured_once(tmp_path / "quiet")


def test_at_the_same_time_on_this_machine(tmp_path):
    """The simulated nodes of both are this machine: their processes run concurrently."""
    records = one_is_killed_and_resumed_next_to_the_other(tmp_path, "local", quiet_nodes=2)
    assert {record["attempt"] for record in records} == {1}


@pytest.mark.long
@pytest.mark.slurm
def test_one_after_the_other_on_the_same_slurm_nodes(tmp_path, slurm_cluster):
    """The quiet sweep needs all nodes, so it waits for the noisy one, or the reverse."""
    records = one_is_killed_and_resumed_next_to_the_other(tmp_path, "slurm", 8, slurm_cluster)
    assert {record["attempt"] for record in records} == {1}
    nodes = {node for record in records for node in record["node_names"]}
    assert {node for event in driving.events_of(tmp_path / "noisy", AttemptStarted) for node in event.nodes} <= nodes
