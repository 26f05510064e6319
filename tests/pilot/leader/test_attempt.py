"""Attempts before agents that the test plays: odd messages, failures, and what they cost."""

import asyncio
import dataclasses
import time

import pytest

from sweep.contract import Workload
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_log import attempt_log
from sweep.pilot.leader.nodes import Link
from sweep.pilot.leader.record import recording_of
from sweep.pilot.limits import Limits
from sweep.records.record import problems
from tests.support.pilot_parts import (
    Mute,
    a_run,
    conducted,
    exits,
    played,
    runner_on,
    told,
)


def test_beats_that_are_none_are_passed_over(standing):
    beats = [[0, "nonsense", 1, 2.0, 0.0], [0, "steady", "x", None, 0.0], [0, "steady", 3, {}, 0.0]]
    result = said_by_ranks(standing, {"is": "beats", "beats": [*beats, [0, "steady", 4, None, 0.0]]}, *exits(1, 1))
    assert result.ranks[0].progress.startswith("steady, iteration 4, last beat ")


def said_by_ranks(standing, *messages):
    """The result of an attempt whose agent says this of its two ranks."""

    async def scenario():
        link = Link("n1", Mute())
        return await played(runner_on(standing, link), link, *messages)

    return asyncio.run(scenario())


def test_bytes_that_come_as_a_fraction_are_rounded(standing):
    """They were worked out of GiB: no reason to lose the attempt."""
    given = {"kind": "measurement", "step_times_s": [0.1] * 5, "peak_allocated_bytes": 12.3 * 2**30, "parameters": 7e9}
    measurement = said_by_ranks(standing, told(given), *exits(0, 1)).ranks[0].measurement
    assert (measurement.peak_allocated_bytes, measurement.parameters) == (13207024435, 7_000_000_000)
    assert isinstance(measurement.parameters, int)


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        ({}, {"type": "Exception", "message": "", "traceback": ""}),
        ({"type": "E", "message": 7}, {"type": "E", "message": "7", "traceback": ""}),
        ({"type": None, "traceback": ["a"]}, {"type": "Exception", "message": "", "traceback": "['a']"}),
    ],
)
def test_a_failure_told_in_another_form_has_a_log_and_a_record(standing, said, failure):
    result = said_by_ranks(standing, told({"kind": "failure", **said}), *exits(1, 1))
    assert result.ranks[0].failure == failure
    record = recording_of(conducted(standing), result, None, 2.0).record
    assert problems(record) == []
    assert record.outcome == "python_exception"
    assert failure["traceback"] in attempt_log(record, result)


def test_a_failure_of_megabytes_is_kept_in_part(standing):
    long = {"type": "E" * 2**20, "message": "m" * 2**20, "traceback": "t" * 2**20 + "the cause"}
    failure = said_by_ranks(standing, told({"kind": "failure", **long}), *exits(1, 1)).ranks[0].failure
    assert len(str(failure)) < 50_000
    assert failure["traceback"].endswith("the cause")


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
            if message["do"] == "start":
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
        runner = AttemptRunner("r.1", run, Workload(name="w", main="n:m", axes={}), links, Limits(), 0)
        return await runner.conduct(), links

    result, links = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert links[1].clean
    assert not result.not_cleaned
