"""The connection between a leader and its agents: TCP. Each side proves that it has the pilot's key before anything is
read; then come frames: four bytes of length, an HMAC and a message (`sweep.pilot.messages`).

The HMAC is over a frame's number and its message, by a key of this connection and direction: a frame that somebody
on the network changed, repeated, left out or put in is refused. Messages are not secret: they are not encrypted.

The key is in a file of mode 0600 in the pilot's directory. It is never in an argument, a script or the environment.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from sweep.pilot.messages import (
    MAX_MESSAGE_BYTES,
    AgentMessage,
    ChannelError,
    LeaderMessage,
    Message,
    decode_of_leader,
    encode,
)
from sweep.store.directory import write_derived

CHALLENGE_BYTES = 32
HANDSHAKE_TIMEOUT_S = 10.0
"""for all of a handshake and the first message: as long as Slurm's default MessageTimeout"""
_HEAD = struct.Struct("!I32s")
"""of a frame: the message's length and its HMAC-SHA-256"""

Outgoing = TypeVar("Outgoing", bound=Message)
Incoming = TypeVar("Incoming", bound=Message)


class NoLeaderError(ChannelError):
    """No address of the leader answers. `refused`: those whose host answered that no process listens."""

    def __init__(self, text: str, refused: frozenset[str]) -> None:
        super().__init__(text)
        self.refused = refused


@dataclass(frozen=True)
class Rendezvous:
    """Where a pilot's leader listens, and the key that authenticates peers."""

    addresses: tuple[str, ...]
    port: int
    key: bytes
    node: str = ""
    """the leader's node, by the scheduler's name; empty without a scheduler"""

    def write(self, path: Path) -> None:
        """Write it for the agents, readable by this user only."""
        write_derived(path, msgspec.json.encode(self), private=True)

    @classmethod
    def read(cls, path: Path) -> Rendezvous:
        """Read what the leader wrote. Raises OSError and ValueError."""
        return msgspec.json.decode(path.read_bytes(), type=cls)


@dataclass
class Seal:
    """One direction of a connection: numbers its frames and authenticates them."""

    key: bytes
    number: int = 0

    def of(self, body: bytes) -> bytes:
        """The HMAC of the next frame."""
        self.number += 1
        return hmac.new(self.key, struct.pack("!Q", self.number) + body, hashlib.sha256).digest()


class Channel(Generic[Outgoing, Incoming]):
    """One authenticated connection. Made by `connect`, and by a leader that admits an agent."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decode: Callable[[bytes], Incoming],
        outgoing: Seal,
        incoming: Seal,
    ) -> None:
        """``outgoing``: how this side seals what it sends; ``incoming``: how it checks what it receives."""
        self._reader = reader
        self._writer = writer
        self._decode = decode
        self._outgoing, self._incoming = outgoing, incoming

    @property
    def local_address(self) -> str:
        """The address by which the peer reaches this host."""
        return str(self._writer.get_extra_info("sockname")[0])

    @property
    def peer_address(self) -> str:
        """The address by which this host reaches the peer."""
        return str(self._writer.get_extra_info("peername")[0])

    def send(self, message: Outgoing) -> None:
        """Queue a message; the loop writes it. Raises ChannelError where it cannot be sent."""
        body = encode(message)
        self._writer.write(struct.pack("!I", len(body)) + self._outgoing.of(body) + body)

    async def receive(self) -> Incoming | None:
        """The next message, or None at the end of the connection. Raises ChannelError for anything else."""
        try:
            length, seal = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            if length > MAX_MESSAGE_BYTES:
                raise ChannelError(f"a frame of {length} bytes is above the limit of {MAX_MESSAGE_BYTES}")
            body = await self._reader.readexactly(length)
            if not hmac.compare_digest(seal, self._incoming.of(body)):
                raise ChannelError("a frame was changed, repeated or left out on its way")
            return self._decode(body)
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            return None

    def close(self) -> None:
        """Close the connection; what was queued is still sent."""
        self._writer.close()


AgentChannel = Channel[AgentMessage, LeaderMessage]
"""an agent's end"""
LeaderChannel = Channel[LeaderMessage, AgentMessage]
"""a leader's end of a connection that passed `authenticate`"""


async def connect(rendezvous: Rendezvous, timeout_s: float) -> AgentChannel:
    """Connect an agent to the first of the leader's addresses that answers and proves the key. Raises NoLeaderError."""
    failures, refused = [], set()
    for address in rendezvous.addresses:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(address, rendezvous.port), timeout_s)
            proving = authenticate(reader, writer, rendezvous.key, b"agent", b"leader")
            seals = await asyncio.wait_for(proving, HANDSHAKE_TIMEOUT_S)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ChannelError) as error:
            failures.append(f"{address}: {error or type(error).__name__}")
            if isinstance(error, ConnectionRefusedError):
                refused.add(address)
            continue
        return Channel(reader, writer, decode_of_leader, *seals)
    raise NoLeaderError("no address of the leader answers: " + "; ".join(failures), frozenset(refused))


async def authenticate(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, me: bytes, peer: bytes
) -> tuple[Seal, Seal]:
    """Both sides prove the key by HMAC-SHA-256 over both challenges and the prover's role (so no proof can be echoed).

    Returns the seals of this connection's outgoing and incoming frames: another connection has other challenges, so
    other keys. Raises ChannelError, and closes the connection, where the peer does not prove it.
    """
    mine = os.urandom(CHALLENGE_BYTES)
    writer.write(mine)
    try:
        theirs = await reader.readexactly(CHALLENGE_BYTES)
        writer.write(_proof(key, me, mine, theirs))
        proof = await reader.readexactly(32)
    except (asyncio.IncompleteReadError, OSError) as error:
        writer.close()
        raise ChannelError("the peer disconnected before it proved the key") from error
    if not hmac.compare_digest(proof, _proof(key, peer, theirs, mine)):
        writer.close()
        raise ChannelError("the peer does not have this pilot's key")
    outgoing, incoming = _proof(key, b"frames of " + me, mine, theirs), _proof(key, b"frames of " + peer, theirs, mine)
    return Seal(outgoing), Seal(incoming)


def _proof(key: bytes, role: bytes, provers: bytes, verifiers: bytes) -> bytes:
    return hmac.new(key, role + provers + verifiers, hashlib.sha256).digest()
