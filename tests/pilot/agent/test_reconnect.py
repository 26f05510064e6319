"""When an agent gives up its leader, and how it finds it again."""

import asyncio
import os
import secrets

import pytest

from sweep.pilot.agent import reconnect
from sweep.pilot.agent.reconnect import REFUSED_S, GiveUp, LeaderSearch, reason_to_give_up
from sweep.pilot.channel import Rendezvous, authenticate
from sweep.pilot.clock import PausingClock
from sweep.pilot.job import has_node
from sweep.pilot.timeouts import RECONNECT_S
from tests.support.clients import made_client

KEY = secrets.token_bytes(32)


@pytest.mark.parametrize(
    ("search", "end"),
    [
        ({"looking_s": RECONNECT_S - 1, "scheduled": True}, None),
        ({"looking_s": RECONNECT_S, "scheduled": True}, GiveUp.LEAVE),
        ({"looking_s": 30, "scheduled": True, "leaders_node_in_job": True}, None),
        ({"looking_s": 30, "scheduled": True, "leaders_node_in_job": None}, None),
        ({"looking_s": 30, "scheduled": True, "leaders_node_in_job": False}, GiveUp.CANCEL),
        ({"looking_s": 30, "scheduled": True, "refused_s": 30}, None),
        ({"looking_s": 30, "scheduled": False, "refused_s": REFUSED_S}, GiveUp.LEAVE),
    ],
)
def test_the_job_is_cancelled_only_where_the_scheduler_reports_that_the_leaders_node_is_gone(search, end):
    assert reason_to_give_up(**search) is end


def scheduler(folder, script):
    """A squeue that does this, and a scontrol that knows two lists."""
    names = """case $3 in 'n[1-3]') echo "n1\nn2\nn3";; 'n[2-3]') echo "n2\nn3";; esac"""
    for name, text in (("squeue", script), ("scontrol", names)):
        made_client(folder / name, text)


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo 17 n[1-3] end", True),
        ("echo 17 n[2-3] end", False),
        ("exit 0", None),
        ("echo 17 n[2-", None),
        ("echo 18 n[2-3] end", None),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", None),
        (None, None),
    ],
)
def test_no_answer_of_the_scheduler_is_unknown(tmp_path, monkeypatch, script, answer):
    if script is not None:
        scheduler(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script else str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert has_node("n1") is answer


async def test_a_leader_that_comes_late_and_a_file_that_is_seen_late_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(reconnect, "AGAIN_S", 0.05)

    async def accept(reader, writer):
        await authenticate(reader, writer, KEY, b"leader", b"agent")

    search = asyncio.ensure_future(LeaderSearch(tmp_path, PausingClock()).connect())
    await asyncio.sleep(0.2)
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    Rendezvous(("127.0.0.2", "127.0.0.1"), port, KEY).write(tmp_path / "rendezvous")
    channel = await asyncio.wait_for(search, 10)
    channel.close()
    server.close()
    assert channel.peer_address == "127.0.0.1"


async def test_a_host_without_a_leader_is_left_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(reconnect, "AGAIN_S", 0.05)
    monkeypatch.setattr(reconnect, "REFUSED_S", 0.3)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    Rendezvous(("127.0.0.1",), port, KEY).write(tmp_path / "rendezvous")
    assert "SLURM_JOB_ID" not in os.environ
    assert await asyncio.wait_for(LeaderSearch(tmp_path, PausingClock()).connect(), 10) is GiveUp.LEAVE
