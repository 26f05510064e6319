"""Attempts before agents that the test plays: odd messages, failures, and what they cost."""

import asyncio
import dataclasses
import time

from sweep.contract import Workload
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_log import attempt_log
from sweep.pilot.leader.nodes import Link
from sweep.pilot.leader.record import recording_of
from sweep.pilot.messages import Failed, RankFailure, Start
from sweep.records.record import problems
from tests.support.pilot_parts import (
    LIMITS,
    Mute,
    a_run,
    conducted,
    exits,
    heartbeats,
    played,
    runner_on,
)


def said_by_ranks(standing, *messages):
    """The result of an attempt whose agent says this of its two ranks."""

    async def scenario():
        link = Link("n1", Mute())
        return await played(runner_on(standing, link), link, *messages)

    return asyncio.run(scenario())


def test_a_failure_has_a_log_and_a_record(standing):
    failure = RankFailure(type="E", message="7", traceback="['a']")
    failed = Failed(attempt="r.1", rank=0, failure=failure)
    result = said_by_ranks(standing, heartbeats(("steady", 4)), failed, *exits(1, 1))
    assert result.ranks[0].failure == failure
    assert result.ranks[0].progress.startswith("steady, iteration 4, last heartbeat ")
    record = recording_of(conducted(standing), result, None, 2.0).record
    assert problems(record) == []
    assert record.outcome == "python_exception"
    assert "['a']" in attempt_log(record, result)


def test_a_node_that_went_before_the_attempt_began_costs_no_start_limit(standing):
    async def scenario():
        return await runner_on(standing, Link("n1", Mute(), alive=False)).conduct()

    began = time.monotonic()
    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert result.accused == ("n1",)
    assert time.monotonic() - began < 5


def test_a_failure_nobody_thought_of_costs_the_attempt_and_its_nodes_are_cleared(standing):
    class Failing(Mute):
        def send(self, message):
            super().send(message)
            if isinstance(message, Start):
                raise ZeroDivisionError

    async def scenario():
        link = Link("n1", Failing())
        return await played(runner_on(standing, link), link)

    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.UNKNOWN
    assert "ZeroDivisionError" in result.message
    assert not result.not_cleaned


def test_no_rank_began_where_an_agent_still_imports(standing, monkeypatch):
    """Another node's trouble ended the attempt: who is late with its answer is busy, not dirty."""
    monkeypatch.setattr("sweep.pilot.leader.attempt.GRACE_S", 0.1)
    monkeypatch.setattr("sweep.pilot.leader.attempt.CLEAN_S", 0.1)

    async def scenario():
        links = [Link("n1", Mute(), alive=False), Link("n2", Mute())]
        run = dataclasses.replace(a_run(standing), nodes=2)
        runner = AttemptRunner("r.1", run, Workload(name="w", main="n:m", axes={}), links, LIMITS, 0)
        return await runner.conduct(), links

    result, links = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert links[1].clean
    assert not result.not_cleaned
