"""Attempts with agents played by the test: odd messages, failures, and their effects."""

import asyncio
import dataclasses
import time

from sweep.contract import Workload
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_log import attempt_log
from sweep.pilot.leader.link import Link
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


def dead(node):
    """A node whose agent died."""
    link = Link(node, Mute(), alive=False)
    link.gone.set()
    link.resolved.set()
    return link


def result_of_messages(existing, *messages):
    """The result of an attempt whose agent sends these messages about its two ranks."""

    async def scenario():
        link = Link("n1", Mute())
        return await played(runner_on(existing, link), link, *messages)

    return asyncio.run(scenario())


def test_a_failure_has_a_log_and_a_record(existing):
    failure = RankFailure(type="E", message="7", traceback="['a']")
    failed = Failed(attempt="r.1", rank=0, failure=failure)
    result = result_of_messages(existing, heartbeats(("steady", 4)), failed, *exits(1, 1))
    assert result.ranks[0].failure == failure
    assert result.ranks[0].progress.startswith("steady, iteration 4, last heartbeat ")
    record = recording_of(conducted(existing), result, None, 2.0).record
    assert problems(record) == []
    assert record.outcome == "python_exception"
    assert "['a']" in attempt_log(record, result)


def test_a_node_lost_before_the_attempt_does_not_use_the_start_limit(existing):
    async def scenario():
        return await runner_on(existing, dead("n1")).conduct()

    began = time.monotonic()
    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert result.accused == ("n1",)
    assert time.monotonic() - began < 5


def test_an_unexpected_error_fails_the_attempt_and_its_nodes_are_cleared(existing):
    class Failing(Mute):
        def send(self, message):
            super().send(message)
            if isinstance(message, Start):
                raise ZeroDivisionError

    async def scenario():
        link = Link("n1", Failing())
        return await played(runner_on(existing, link), link)

    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.UNKNOWN
    assert "ZeroDivisionError" in result.message
    assert not result.not_cleaned


def test_no_rank_began_where_an_agent_still_imports(existing, monkeypatch):
    """Another node's failure ended the attempt: a late agent is busy, not dirty."""
    monkeypatch.setattr("sweep.pilot.leader.attempt.GRACE_S", 0.1)
    monkeypatch.setattr("sweep.pilot.leader.attempt.CLEAN_S", 0.1)

    async def scenario():
        links = [dead("n1"), Link("n2", Mute())]
        run = dataclasses.replace(a_run(existing), nodes=2)
        runner = AttemptRunner("r.1", run, Workload(name="w", main="n:m", axes={}), links, LIMITS, 0)
        return await runner.conduct(), links

    result, links = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert links[1].clean
    assert not result.not_cleaned
