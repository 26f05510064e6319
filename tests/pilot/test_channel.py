"""An agent and a leader authenticate each other before anything else is read."""

import asyncio
import secrets
import struct

import pytest

from sweep.pilot.channel import Channel, Rendezvous, authenticate, connect
from sweep.pilot.messages import MAX_MESSAGE_BYTES, ChannelError, Cleared, Hello, Ping, decode_of_agent, encode

KEY = secrets.token_bytes(32)
HELLO = Hello(node="n1", index=0, stale_tokens=())


async def authenticated():
    """The port of a leader that authenticates one peer; its seals, or its error."""
    outcome = asyncio.get_running_loop().create_future()

    async def handler(reader, writer):
        try:
            outcome.set_result(await authenticate(reader, writer, KEY, b"leader", b"agent"))
        except ChannelError as error:
            outcome.set_result(error)

    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1], outcome


async def test_a_wrong_key_is_refused_by_both_sides():
    server, port, outcome = await authenticated()
    with pytest.raises(ChannelError):
        await connect(Rendezvous(("127.0.0.1",), port, secrets.token_bytes(32)), 2.0)
    assert isinstance(await outcome, ChannelError)
    server.close()


STRANGERS = {"HTTP": b"GET / HTTP/1.1\r\n\r\n" * 8, "nothing": b"", "zeros": b"\x00" * 64, "echo": None}


@pytest.mark.parametrize("words", STRANGERS.values(), ids=STRANGERS)
async def test_a_stranger_gets_nothing_read(words):
    """Nor one that sends the leader's own challenge and proof back."""
    server, port, outcome = await authenticated()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2 if words is None else 1):
        writer.write(await reader.readexactly(32) if words is None else words)
    if words is not None:
        writer.close()
    assert isinstance(await asyncio.wait_for(outcome, 5), ChannelError)
    writer.close()
    server.close()


def test_the_key_file_is_private(tmp_path):
    Rendezvous(("127.0.0.1",), 1, KEY).write(tmp_path / "rendezvous")
    assert (tmp_path / "rendezvous").stat().st_mode & 0o077 == 0
    assert Rendezvous.read(tmp_path / "rendezvous").key == KEY


async def handshake():
    """How an agent's and a leader's end of one connection seal and check frames."""
    server, port, outcome = await authenticated()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    agents = await authenticate(reader, writer, KEY, b"agent", b"leader")
    leaders = await outcome
    writer.close()
    server.close()
    return agents, leaders


def frame(seals, body):
    outgoing, _ = seals
    return struct.pack("!I", len(body)) + outgoing.of(body) + body


def frames(*bodies, change=lambda sealed: sealed):
    """What a leader receives when an agent sends frames of these bodies, changed on their way."""

    async def scenario():
        agents, leaders = await handshake()
        sealed = [frame(agents, body) for body in bodies]
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(change(sealed)))
        reader.feed_eof()
        channel = Channel(reader, None, decode_of_agent, *leaders)
        return [await channel.receive() for _ in range(len(bodies) + 1)]

    return asyncio.run(scenario())


FIRST, SECOND = encode(HELLO), encode(Cleared())
TAMPERED = {
    "repeated": lambda sealed: [sealed[0], sealed[0]],
    "left out": lambda sealed: sealed[1:],
    "exchanged": lambda sealed: sealed[::-1],
    "put in": lambda sealed: [struct.pack("!I", len(SECOND)) + b"x" * 32 + SECOND, *sealed],
    "changed": lambda sealed: [sealed[0][:-1] + b"y", sealed[1]],
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_frame_that_was_tampered_with_is_refused(how):
    with pytest.raises(ChannelError, match="changed, repeated or left out"):
        frames(FIRST, SECOND, change=TAMPERED[how])


async def test_frames_of_another_connection_with_the_same_key_are_refused():
    (agents, _), (_, leaders) = await handshake(), await handshake()
    reader = asyncio.StreamReader()
    reader.feed_data(frame(agents, encode(HELLO)))
    with pytest.raises(ChannelError):
        await Channel(reader, None, decode_of_agent, *leaders).receive()


@pytest.mark.parametrize("cut", [1, 4, 10])
def test_a_torn_message_is_the_end_of_the_connection(cut):
    assert frames(encode(HELLO), change=lambda sealed: [sealed[0][:-cut]])[0] is None


@pytest.mark.parametrize("body", [b"", b"{}", b"\xc1", b"GET / HTTP/1.1", encode(Ping())], ids=range(5))
def test_what_is_no_message_of_an_agent_is_refused_where_it_arrives(body):
    with pytest.raises(ChannelError):
        frames(body)


def test_a_frame_above_the_limit_is_refused_before_it_is_read():
    with pytest.raises(ChannelError, match="above the limit"):
        frames(b"", change=lambda sealed: [struct.pack("!I", MAX_MESSAGE_BYTES + 1) + sealed[0][4:]])
