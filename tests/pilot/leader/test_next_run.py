"""Which nodes a further run may have, and how much time."""

from dataclasses import replace

import pytest

from sweep.pilot.leader.free_nodes import UNREACHABLE_S, may_return, unreachable, usable, widest
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.pilot_time import LATELY, MARGIN_S, UNKNOWN_RUN, PilotTime
from sweep.planning.runs import ASSUMED_RUN_S
from tests.support.pilot_parts import LIMITS, Mute, spec


@pytest.mark.parametrize(
    ("changes", "running", "expected"),
    [
        ({}, [], 4),
        ({}, [2, 1], 4),
        ({"executor": "local"}, [], 4),
        ({"executor": "local"}, [1], 0),
        ({"isolate": True}, [1, 1], 4),
        ({"isolate": True}, [1, 2], 1),
    ],
)
def test_a_shared_machine_takes_one_run_and_an_isolated_fabric_one_across_nodes(changes, running, expected):
    assert widest(spec(**{"executor": "slurm", **changes}), 4, running) == expected


@pytest.mark.parametrize(("executor", "expected"), [("slurm", ["n1"]), ("local", ["n1", "n4"])])
def test_a_node_that_is_dead_dirty_or_excluded_has_no_run(executor, expected):
    links = [Link("n1", Mute()), Link("n2", Mute(), alive=False), Link("n3", Mute(), clean=False), Link("n4", Mute())]
    assert [link.node for link in usable(spec(executor=executor), links, {"n4"})] == expected


def lost(node, *at, gone=False, back=False):
    """A node whose connection was lost at these times."""
    link = Link(node, Mute(), alive=back, lost_at=list(at))
    if gone:
        link.gone.set()
    return link


def test_a_node_whose_connection_was_lost_twice_is_left_out():
    links = [lost("n1", 5.0, back=True), lost("n2", 5.0, 60.0, back=True)]
    assert [link.node for link in usable(spec(executor="slurm"), links, ())] == ["n1"]


@pytest.mark.parametrize(
    ("link", "now", "expected"),
    [
        (lost("n1", 5.0), 5.0 + UNREACHABLE_S - 1, True),
        (lost("n1", 5.0), 5.0 + UNREACHABLE_S, False),
        (lost("n1", 5.0, gone=True), 6.0, False),
        (lost("n1", 5.0, 60.0), 61.0, False),
        (lost("n1", 5.0, back=True), 6.0, False),
    ],
)
def test_a_pilot_waits_for_a_node_that_may_come_back_for_a_while(link, now, expected):
    assert may_return(link, now) is expected


def test_a_node_that_does_not_come_back_is_reported_unless_most_are_lost():
    links = [lost("n1", 5.0), lost("n2", 100.0), Link("n3", Mute()), Link("n4", Mute()), Link("n5", Mute())]
    now = 5.0 + UNREACHABLE_S
    assert [link.node for link in unreachable(links, now)] == ["n1"]
    assert unreachable(links, now - 1) == []
    assert unreachable(links[:3], now) == [], "then the leader's own node is cut off"
    assert unreachable([lost("n1", 5.0, gone=True), *links[2:]], now) == [], "its failure was reported as such"


@pytest.mark.parametrize(
    ("limit_s", "end", "left_s"),
    [(1000, "", 900.0), (1000, "600", 500.0), (1000, "5000", 900.0), (1000, "unknown", 900.0), (200, "", 100.0)],
)
def test_slurm_states_when_the_job_ends_and_else_the_limit_does_less_a_margin(limit_s, end, left_s):
    job = PilotTime(spec(time_limit_s=limit_s), {"SLURM_JOB_END_TIME": end}, 0.0)
    assert job.left_s(100.0) == left_s - min(MARGIN_S, limit_s / 10)


def test_the_next_run_takes_somewhat_more_than_the_longest_lately_and_an_unknown_one_no_more_than_it_may():
    for limits, job_s, expected in (
        (LIMITS, 1000, UNKNOWN_RUN * ASSUMED_RUN_S), (replace(LIMITS, attempt_s=60.0), 1000, 60.0), (LIMITS, 100, 50.0)
    ):  # fmt: skip
        assert PilotTime(spec(limits=limits, time_limit_s=job_s), {}, 0.0).next_run_s() == expected
    job = PilotTime(spec(), {}, 0.0)
    for seconds in [100.0] + [10.0] * (LATELY - 1):
        job.took(seconds)
    assert job.next_run_s() == 150.0
    job.took(10.0)
    assert job.next_run_s() == 15.0
