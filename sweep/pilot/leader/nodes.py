"""The leader's nodes: starts one agent on each, accepts their connections, sends them heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from sweep.errors import log_error
from sweep.pilot.channel import (
    ChannelError,
    LeaderChannel,
    Rendezvous,
    authenticate,
    host_addresses,
    leader_channel,
    new_key,
)
from sweep.pilot.job import all_cpus
from sweep.pilot.messages import AgentMessage, Cleared, Hello, LeaderMessage, Leave, OfAttempt, Ping
from sweep.pilot.order import PilotOrder

READY_TIMEOUT_S = 180.0
STRAGGLER_S = 30.0
"""once half of the agents have connected, how long the rest may take before the pilot goes on without them"""
PING_S = 5.0
LEAVE_S = 20.0
UNANSWERED_MS = 30_000


@contextlib.asynccontextmanager
async def agents(order: PilotOrder, directory: Path) -> AsyncIterator[list[Link]]:
    """Start the agents; yield a link to each that connected, in node order; on exit end them and wait."""
    arrived: dict[int, Link] = {}
    tasks: set[asyncio.Task[None]] = set()
    key = new_key()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await authenticate(reader, writer, key, b"leader", b"agent")
            _detect_power_loss(writer)
            channel = leader_channel(reader, writer)
            hello = await channel.receive()
        except ChannelError as error:
            log_error(f"connection refused: {error}")
            writer.close()
            return
        if isinstance(hello, Hello):
            link = arrived[hello.index] = Link(hello.node, channel, stale_tokens=hello.stale_tokens)
            tasks.add(asyncio.ensure_future(link.read()))

    server = await asyncio.start_server(accept, "0.0.0.0", 0)  # noqa: S104 (its nodes connect; each proves the key)
    rendezvous = directory / "rendezvous"
    Rendezvous(host_addresses(), server.sockets[0].getsockname()[1], key).write(rendezvous)
    processes = _start(order, directory)
    pings = asyncio.ensure_future(_ping(arrived))
    try:
        await _wait_for(arrived, order.nodes, processes)
        server.close()
        yield [arrived[index] for index in sorted(arrived)]
    finally:
        for link in arrived.values():
            link.send(Leave())
        await _wait_for_end(processes)
        pings.cancel()
        for task in tasks:
            task.cancel()
        server.close()
        with contextlib.suppress(OSError):  # read-only for a while: without its leader the key is useless
            rendezvous.unlink(missing_ok=True)


def _detect_power_loss(writer: asyncio.StreamWriter) -> None:
    """A node that loses power sends nothing: unacknowledged data ends the connection."""
    line: socket.socket | None = writer.get_extra_info("socket")
    if line is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)


def _start(order: PilotOrder, directory: Path) -> list[subprocess.Popen[bytes]]:
    output = os.open(directory / "agents.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    agent = [*order.container_prefix, sys.executable, "-m", "sweep.pilot.agent", str(directory)]
    agent += ["--scratch", order.scratch]
    if order.executor == "slurm":
        commands = [[*_srun(order), *agent]]
    else:
        commands = [[*agent, "--node", f"local-{index}", "--index", str(index)] for index in range(order.nodes)]
    try:
        return [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output) for command in commands
        ]
    finally:
        os.close(output)


def _srun(order: PilotOrder) -> list[str]:
    """One step with all of each node, that survives the failure of another node (seen on Slurm 22.05)."""
    command = ["srun", f"--nodes={order.nodes}", f"--ntasks={order.nodes}", "--ntasks-per-node=1"]
    command += ["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none", "--mem=0", "--unbuffered"]
    return [*command, *all_cpus(os.environ), *order.srun]


async def _wait_for(arrived: dict[int, Link], wanted: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until all agents have connected, or give up on the missing ones."""
    waited = since_half = 0.0
    while len(arrived) < wanted and waited < READY_TIMEOUT_S and since_half < STRAGGLER_S:
        if all(process.poll() is not None for process in processes):
            return
        await asyncio.sleep(0.02)
        waited += 0.02
        since_half += 0.02 * (2 * len(arrived) >= wanted)


async def _ping(arrived: dict[int, Link]) -> None:
    while True:
        for link in arrived.values():
            link.send(Ping())
        await asyncio.sleep(PING_S)


async def _wait_for_end(processes: list[subprocess.Popen[bytes]]) -> None:
    for _ in range(int(LEAVE_S / 0.02)):
        if all(process.poll() is not None for process in processes):
            return
        await asyncio.sleep(0.02)
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


@dataclass(frozen=True)
class NodeLost:
    """Local event: the agent is lost, or its messages cannot be decoded."""


@dataclass(frozen=True)
class StopAsked:
    """Local event: the attempt was asked to stop."""


Inbox = asyncio.Queue[tuple[str, OfAttempt | NodeLost | StopAsked]]
"""of an attempt: a message or event, and its node"""


@dataclass(eq=False)
class Link:
    """The connection to one node's agent. `inbox` is the current attempt's."""

    node: str
    channel: LeaderChannel
    alive: bool = True
    inbox: Inbox | None = None
    stale_tokens: tuple[str, ...] = ()
    """of this sweep's other pilots that have processes or files on the node"""
    cleared: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    clean: bool = True
    """False where processes of an attempt could not be ended: no further attempt goes there"""

    def send(self, message: LeaderMessage) -> None:
        """Send to the agent; without effect on a dead one."""
        if self.alive:
            self.channel.send(message)

    async def read(self) -> None:
        """Forward the agent's messages until it is lost or a message cannot be decoded."""
        try:
            while (message := await self.channel.receive()) is not None:
                self._take(message)
        except Exception as error:
            log_error(f"cannot decode a message of the agent on {self.node}: {error!r}")
        finally:
            self.alive = False
            self.cleared.set()
            self.gone.set()
            if self.inbox is not None:
                self.inbox.put_nowait((self.node, NodeLost()))

    def _take(self, message: AgentMessage) -> None:
        if isinstance(message, Cleared):
            self.cleared.set()
        elif not isinstance(message, Hello) and self.inbox is not None:
            self.inbox.put_nowait((self.node, message))
