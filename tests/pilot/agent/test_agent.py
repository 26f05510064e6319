"""An agent with a leader played by the test."""

import asyncio
import errno
import os
import subprocess

import pytest
from msgspec.structs import replace

from sweep.outcomes import Outcome
from sweep.pilot.agent.agent import Agent
from sweep.pilot.messages import NotPrepared, RankExited
from tests.support.pilot_parts import PREPARE, Image, Scripted, start


def fill(directory):
    """Files until no more can be made there."""
    for number in range(100):
        try:
            (directory / str(number)).touch()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return
            raise
    raise AssertionError("never full")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a small file system is mounted")
def test_a_node_without_space_for_the_attempt_reports_disk_full(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=8", "none", scratch], check=True)

    async def scenario():
        agent, line = Agent("n1", 0, scratch), Scripted(replace(PREPARE, first=True), until=NotPrepared)
        fill(scratch)
        await agent.serve(line)
        return line.sent

    try:
        *_, answer = asyncio.run(scenario())
    finally:
        subprocess.run(["umount", "-l", scratch], check=True)
    assert answer.outcome is Outcome.DISK_FULL


def test_ranks_get_this_nodes_temporary_directory_whatever_tmpdir_is_and_the_users_other_settings(
    tmp_path, monkeypatch
):
    """The user's TMPDIR is the login node's, and would not be emptied after the attempt."""
    image = Image()
    monkeypatch.setattr("sweep.pilot.agent.fork_servers.ForkServer", image)
    monkeypatch.setenv("TMPDIR", "/home/user/tmp")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/user/kernels")
    asyncio.run(Agent("n1", 0, tmp_path).serve(Scripted(PREPARE, start(), until=RankExited)))
    (request,) = image.requests
    assert request.env["TMPDIR"] != "/home/user/tmp"
    assert request.env["TORCHINDUCTOR_CACHE_DIR"] == "/home/user/kernels"
