"""What a pilot runs next, and which pilots are submitted: tables over pure functions."""

import dataclasses

import pytest

from sweep.launcher.pilots_wanted import PATIENCE_S, SHARE_S, Capacity, pilots_wanted, unproductive_widths
from sweep.outcomes import Outcome
from sweep.state.state import Attempt, PilotState, SweepState
from tests.support.made_events import planned


def ended(sweep_state, name, *outcomes, pilot="p0001"):
    for number, outcome in enumerate(outcomes, start=1):
        sweep_state.run(name).attempts[number] = Attempt(number, pilot, outcome=outcome)


def pilot(name, nodes=1, gone=None, at=1.0):
    return PilotState(name=name, token=name, nodes=nodes, intended_at=at, intent_order=at, gone=gone, job_id="7")


def state(*pilots, **facts):
    return SweepState(pilots={one.name: one for one in pilots}, **facts)


def ended_pilots(count, gone="FAILED"):
    """Of one node each, one after the other."""
    return [pilot(f"p{i}", gone=gone, at=float(i)) for i in range(count)]


RUNS = [planned(number, nodes=nodes) for number, nodes in enumerate((1, 2, 1, 2))]
FIRST = RUNS[0].run_id


def many(count, nodes=1):
    return [planned(1000 * nodes + i, nodes=nodes) for i in range(count)]


CAPACITY = Capacity(max_pilots=4, pilot_time_s=600, run_s=60)
LONG_PILOTS = Capacity(max_pilots=8, pilot_time_s=4 * 3600, run_s=60, attempt_s=900)
LONG = {"run_s": 200}
"""two runs of a width justify a pilot of their own"""


def wanted(sweep_state, runs=RUNS, **changes):
    return [found.nodes for found in pilots_wanted(runs, sweep_state, dataclasses.replace(CAPACITY, **changes))]


@pytest.mark.parametrize(("runs", "pilots", "changes", "expected"), [
    pytest.param(RUNS, [], LONG, [1, 2], id="one pilot per width where one can do all"),
    pytest.param(RUNS, [], {}, [2], id="little work of a width is left to a wider pilot"),
    pytest.param(RUNS, [pilot("p", 4)], {}, [], id="which takes it on its free nodes"),
    pytest.param(many(35), [], {"max_pilots": 9}, [1, 1, 1, 1], id="more where one cannot do all in its time"),
    pytest.param(many(35), [], {"max_pilots": 2}, [1, 1], id="but no more than there may be"),
    pytest.param(RUNS, [pilot("p1", 1), pilot("p2", 2)], LONG, [], id="open pilots count"),
    pytest.param(RUNS, [pilot("p1", 1, gone="ENDED"), pilot("p2", 2)], LONG, [1], id="ended ones do not"),
    pytest.param(RUNS, [], {"max_runs_per_pilot": 1}, [1, 1, 2, 2], id="one job per run"),
    pytest.param(RUNS, [], {"side_by_side": False, **LONG}, [2], id="a single machine's pilot serves all widths"),
    pytest.param(RUNS, [pilot("p1", 2)], {"side_by_side": False}, [], id="and it holds one at a time"),
])  # fmt: skip
def test_as_many_pilots_are_wanted_as_the_work_of_each_width_needs(runs, pilots, changes, expected):
    assert wanted(state(*pilots), runs, **changes) == expected


def test_a_wider_pilot_that_does_not_start_is_not_waited_for():
    sweep_state = state(pilot("p", 4, at=0.0))
    assert wanted(sweep_state, now=PATIENCE_S - 1) == []
    assert wanted(sweep_state, now=PATIENCE_S + 1) == [2]
    sweep_state.pilots["p"].started_at = 10.0
    assert wanted(sweep_state, now=PATIENCE_S + 1) == []


def test_the_widest_serve_all_where_there_are_more_widths_than_pilots():
    much = [*many(32), *many(32, 2), *many(32, 8)]
    assert wanted(SweepState(), much, max_pilots=3, run_s=60) == [1, 2, 8]
    assert wanted(SweepState(), much, max_pilots=2, run_s=60) == [2, 8]
    (alone,) = pilots_wanted(much, SweepState(), Capacity(max_pilots=1, pilot_time_s=1e6, run_s=60, attempt_s=0))
    assert alone.nodes == 8
    assert alone.time_limit_s == 300 + 2 * 60 * (32 + 32 / 4 + 32 / 8), "8 runs of one node side by side"


def test_a_pilot_is_as_long_as_its_work():
    capacity = dataclasses.replace(LONG_PILOTS, max_pilots=1)
    (short,), (longer,) = (pilots_wanted(many(count), SweepState(), capacity) for count in (1, 20))
    assert 900 + 60 < short.time_limit_s < longer.time_limit_s < 2 * 3600
    assert longer.time_limit_s > 20 * 60
    (cut,) = pilots_wanted(many(20), SweepState(), dataclasses.replace(capacity, pilot_time_s=600))
    assert cut.time_limit_s == 600


def test_nothing_is_submitted_for_nothing():
    sweep_state = SweepState()
    for run in RUNS:
        ended(sweep_state, run.run_id, Outcome.OK)
    assert wanted(sweep_state) == []
    assert wanted(SweepState(cancelled_at=1.0)) == []


@pytest.mark.parametrize(("unproductive", "given_up"), [(2, False), (3, True), (4, True)])
def test_a_width_with_unproductive_pilots_is_given_up(unproductive, given_up):
    sweep_state = state(*ended_pilots(unproductive))
    assert (unproductive_widths(sweep_state) == {1}) is given_up
    assert (1 not in wanted(sweep_state, **LONG)) is given_up
    assert 2 in wanted(sweep_state, **LONG)


def test_a_new_session_tries_again_what_an_earlier_one_gave_up():
    assert 1 in wanted(state(*ended_pilots(3), session_at=10.0), **LONG)


def test_a_pilot_that_never_was_a_job_gives_no_width_up():
    """The site's limit on submissions, or a controller that is down: no reason to stop submitting."""
    sweep_state = state(*ended_pilots(5, "NEVER_SUBMITTED"))
    for known in sweep_state.pilots.values():
        known.job_id = None
    assert unproductive_widths(sweep_state) == frozenset()


def test_pilots_whose_runs_a_wider_one_took_give_no_width_up():
    sweep_state = state(*(pilot(f"p{i}", gone="ENDED") for i in range(3)), pilot("wide", 4))
    sweep_state.run(FIRST).attempts[1] = Attempt(1, "wide", nodes=("n1",), outcome=Outcome.HANG, ended_at=50.0)
    assert unproductive_widths(sweep_state) == frozenset()


def test_a_pilot_that_lost_nodes_counts_for_what_it_can_take():
    lesser = dataclasses.replace(pilot("p", 2), started_at=5.0, node_names=("n1",))
    assert wanted(state(lesser), **LONG) == [2]


def test_pilots_that_came_too_late_for_work_do_not_give_up_a_width():
    """The first of four pilots measures the last run, which hangs and waits again; the others found nothing."""
    sweep_state = state(*(pilot(f"p{i}", gone="ENDED") for i in range(1, 5)))
    sweep_state.run(FIRST).attempts[1] = Attempt(1, "p1", outcome=Outcome.HANG, ended_at=50.0)
    assert unproductive_widths(sweep_state) == frozenset()
    for i in range(5, 8):
        sweep_state.pilots[f"p{i}"] = pilot(f"p{i}", 1, gone="FAILED", at=60.0 + i)
    assert unproductive_widths(sweep_state) == {1}


def test_work_is_shared_by_as_many_pilots_as_the_site_allows():
    runs = many(200)  # 200 minutes
    wanted = pilots_wanted(runs, SweepState(), LONG_PILOTS)
    assert len(wanted) == 6, "each has half an hour's work or more"
    assert {one.time_limit_s for one in wanted} == {int(2 * 200 / 6 * 60 + 900 + 300) // 60 * 60 + 60}
    assert len(pilots_wanted(runs, SweepState(), dataclasses.replace(LONG_PILOTS, max_pilots=3))) == 3
    (alone,) = pilots_wanted(runs, SweepState(), dataclasses.replace(LONG_PILOTS, max_pilots=1))
    assert alone.time_limit_s == 4 * 3600, "where only one may be, it is as long as it may be"


def test_widths_share_what_the_site_allows():
    wanted = pilots_wanted([*many(200), *many(200, 2)], SweepState(), dataclasses.replace(LONG_PILOTS, max_pilots=6))
    assert [one.nodes for one in wanted] == [1, 1, 1, 2, 2, 2]


def test_little_work_is_one_pilot():
    assert len(pilots_wanted(many(int(SHARE_S / 60) - 1), SweepState(), LONG_PILOTS)) == 1


def of_group(group, *names, gone=None):
    return [dataclasses.replace(pilot(name, 2, gone), node_group=group) for name in names]


def test_a_node_groups_pilots_serve_its_runs_alone():
    """An open or unproductive pilot of another group neither serves a group's runs nor counts against its limit."""
    others = state(*of_group("old", "p1", "p2", "p3", "p4"))
    assert wanted(others, node_group="fast") == [2]
    assert wanted(others, node_group="old") == []


def test_a_width_is_given_up_per_node_group():
    sweep_state = state(*of_group("old", "p1", "p2", "p3", gone="COMPLETED"), *of_group("fast", "p4"))
    assert unproductive_widths(sweep_state, "old") == {2}
    assert unproductive_widths(sweep_state, "fast") == frozenset()
    ended(sweep_state, FIRST, Outcome.OK, pilot="p4")
    sweep_state.runs[FIRST].attempts[1].ended_at = 5.0
    assert unproductive_widths(sweep_state, "old") == {2}, "another group's run says nothing of this one's pilots"
