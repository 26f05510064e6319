"""Connections to a leader: agents are admitted, strangers are bounded in number, time and lines of the log."""

import asyncio
import contextlib
import resource
import socket

import pytest

from sweep.pilot.channel import Rendezvous, connect
from sweep.pilot.leader import nodes
from sweep.pilot.leader.nodes import Admission, raise_file_limit
from sweep.pilot.messages import Hello

KEY = b"k" * 32
HELLO = Hello(node="n1", index=0, stale_tokens=())


@contextlib.asynccontextmanager
async def admitting(most):
    """(the port, the greetings so far) of an admission of at most so many unproved connections."""
    joined = []
    admits = Admission(KEY, lambda _channel, hello: joined.append(hello))
    admits._most = most
    server = await asyncio.start_server(admits.accept, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], joined
    server.close()


async def idle(port, count):
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def end_of(reader):
    """Everything until the connection is closed."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1000):
            pass


async def eventually(condition):
    while not condition():
        await asyncio.sleep(0.01)


@pytest.mark.timeout(60)
async def test_an_agent_is_admitted_beside_idle_strangers_of_which_the_oldest_are_closed():
    async with admitting(most=5) as (port, joined):
        strangers = await idle(port, 12)
        channel = await connect(Rendezvous(("127.0.0.1",), port, KEY), 5.0)
        channel.send(HELLO)
        await eventually(lambda: joined == [HELLO])
        for reader, _ in strangers[:7]:
            await end_of(reader)
        for reader, writer in strangers[-4:]:
            assert len(await reader.read(1000)) == 32  # the challenge
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.05)
            writer.close()
        channel.close()


async def test_a_handshake_has_one_deadline_however_slowly_its_bytes_come(monkeypatch):
    monkeypatch.setattr(nodes, "HANDSHAKE_TIMEOUT_S", 0.5)
    async with admitting(most=5) as (port, _):
        ((reader, writer),) = await idle(port, 1)
        closed = asyncio.ensure_future(end_of(reader))
        sent = 0
        while not closed.done() and sent < 64:
            writer.write(b"x")
            sent += 1
            await asyncio.sleep(0.2)
        assert closed.done()


@pytest.mark.timeout(60)
async def test_any_number_of_strangers_is_one_line_in_the_log(capsys):
    async with admitting(most=5) as (port, _):
        for _ in range(3):
            for reader, writer in await idle(port, 20):
                writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
                await end_of(reader)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.timeout(60)
async def test_without_a_free_descriptor_the_leader_goes_on_and_admits_later(capsys):
    async with admitting(most=1000) as (port, joined):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        ends = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
        await asyncio.sleep(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(end.fileno() for end in ends) + 40, before[1]))
        try:
            await asyncio.sleep(2.5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for end in ends:
            end.close()
        channel = await connect(Rendezvous(("127.0.0.1",), port, KEY), 5.0)
        channel.send(HELLO)
        await eventually(lambda: joined == [HELLO])
    assert capsys.readouterr().err.count("\n") == 1


def test_the_limit_of_open_files_is_raised():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        raised = raise_file_limit()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
