"""Attempts with agents played by the test: odd messages, failures, their effects and their diagnosis."""

import asyncio
import dataclasses
import threading
import time

import msgspec
import pytest

from sweep.outcomes import Outcome
from sweep.pilot.leader import attempt
from sweep.pilot.leader.attempt_log import attempt_log
from sweep.pilot.leader.attempt_state import AttemptState
from sweep.pilot.leader.link import Link, NodeLost
from sweep.pilot.leader.node_fate import Fate
from sweep.pilot.leader.watchdog import StopReason
from sweep.pilot.messages import Alive, Failed, Prepare, Prepared, RankExited, RankFailure, Start, Stop
from sweep.pilot.timeouts import QUIET_S, SILENCE_S
from sweep.records.record import problems
from tests.support.pilot_parts import (
    CLEAN,
    LIMITS,
    Mute,
    Open,
    Time,
    a_run,
    exits,
    heartbeats,
    played,
    receive,
    recorded,
    runner_on,
)


def dead(node):
    """A node that is dead by what Slurm says."""
    link = Link(node, Mute(), alive=False, fate=Fate.DEAD)
    link.gone.set()
    link.resolved.set()
    return link


async def test_a_failure_has_a_log_and_a_record(existing):
    failure = RankFailure(type="E", message="7", traceback="['a']")
    failed = Failed(attempt="r.1", rank=0, failure=failure)
    link = Link("n1", Mute())
    result = await played(runner_on(existing, link), link, heartbeats(("steady", 4)), failed, *exits(1, 1))
    assert result.state.ranks[0].failure == msgspec.structs.asdict(failure)
    assert result.state.ranks[0].progress.startswith("steady, iteration 4, last heartbeat ")
    record = recorded(existing, result).record
    assert problems(record) == []
    assert record.outcome == "python_exception"
    assert "['a']" in attempt_log(record, result.state.ranks)


class Polled(Link):
    """A link that counts how often its attempt asks whether it is unresponsive: once or more per look at the limits."""

    polls = 0

    @property
    def quiet(self):
        self.polls += 1
        return super().quiet

    async def polled(self, times):
        """Wait for so many more polls, or the attempt's end."""
        until = self.polls + times
        while self.polls < until and self.inbox is not None:
            await asyncio.sleep(0.005)


async def test_an_agent_that_was_stopped_with_its_ranks_is_back_before_they_are(existing, monkeypatch):
    """As after `scontrol resume`: its sign of life comes at once, the ranks' heartbeats when their step is done."""
    monkeypatch.setattr("sweep.pilot.leader.attempt.QUIET_CHECK_S", 0.02)
    limits = dataclasses.replace(LIMITS, steady_s=0.3, start_s=0.3, first_iteration_s=0.3, attempt_s=1e6)
    time_here = Time()
    link = Polled("n1", Open(), clock=time_here.clock)
    reading = asyncio.ensure_future(link.read())
    runner = runner_on(existing, link, limits=limits)
    playing = asyncio.ensure_future(played(runner, link, heartbeats(("steady", 1), ("steady", 2))))
    await link.channel.wait_until_sent(Start)
    time_here.passes(QUIET_S + 10)
    await link.polled(20)
    link.channel.incoming.put_nowait(Alive())
    await link.polled(2)
    if link.inbox is not None:
        for message in exits(0, 0):
            receive(link, message)
    assert (await asyncio.wait_for(playing, 10)).diagnosis.outcome is not Outcome.HANG
    reading.cancel()


async def test_ranks_are_not_late_where_their_agent_is_lost_just_as_the_wait_for_it_ends(existing, monkeypatch):
    time_here = Time()
    link = Link("n1", Open(), clock=time_here.clock)
    runner = runner_on(existing, link, limits=dataclasses.replace(LIMITS, start_s=0.3, attempt_s=1e6))
    receiving = runner._received

    async def received(timeout_s):
        if not link.quiet:
            return await receiving(min(timeout_s, 0.1))
        link.check()
        raise asyncio.TimeoutError

    monkeypatch.setattr(runner, "_received", received)
    playing = asyncio.ensure_future(played(runner, link))
    await link.channel.wait_until_sent(Start)
    time_here.passes(SILENCE_S + 1)
    assert (await asyncio.wait_for(playing, 10)).diagnosis.outcome is Outcome.NETWORK


@pytest.mark.parametrize(
    ("died", "end", "outcome"),
    [
        (False, {"exit_code": 1, "signal": None}, Outcome.NETWORK),
        (True, {"exit_code": 1, "signal": None}, Outcome.NODE_FAIL),
        (True, {"exit_code": None, "signal": 9}, Outcome.UNKNOWN),
    ],
)
async def test_where_a_node_is_lost_before_it_reports_why_its_rank_ended_that_is_the_reason(
    existing, died, end, outcome
):
    """Its rank failed, the others' followed from that; their agent can say no more than their exit code.

    A signal may be the scheduler's, which ends the job: no node is accused.
    """
    links = [Link("n1", Mute()), Link("n2", Mute())]
    ending = asyncio.ensure_future(runner_on(existing, *links).conduct())
    for link in links:
        await link.channel.wait_until_sent(Prepare)
        receive(link, Prepared(attempt="r.1", master_addr="x", master_port=1))
    await links[1].channel.wait_until_sent(Start)
    for rank in (2, 3):
        receive(links[1], RankExited(attempt="r.1", rank=rank, **end))
    await links[1].channel.wait_until_sent(Stop)
    receive(links[1], CLEAN)
    links[0].alive = False
    links[0].inbox.put_nowait(("n1", NodeLost("no message for 45 s")))
    if died:
        links[0].fate = Fate.DEAD
        links[0].gone.set()
    links[0].resolved.set()
    result = await asyncio.wait_for(ending, 30)
    assert result.diagnosis.outcome is outcome
    assert result.accused == (("n1",) if outcome is Outcome.NODE_FAIL else ())
    assert ("n1" in result.message) == (outcome is not Outcome.UNKNOWN)


@pytest.mark.parametrize(
    ("params", "given"), [({}, False), ({"checkpoint": "none"}, False), ({"checkpoint": "sync"}, True)]
)
async def test_only_a_run_that_writes_checkpoints_has_a_directory_for_them(existing, params, given):
    link = Link("n1", Mute())
    await played(runner_on(existing, link, checkpoint_dir="/shared", params=params), link, *exits(0, 0))
    (start,) = [message for message in link.channel.sent if isinstance(message, Start)]
    assert start.places[0].checkpoint_dir.startswith("/shared/r.1.") is given


async def test_a_node_lost_before_the_attempt_does_not_use_the_start_limit(existing):
    result = await runner_on(existing, dead("n1")).conduct()  # which else takes LIMITS.start_s, longer than a test may
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert result.accused == ("n1",)


async def test_an_unexpected_error_fails_the_attempt_and_its_nodes_are_cleared(existing):
    class Failing(Mute):
        def send(self, message):
            super().send(message)
            if isinstance(message, Start):
                raise ZeroDivisionError

    link = Link("n1", Failing())
    result = await played(runner_on(existing, link), link)
    assert result.diagnosis.outcome is Outcome.UNKNOWN
    assert "ZeroDivisionError" in result.message
    assert not result.state.not_ended


async def test_no_rank_began_where_an_agent_still_imports(existing, monkeypatch):
    """Another node's failure ended the attempt: a late agent is busy, not dirty."""
    monkeypatch.setattr("sweep.pilot.leader.attempt.GRACE_S", 0.1)
    monkeypatch.setattr("sweep.pilot.leader.attempt.CLEAN_S", 0.1)
    late = Link("n2", Mute())
    result = await runner_on(existing, dead("n1"), late).conduct()
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert late.clean
    assert not result.state.not_ended


async def test_a_leader_that_was_stopped_while_a_node_is_cleaned_does_not_take_it_for_late(existing, monkeypatch):
    """Its timers ran on: the first thing that it sees is that they are over."""
    for name, value in {"attempt.GRACE_S": 0.1, "attempt.CLEAN_S": 0.4}.items():
        monkeypatch.setattr(f"sweep.pilot.leader.{name}", value)
    monkeypatch.setattr("sweep.pilot.clock.LATE_S", 0.8)
    monkeypatch.setattr("sweep.pilot.clock.TICK_S", 0.1)
    link = Link("n1", Mute())
    ending = asyncio.ensure_future(runner_on(existing, link).conduct())
    await link.channel.wait_until_sent(Prepare)
    receive(link, Prepared(attempt="r.1", master_addr="x", master_port=1))
    await link.channel.wait_until_sent(Start)
    for message in exits(1, 1):
        receive(link, message)
    await link.channel.wait_until_sent(Stop)
    time.sleep(1.5)
    await asyncio.sleep(0.1)
    receive(link, CLEAN)
    result = await asyncio.wait_for(ending, 30)
    assert link.clean
    assert not result.state.not_ended


def state_of(existing, log_tail, verdict=None):
    """An attempt whose two ranks failed with this output."""
    state = AttemptState("r.1", a_run(existing), ["n1"], LIMITS, 0.0)
    state.verdict = verdict
    for rank in state.ranks:
        rank.exited, rank.exit_code, rank.log_tail = True, 1, log_tail
    return state


def diagnosis(state, ends_after_s=None):
    async def scenario():
        ending = asyncio.Event()
        if ends_after_s is not None:
            asyncio.get_running_loop().call_later(ends_after_s, ending.set)
        return await attempt.diagnosed(state, ending)

    return asyncio.run(scenario())


HUGE = "".join(f"rank {number} waits for a peer that is not there\n" for number in range(150_000))


def test_output_that_takes_too_long_is_of_an_unknown_outcome_and_the_leader_goes_on(existing, monkeypatch):
    monkeypatch.setattr(attempt, "DIAGNOSIS_S", 0.2)
    found = diagnosis(state_of(existing, HUGE))
    assert (found.outcome, found.evidence) == (Outcome.UNKNOWN, "the ranks' output was not diagnosed within 0.2 s")
    assert "diagnosis" in {thread.name for thread in threading.enumerate()}, "it was not awaited"
    hung = diagnosis(state_of(existing, HUGE, StopReason(Outcome.HANG, "no progress")))
    assert (hung.outcome, hung.evidence) == (Outcome.HANG, "no progress"), "what the watcher knows counts"


def test_the_end_of_the_job_ends_the_diagnosis(existing, monkeypatch):
    monkeypatch.setattr(attempt, "SHORT_DIAGNOSIS_S", 0.1)
    assert diagnosis(state_of(existing, HUGE), ends_after_s=0.1).outcome is Outcome.UNKNOWN


def test_a_diagnosis_that_fails_is_no_failure_of_the_pilot(existing):
    found = diagnosis(state_of(existing, None))
    assert found.outcome is Outcome.UNKNOWN
    assert found.evidence.startswith("the diagnosis failed: ")
