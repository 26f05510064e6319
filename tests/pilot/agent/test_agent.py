"""An agent with a leader played by the test."""

import os
import tempfile

from msgspec.structs import replace

from sweep.outcomes import Outcome
from sweep.pilot.agent.agent import Agent
from sweep.pilot.messages import NotPrepared, RankExited
from tests.support.mounts import full_mount
from tests.support.pilot_parts import PREPARE, Image, Scripted, start

__all__ = ["full_mount"]


async def test_a_node_without_space_for_the_attempt_reports_disk_full(full_mount):
    scratch = full_mount("1m,nr_inodes=8")
    agent, line = Agent("n1", 0, scratch), Scripted(replace(PREPARE, first=True), until=NotPrepared)
    while os.statvfs(scratch).f_ffree:
        tempfile.mkstemp(dir=scratch)
    await agent.serve(line)
    assert line.sent[-1].outcome is Outcome.DISK_FULL


async def test_ranks_get_this_nodes_temporary_directory_whatever_tmpdir_is_and_the_users_other_settings(
    tmp_path, monkeypatch
):
    """The user's TMPDIR is the login node's, and would not be emptied after the attempt."""
    image = Image()
    monkeypatch.setattr("sweep.pilot.agent.fork_servers.ForkServer", image)
    monkeypatch.setenv("TMPDIR", "/home/user/tmp")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/user/kernels")
    await Agent("n1", 0, tmp_path).serve(Scripted(PREPARE, start(), until=RankExited))
    (request,) = image.requests
    assert request.env["TMPDIR"] != "/home/user/tmp"
    assert request.env["TORCHINDUCTOR_CACHE_DIR"] == "/home/user/kernels"
