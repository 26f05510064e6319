"""An agent and a leader prove themselves to each other before anything else is read."""

import asyncio

import pytest

from sweep.pilot.channel import Channel, ChannelError, Rendezvous, authenticate, connect, new_key

KEY = new_key()


async def serve(handler):
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def exchange(client_key):
    """(what the leader received or None, what connect raised or None)."""
    received = asyncio.get_running_loop().create_future()

    async def handler(reader, writer):
        try:
            await authenticate(reader, writer, KEY, b"leader", b"agent")
        except ChannelError:
            received.set_result(None)
            return
        received.set_result(await Channel(reader, writer).receive())

    server, port = await serve(handler)
    try:
        channel = await connect(Rendezvous(("127.0.0.1",), port, client_key), 2.0)
        channel.send({"is": "hello", "node": "n1"})
    except ChannelError as error:
        return await received, error
    finally:
        server.close()
    return await received, None


def test_the_right_key_opens_the_channel():
    assert asyncio.run(exchange(KEY)) == ({"is": "hello", "node": "n1"}, None)


def test_a_wrong_key_is_refused_by_both_sides():
    received, error = asyncio.run(exchange(new_key()))
    assert received is None
    assert isinstance(error, ChannelError)


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n" * 8, b"", b"\x00" * 64])
def test_a_stranger_gets_nothing_read(words):
    async def stranger():
        outcome = asyncio.get_running_loop().create_future()

        async def handler(reader, writer):
            try:
                await authenticate(reader, writer, KEY, b"leader", b"agent")
            except ChannelError as error:
                outcome.set_result(error)

        server, port = await serve(handler)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(words)
        writer.close()
        result = await asyncio.wait_for(outcome, 5)
        server.close()
        return result

    assert isinstance(asyncio.run(stranger()), ChannelError)


def test_a_proof_cannot_be_echoed():
    """A stranger that sends the leader's own challenge and proof back is refused."""

    async def echo():
        outcome = asyncio.get_running_loop().create_future()

        async def handler(reader, writer):
            try:
                await authenticate(reader, writer, KEY, b"leader", b"agent")
                outcome.set_result(None)
            except ChannelError as error:
                outcome.set_result(error)

        server, port = await serve(handler)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(await reader.readexactly(32))
        writer.write(await reader.readexactly(32))
        result = await asyncio.wait_for(outcome, 5)
        writer.close()
        server.close()
        return result

    assert isinstance(asyncio.run(echo()), ChannelError)


def test_the_key_file_is_private(tmp_path):
    Rendezvous(("127.0.0.1",), 1, KEY).write(tmp_path / "rendezvous")
    assert (tmp_path / "rendezvous").stat().st_mode & 0o077 == 0
    assert Rendezvous.read(tmp_path / "rendezvous").key == KEY
