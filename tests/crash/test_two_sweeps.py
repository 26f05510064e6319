"""Two sweeps of one user on the same nodes: each loses, ends and cleans up only its own processes."""

import pytest

from sweep.state.events import AttemptStarted
from tests.support import driving
from tests.support.process_kinds import find, leaking, wait_for_daemons


def one_is_killed_and_resumed_next_to_the_other(tmp_path, executor, quiet_nodes, cluster=None):
    """The records of the undisturbed sweep."""
    env = cluster.env if cluster is not None else None
    of_noisy, of_quiet = tmp_path / "noisy" / "s", tmp_path / "quiet" / "s"
    for directory in (of_noisy, of_quiet):
        directory.parent.mkdir()
    noisy = driving.launching(of_noisy.parent, leaking([1, 2], 0.3), executor=executor, env=env)
    with (tmp_path / "out").open("wb") as output:
        grid = driving.slow(0.7, quiet_nodes)
        quiet = driving.launching(of_quiet.parent, grid, executor=executor, env=env, output=output)
    wait_for_daemons("leader", of_noisy, noisy, cluster)
    noisy.kill()
    noisy.wait()
    find("leader", of_noisy, noisy, cluster)[0].kill()
    driving.succeeds("resume", of_noisy, env=env)
    assert quiet.wait(200) == 0, (tmp_path / "out").read_text()
    driving.assert_each_run_measured_once(of_noisy)
    for directory in (of_noisy, of_quiet):
        assert driving.wait_until_unmarked(directory, 30) == []
    return driving.assert_each_run_measured_once(of_quiet)


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
    assert {
        node for event in driving.events_of(tmp_path / "noisy" / "s", AttemptStarted) for node in event.nodes
    } <= nodes
