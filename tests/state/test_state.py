"""The state rebuilt from the journals, the retry policy and what may be claimed next."""

import itertools

import pytest

from sweep.outcomes import Outcome
from sweep.state.events import (
    AttemptStarted,
    CancelRequested,
    LauncherAlive,
    PilotGone,
    PilotIntended,
    PilotStarted,
    Recorded,
    RecordFacts,
    RerunRequested,
    SessionBegan,
    TrackingAlive,
)
from sweep.state.state import SweepState

RUN = "run-1"


def record(attempt, outcome, time=0.0, pilot="p0001"):
    facts = RecordFacts(run_id=RUN, attempt=attempt, outcome=outcome, pilot=pilot, ended_at=time)
    return Recorded(time=time, record=facts)


def started(attempt, time=0.0, pilot="p0001"):
    return AttemptStarted(time=time, run_id=RUN, attempt=attempt, pilot=pilot, nodes=("n1",))


def state_of(*events):
    sweep_state = SweepState()
    sweep_state.apply_all(events)
    return sweep_state


def test_attempts_follow_one_another():
    sweep_state = state_of()
    assert sweep_state.run(RUN).next_attempt() == 1
    sweep_state.apply(started(1))
    assert sweep_state.run(RUN).next_attempt() is None
    sweep_state.apply(record(1, Outcome.LOST))
    assert sweep_state.run(RUN).next_attempt() == 2
    sweep_state.apply(started(2))
    assert sweep_state.run(RUN).next_attempt() is None
    sweep_state.apply(record(2, Outcome.OK))
    assert sweep_state.run(RUN).next_attempt() is None
    assert sweep_state.run(RUN).ok.number == 2


def test_a_late_ok_supersedes_lost_and_the_later_attempt_is_surplus():
    events = [started(1), record(1, Outcome.LOST, 5), started(2, 6), record(2, Outcome.OK, 8), record(1, Outcome.OK, 9)]
    run = state_of(*events).run(RUN)
    assert run.attempts[1].outcome is Outcome.OK
    assert run.ok.number == 1


@pytest.mark.parametrize("order", list(itertools.permutations([record(1, Outcome.OK, 1), record(1, Outcome.LOST, 2)])))
def test_lost_never_replaces_a_record(order):
    assert state_of(*order).run(RUN).attempts[1].outcome is Outcome.OK


def test_a_rerun_asks_for_one_further_attempt():
    sweep_state = state_of(started(1), record(1, Outcome.OK))
    sweep_state.apply(RerunRequested(time=3.0, run_id=RUN, after=1))
    assert sweep_state.run(RUN).next_attempt() == 2
    sweep_state.apply(started(2))
    sweep_state.apply(record(2, Outcome.OOM_CUDA))
    assert sweep_state.run(RUN).next_attempt() is None
    assert sweep_state.run(RUN).ok.number == 1


def test_a_cancellation_holds_until_the_next_session():
    sweep_state = state_of(SessionBegan(time=1.0), CancelRequested(time=2.0))
    assert sweep_state.cancelled
    sweep_state.apply(SessionBegan(time=3.0))
    assert not sweep_state.cancelled


def intent(name="p0001", nodes=1, time=0.0):
    return PilotIntended(time=time, pilot=name, token=f"t-{name}", nodes=nodes, time_limit_s=60)


def test_a_submission_given_up_that_comes_after_all_is_watched_again():
    sweep_state = state_of(intent(), PilotGone(time=1.0, pilot="p0001", word="NEVER_SUBMITTED"))
    assert not sweep_state.pilots["p0001"].open
    sweep_state.apply(PilotStarted(time=2.0, pilot="p0001", job_id="77", nodes=("n1",)))
    assert sweep_state.pilots["p0001"].open
    assert sweep_state.pilots["p0001"].job_id == "77"


def test_a_pilots_own_lines_may_be_seen_before_the_launchers_intent():
    started = PilotStarted(time=2.0, pilot="p0001", job_id="77", nodes=("n1",))
    gone = PilotGone(time=3.0, pilot="p0001", word="COMPLETED")
    for events in ([started, intent(nodes=3)], [intent(nodes=3), started]):
        pilot = state_of(*events).pilots["p0001"]
        assert (pilot.job_id, pilot.nodes, pilot.token, pilot.open) == ("77", 3, "t-p0001", True)
    assert not state_of(gone, intent()).pilots["p0001"].open


def test_events_without_effect_are_ignored():
    assert state_of(LauncherAlive(time=1.0), TrackingAlive(time=2.0)) == SweepState()
