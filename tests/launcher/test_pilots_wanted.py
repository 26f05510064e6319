"""What a pilot runs next, and which pilots are submitted: tables over pure functions."""

import dataclasses
import json

import pytest

from sweep.launcher.pilots_wanted import PATIENCE_S, SHARE_S, Capacity, pilots_wanted, unproductive_widths
from sweep.outcomes import Outcome
from sweep.planning.runs import PlannedRun
from sweep.state.state import Attempt, PilotState, SweepState
from tests.support.configurations import run as a_run


def planned(name, nodes=1):
    return PlannedRun(name, "1B", nodes, None, json.dumps({**a_run(), "nodes": nodes}))


def ended(sweep_state, name, *outcomes, pilot="p0001"):
    for number, outcome in enumerate(outcomes, start=1):
        sweep_state.run(name).attempts[number] = Attempt(number, pilot, outcome=outcome)


def pilot(name, nodes=1, gone=None, at=1.0):
    return PilotState(name=name, token=name, nodes=nodes, intended_at=at, intent_order=at, gone=gone, job_id="7")


RUNS = [planned("a"), planned("b", 2), planned("c"), planned("d", 2)]


def many(count, nodes=1):
    return [planned(f"r{nodes}-{i}", nodes) for i in range(count)]


CAPACITY = Capacity(max_pilots=4, pilot_time_s=600, run_s=60)
LONG_PILOTS = Capacity(max_pilots=8, pilot_time_s=4 * 3600, run_s=60, attempt_s=900)
LONG = {"run_s": 200}
"""two runs of a width justify a pilot of their own"""


def wanted(sweep_state, runs=RUNS, **changes):
    return [found.nodes for found in pilots_wanted(runs, sweep_state, dataclasses.replace(CAPACITY, **changes))]


def test_one_pilot_per_width_where_one_can_do_all():
    assert wanted(SweepState(), **LONG) == [1, 2]


def test_little_work_of_a_width_is_left_to_a_wider_pilot():
    assert wanted(SweepState()) == [2]
    assert wanted(SweepState(pilots={"p": pilot("p", 4)})) == [], "the wider pilot takes it on its free nodes"


def test_a_wider_pilot_that_does_not_start_is_not_waited_for():
    sweep_state = SweepState(pilots={"p": pilot("p", 4, at=0.0)})
    assert wanted(sweep_state, now=PATIENCE_S - 1) == []
    assert wanted(sweep_state, now=PATIENCE_S + 1) == [2]
    sweep_state.pilots["p"].started_at = 10.0
    assert wanted(sweep_state, now=PATIENCE_S + 1) == []


def test_more_pilots_where_one_cannot_do_all_in_its_time():
    assert wanted(SweepState(), many(35), max_pilots=9) == [1, 1, 1, 1]
    assert wanted(SweepState(), many(35), max_pilots=2) == [1, 1]


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


def test_open_pilots_count():
    sweep_state = SweepState(pilots={"p1": pilot("p1", 1), "p2": pilot("p2", 2)})
    assert wanted(sweep_state, **LONG) == []
    sweep_state.pilots["p1"].gone = "ENDED"
    assert wanted(sweep_state, **LONG) == [1]


def test_one_job_per_run_is_the_same_path():
    assert wanted(SweepState(), max_runs_per_pilot=1) == [1, 1, 2, 2]


def test_a_single_machine_holds_one_pilot_at_a_time_that_serves_all_widths():
    assert wanted(SweepState(), side_by_side=False, **LONG) == [2]
    assert wanted(SweepState(pilots={"p1": pilot("p1", 2)}), side_by_side=False) == []


def test_nothing_is_submitted_for_nothing():
    sweep_state = SweepState()
    for run in RUNS:
        ended(sweep_state, run.run_id, Outcome.OK)
    assert wanted(sweep_state) == []
    assert wanted(SweepState(cancelled_at=1.0)) == []


@pytest.mark.parametrize(("unproductive", "given_up"), [(2, False), (3, True), (4, True)])
def test_a_width_with_unproductive_pilots_is_given_up(unproductive, given_up):
    sweep_state = SweepState(
        pilots={f"p{i}": pilot(f"p{i}", 1, gone="FAILED", at=float(i)) for i in range(unproductive)}
    )
    assert (unproductive_widths(sweep_state) == {1}) is given_up
    assert (1 not in wanted(sweep_state, **LONG)) is given_up
    assert 2 in wanted(sweep_state, **LONG)


def test_a_new_session_tries_again_what_an_earlier_one_gave_up():
    sweep_state = SweepState(
        pilots={f"p{i}": pilot(f"p{i}", 1, gone="FAILED", at=float(i)) for i in range(3)}, session_at=10.0
    )
    assert 1 in wanted(sweep_state, **LONG)


def test_a_pilot_that_never_was_a_job_gives_no_width_up():
    """The site's limit on submissions, or a controller that is down: no reason to stop submitting."""
    sweep_state = SweepState(pilots={f"p{i}": pilot(f"p{i}", 1, gone="NEVER_SUBMITTED", at=float(i)) for i in range(5)})
    for known in sweep_state.pilots.values():
        known.job_id = None
    assert unproductive_widths(sweep_state) == frozenset()


def test_pilots_whose_runs_a_wider_one_took_give_no_width_up():
    sweep_state = SweepState(pilots={f"p{i}": pilot(f"p{i}", 1, gone="ENDED", at=1.0) for i in range(3)})
    sweep_state.pilots["wide"] = pilot("wide", 4, at=1.0)
    sweep_state.run("a").attempts[1] = Attempt(1, "wide", nodes=("n1",), outcome=Outcome.HANG, ended_at=50.0)
    assert unproductive_widths(sweep_state) == frozenset()


def test_a_pilot_that_lost_nodes_counts_for_what_it_can_take():
    sweep_state = SweepState(pilots={"p": pilot("p", 2)})
    sweep_state.pilots["p"].started_at, sweep_state.pilots["p"].node_names = 5.0, ("n1",)
    assert wanted(sweep_state, **LONG) == [2]


def test_pilots_that_came_too_late_for_work_do_not_give_up_a_width():
    """The first of four pilots measures the last run, which hangs and waits again; the others found nothing."""
    sweep_state = SweepState(pilots={f"p{i}": pilot(f"p{i}", 1, gone="ENDED", at=1.0) for i in range(1, 5)})
    sweep_state.run("a").attempts[1] = Attempt(1, "p1", outcome=Outcome.HANG, ended_at=50.0)
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


def of_group(name, group, **others):
    return dataclasses.replace(pilot(name, **others), node_group=group)


def test_a_node_groups_pilots_serve_its_runs_alone():
    """An open or unproductive pilot of another group neither serves a group's runs nor counts against its limit."""
    others = {name: of_group(name, "old", nodes=2) for name in ("p1", "p2", "p3", "p4")}
    wanted_of = {"fast": wanted(SweepState(pilots=others), node_group="fast")}
    wanted_of["old"] = wanted(SweepState(pilots=others), node_group="old")
    assert wanted_of == {"fast": [2], "old": []}


def test_a_width_is_given_up_per_node_group():
    pilots = {name: of_group(name, "old", gone="COMPLETED", nodes=2) for name in ("p1", "p2", "p3")}
    sweep_state = SweepState(pilots=pilots)
    assert unproductive_widths(sweep_state, "old") == {2}
    assert unproductive_widths(sweep_state, "fast") == frozenset()
    ended(sweep_state, "a", Outcome.OK, pilot="p4")
    sweep_state.pilots["p4"] = of_group("p4", "fast", nodes=2)
    sweep_state.runs["a"].attempts[1].ended_at = 5.0
    assert unproductive_widths(sweep_state, "old") == {2}, "another group's run says nothing of this one's pilots"
