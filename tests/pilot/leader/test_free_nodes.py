"""Which nodes a further run may have."""

import pytest

from sweep.pilot.leader.free_nodes import usable, widest
from sweep.pilot.leader.link import Link
from tests.support.pilot_parts import Mute, order


@pytest.mark.parametrize(
    ("changes", "running", "expected"),
    [
        ({}, [], 4),
        ({}, [2, 1], 4),
        ({"side_by_side": False}, [], 4),
        ({"side_by_side": False}, [1], 0),
        ({"isolate": True}, [1, 1], 4),
        ({"isolate": True}, [1, 2], 1),
    ],
)
def test_a_shared_machine_takes_one_run_and_an_isolated_fabric_one_across_nodes(changes, running, expected):
    assert widest(order(**changes), 4, running) == expected


@pytest.mark.parametrize(("executor", "expected"), [("slurm", ["n1"]), ("local", ["n1", "n4"])])
def test_a_node_that_is_dead_dirty_or_in_quarantine_has_no_run(executor, expected):
    links = [Link("n1", Mute()), Link("n2", Mute(), alive=False), Link("n3", Mute(), clean=False), Link("n4", Mute())]
    assert [link.node for link in usable(order(executor=executor), links, {"n4"})] == expected
