"""The state rebuilt from the journals, the retry policy and what may be claimed next."""

import pytest

from sweep.outcomes import Outcome
from sweep.state.events import (
    CancelRequested,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    RerunRequested,
    SessionBegan,
    SubmitDelayed,
    TriesRenewed,
)
from sweep.state.retries import OUTSIDE
from sweep.state.state import PilotState, SweepState
from tests.support.made_events import recorded, state_of
from tests.support.made_events import started as begun

RUN = "run-1"
RENEWED = TriesRenewed(time=9.0, after={RUN: 5})


def record(attempt, outcome, time=0.0):
    return recorded(RUN, outcome, time, attempt, ended_at=time)


def started(attempt, time=0.0):
    return begun(RUN, time, attempt)


def test_attempts_follow_one_another():
    sweep_state = state_of()
    assert sweep_state.run(RUN).next_attempt() == 1
    sweep_state.apply_all([started(1)])
    assert (sweep_state.run(RUN).next_attempt(), sweep_state.has_record(RUN, 1)) == (None, False)
    sweep_state.apply_all([record(1, Outcome.LOST)])
    assert sweep_state.has_record(RUN, 1)
    assert sweep_state.run(RUN).next_attempt() == 2
    sweep_state.apply_all([started(2)])
    assert sweep_state.run(RUN).next_attempt() is None
    sweep_state.apply_all([record(2, Outcome.OK)])
    assert sweep_state.run(RUN).next_attempt() is None
    assert sweep_state.run(RUN).ok.number == 2
    stopped = [state_of(recorded(RUN, stopped=stopped)).run(RUN).ok.stopped for stopped in ("slow", None)]
    assert stopped == [True, False]


def test_a_late_ok_supersedes_lost_which_replaces_no_record_and_the_later_attempt_is_surplus():
    events = [started(1), record(1, Outcome.LOST, 5), started(2, 6), record(2, Outcome.OK, 8), record(1, Outcome.OK, 9)]
    run = state_of(*events, record(1, Outcome.LOST, 10)).run(RUN)
    assert run.attempts[1].outcome is Outcome.OK
    assert run.ok.number == 1


@pytest.mark.parametrize(
    ("asked", "outcome", "further"),
    [(True, Outcome.OOM_CUDA, None), (True, Outcome.NODE_FAIL, 3), (False, Outcome.NODE_FAIL, None)],
)
def test_a_rerun_asks_for_one_further_attempt_and_for_another_where_a_node_failed_it(asked, outcome, further):
    sweep_state = state_of(started(1), record(1, Outcome.OK))
    if asked:
        sweep_state.apply_all([RerunRequested(time=3.0, run_id=RUN, after=1)])
    assert sweep_state.run(RUN).next_attempt() == (2 if asked else None)
    sweep_state.apply_all([started(2), record(2, outcome)])
    assert (sweep_state.run(RUN).next_attempt(), sweep_state.run(RUN).ok.number) == (further, 1)


@pytest.mark.parametrize("outcome", sorted(OUTSIDE))
def test_a_person_who_resumes_renews_the_tries_of_a_run_whose_failures_were_not_its_own(outcome):
    """Four times, more than any bound but that of an interruption; or once more, where the last had no end yet."""
    failed = [event for number in range(1, 6) for event in (started(number), record(number, outcome))]
    assert state_of(*failed[:8]).run(RUN).next_attempt() == (5 if outcome is Outcome.PREEMPTED else None)
    for renewed in (state_of(*failed, RENEWED), state_of(*failed[:-1], RENEWED, failed[-1])):
        run = renewed.run(RUN)
        assert run.next_attempt() == 6
        renewed.apply_all([started(6), record(6, outcome)])
        assert run.next_attempt() == 7, "its bound begins again"


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.OOM_CUDA, Outcome.HANG])
def test_a_person_who_resumes_renews_no_tries_of_a_run_that_is_measured_or_failed_by_itself(outcome):
    failed = [event for number in range(1, 5) for event in (started(number), record(number, Outcome.HANG))]
    run = state_of(*failed, started(5), RENEWED, record(5, outcome)).run(RUN)
    assert run.next_attempt() is None


def intent(name="p0001", nodes=1, time=0.0):
    return PilotIntended(time=time, pilot=name, token=f"t-{name}", nodes=nodes, time_limit_s=60)


def test_a_pilots_own_lines_may_be_seen_before_the_launchers_intent():
    started = PilotStarted(time=2.0, pilot="p0001", job_id="77", nodes=("n1",))
    gone = PilotGone(time=3.0, pilot="p0001", word="COMPLETED")
    for events in ([started, intent(nodes=3)], [intent(nodes=3), started]):
        pilot = state_of(*events).pilots["p0001"]
        assert (pilot.job_id, pilot.nodes, pilot.token, pilot.open) == ("77", 3, "t-p0001", True)
    assert not state_of(gone, intent()).pilots["p0001"].open
    assert state_of(intent(), gone, started).pilots["p0001"].open, "a submission given up that came after all"


def test_of_a_sweep_in_which_nothing_happened_nothing_is_stated():
    fresh = SweepState()
    assert (fresh.session_at, fresh.delayed, fresh.delayed_at, fresh.cancelled) == (0.0, None, 0.0, False)
    state = fresh.run_state(RUN)
    assert (state.last, state.ok, state.rerun_after, state.next_attempt()) == (None, None, 0, 1)
    assert (fresh.runs, fresh.touched) == ({}, []), "reading changes nothing"
    assert not fresh.has_record(RUN, 1)


def test_a_pilot_known_only_by_its_own_lines_has_neither_size_nor_submission():
    started = PilotStarted(time=2.0, pilot="p0001", job_id="77", nodes=("n1",))
    expected = PilotState("p0001", job_id="77", started_at=2.0, last_line_at=2.0, node_names=("n1",))
    pilot = state_of(started).pilots["p0001"]
    assert pilot == expected
    assert (pilot.nodes, pilot.intended_at, pilot.heartbeats) == (0, 0.0, 0)
    assert not pilot.elsewhere


def test_a_pilot_ended_by_its_own_line_else_by_the_scheduler_else_by_its_last_line_else_when_it_was_found_gone():
    own = PilotEnded(time=30.0, pilot="p0001", reason="no more work")
    alive = PilotAlive(time=20.0, pilot="p0001")
    seen = PilotGone(time=90.0, pilot="p0001", word="COMPLETED", ended_at=40.0)
    found = PilotGone(time=90.0, pilot="p0001", word="GONE")
    rows = [([alive, own, seen], 30.0), ([alive, seen], 40.0), ([alive, found], 20.0), ([found], 90.0)]
    for events, expected in rows:
        assert state_of(intent(), *events).pilots["p0001"].ended_at == expected


def test_a_leaders_last_line_is_its_latest_whatever_the_order_and_kind():
    started = PilotStarted(time=5.0, pilot="p0001", job_id="77", nodes=("n1",))
    beats = [PilotAlive(time=time, pilot="p0001") for time in (20.0, 10.0)]
    pilot = state_of(started, *beats).pilots["p0001"]
    assert (pilot.last_line_at, pilot.heartbeats) == (20.0, 2)
    attempt = begun(RUN, 25.0)
    assert state_of(started, *beats, attempt).pilots["p0001"].last_line_at == 25.0
    assert state_of(attempt).pilots == {}, "an attempt alone makes no pilot"


def test_a_leader_that_writes_again_that_it_started_began_when_it_first_did():
    lines = [PilotStarted(time=t, pilot="p0001", job_id="7", nodes=n) for t, n in ((5.0, ("n1",)), (9.0, ("n1", "n2")))]
    pilot = state_of(*lines).pilots["p0001"]
    assert (pilot.started_at, pilot.node_names) == (5.0, ("n1", "n2"))


def test_the_line_of_an_attempts_start_counts_more_than_its_record_and_the_record_where_there_is_none():
    own = recorded(RUN, time=9.0, started_at=3.0, ended_at=9.0, node_names=("x1",))
    with_line, alone = (state_of(*events).run(RUN).last for events in ([started(1, 2.0), own], [own]))
    assert (with_line.started_at, with_line.nodes) == (2.0, ("n1",))
    assert (alone.started_at, alone.nodes) == (3.0, ("x1",))
    bare = state_of(record(1, Outcome.LOST)).run(RUN).last
    assert (bare.started_at, bare.nodes) == (None, ())


def test_a_cancellation_holds_until_the_next_session_also_where_one_of_them_is_read_twice():
    cancel, session = CancelRequested(time=2.0), SessionBegan(time=3.0)
    assert not state_of(cancel, session, cancel).cancelled
    again = state_of(SessionBegan(time=1.0), cancel, SessionBegan(time=1.0))
    assert again.cancelled, "nor does a session that is read twice end it"
    assert again.session_at == 1.0


def test_a_submission_that_was_delayed_is_forgotten_once_one_is_accepted():
    delayed = SubmitDelayed(time=4.0, pilot="p0001", reason="too many jobs")
    assert (state_of(delayed).delayed, state_of(delayed).delayed_at) == ("too many jobs", 4.0)
    assert state_of(delayed, PilotSubmitted(time=5.0, pilot="p0001", job_id="7")).delayed is None


def test_requests_for_a_rerun_count_in_whatever_order_they_are_read():
    requests = [RerunRequested(time=float(after), run_id=RUN, after=after) for after in (1, 2)]
    for events in (requests, requests[::-1]):
        assert state_of(*events).run(RUN).rerun_after == 2


def test_an_attempt_that_failed_where_a_node_may_be_the_cause_is_avoided_and_no_other():
    events = [started(1), record(1, Outcome.HANG), started(2, 5.0), record(2, Outcome.PREEMPTED)]
    state = state_of(*events)
    state.run(RUN).attempts[2].nodes = ("n2",)
    assert state.run(RUN).avoid() == {"n1"}
