"""An agent with a leader played by the test."""

import errno
import os
import tempfile
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from sweep.outcomes import Outcome
from sweep.pilot.agent.agent import Agent
from sweep.pilot.agent.fork_servers import ForkServerError
from sweep.pilot.leader.link import Link
from sweep.pilot.messages import NotPrepared
from sweep.state.retries import may_retry
from tests.support.mounts import full_mount
from tests.support.pilot_parts import PREPARE, Image, Mute, Scripted, played, runner_on, start

__all__ = ["full_mount"]


async def test_a_node_without_space_for_the_attempt_reports_disk_full(full_mount):
    scratch = full_mount("1m,nr_inodes=8")
    agent, line = Agent("n1", 0, scratch), Scripted(replace(PREPARE, first=True), until=NotPrepared)
    while os.statvfs(scratch).f_ffree:
        tempfile.mkstemp(dir=scratch)
    await agent.serve(line)
    assert line.sent[-1].outcome is Outcome.DISK_FULL


@pytest.mark.parametrize("error", [ForkServerError("cannot fork"), OSError(errno.EMFILE, "Too many open files")])
async def test_a_run_that_its_node_could_not_start_did_not_fail_itself(existing, tmp_path, monkeypatch, error):
    """At a limit of the node's: of processes, open files, memory."""
    image = Image()
    image.fork = AsyncMock(side_effect=error)
    monkeypatch.setattr("sweep.pilot.agent.fork_servers.ForkServer", image)
    line, link = Scripted(PREPARE, start(), until=NotPrepared), Link("n1", Mute())
    await Agent("n1", 0, tmp_path).serve(line)
    result = await played(runner_on(existing, link), link, line.sent[-1])
    assert (result.diagnosis.outcome, result.message) == (Outcome.UNKNOWN, f"n1: {error}")
    assert may_retry([Outcome.UNKNOWN])
