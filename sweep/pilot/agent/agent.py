"""The process a pilot has on each of its nodes: starts ranks, forwards what they report, cleans up after them.

Free of torch and single-threaded. It runs one attempt at a time, so all its descendants but the zygotes are that
attempt's. When its leader times out, it ends its ranks and the job: a job whose first node died stays RUNNING
indefinitely under --no-kill (seen on Slurm 22.05).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from sweep.errors import log_error
from sweep.pilot.agent.attempt import Node, NodeAttempt
from sweep.pilot.agent.cleanup import clear, clear_dead, make_temporary, remove_scratch
from sweep.pilot.agent.processes import ACTIVITY_CHECK_S, PILOT_MARK, tokens_of_sweep
from sweep.pilot.agent.zygotes import ZygotePool
from sweep.pilot.channel import AgentChannel, ChannelError
from sweep.pilot.messages import Cleared, ClearStale, Hello, LeaderMessage, Leave, Ping, Prepare, Start, Stop

LEADER_SILENCE_S = 20.0
"""then the ranks are ended and the job cancelled, all within 30 s"""
CONNECT_TIMEOUT_S = 20.0

Inbox = asyncio.Queue[LeaderMessage | None]
"""None: the connection to the leader is lost"""


class Agent:
    """Serves a leader on one node. All methods run on one event loop; the leader's messages are handled in order."""

    def __init__(self, node: str, index: int, scratch: Path) -> None:
        self._node = Node(node, index, scratch, make_temporary(scratch))
        self._zygotes = ZygotePool(node)
        self._attempt: NodeAttempt | None = None
        self._last_message_at = time.monotonic()

    async def serve(self, channel: AgentChannel) -> bool:
        """Execute the leader's messages until Leave (True) or until the leader is lost (False)."""
        node = self._node
        stale = tuple(sorted(stale_tokens(node.scratch)))
        channel.send(Hello(node=node.name, index=node.index, stale_tokens=stale))
        inbox: Inbox = asyncio.Queue()
        helpers = [
            asyncio.ensure_future(self._listen_to(channel, inbox)),
            asyncio.ensure_future(self._watch_leader(inbox)),
            asyncio.ensure_future(self._watch_activity()),
        ]
        try:
            while (message := await inbox.get()) is not None:
                if isinstance(message, Leave):
                    return True
                await self._handle(message, channel)
        finally:
            for helper in helpers:
                helper.cancel()
        return False

    async def end(self, grace_s: float) -> None:
        """End all ranks and zygotes and remove the pilot's files."""
        ranks = self._attempt.ranks if self._attempt is not None else []
        await clear(ranks, [], grace_s, self.reap)
        remove_scratch(self._node.scratch)

    def reap(self) -> None:
        """Reap ended child processes."""
        self._zygotes.reap()

    async def _handle(self, message: LeaderMessage, channel: AgentChannel) -> None:
        match message:
            case Prepare():
                self._attempt = NodeAttempt(message, self._node, self._zygotes, channel)
                await self._attempt.prepare()
            case Start() if self._attempt is not None:
                await self._attempt.start(message)
            case Stop() if self._attempt is not None:
                await self._attempt.stop(message)
                self._attempt = None
            case ClearStale():
                await self._clear_stale(message.tokens)
                channel.send(Cleared())
            case Ping() | Leave():
                pass
            case _:
                raise AssertionError(f"{type(message).__name__} before Prepare")

    async def _clear_stale(self, tokens: Sequence[str]) -> None:
        """Clean up after pilots whose jobs have ended, as the scheduler reported to the leader."""
        for text in await clear_dead(tokens):
            log_error(f"{self._node.name}: stale process of an ended pilot, could not be killed: {text}")
        for token in tokens:
            for path in self._node.scratch.parent.glob(f"{token}.*"):
                if path.is_dir() and path.stat().st_uid == os.getuid():
                    remove_scratch(path)

    async def _listen_to(self, channel: AgentChannel, inbox: Inbox) -> None:
        """Receive messages at once, so that a long task (an import, a teardown) does not look like a timeout."""
        try:
            while (message := await channel.receive()) is not None:
                self._last_message_at = time.monotonic()
                inbox.put_nowait(message)
        except ChannelError as error:
            log_error(f"{self._node.name}: cannot decode the leader's message: {error}")
        inbox.put_nowait(None)

    async def _watch_leader(self, inbox: Inbox) -> None:
        while time.monotonic() - self._last_message_at < LEADER_SILENCE_S:
            await asyncio.sleep(1.0)
        inbox.put_nowait(None)

    async def _watch_activity(self) -> None:
        while True:
            await asyncio.sleep(ACTIVITY_CHECK_S)
            if self._attempt is not None:
                self._attempt.report_busy()


def stale_tokens(scratch: Path) -> set[str]:
    """Tokens of this sweep's other pilots that have processes or files on this node."""
    own = os.environ.get(PILOT_MARK, "")
    prefix = own.rpartition("-")[0] + "-"
    if len(prefix) < 2:
        return set()
    folders = {path.name.partition(".")[0] for path in scratch.parent.glob(f"{prefix}*.*")}
    return {token for token in tokens_of_sweep(prefix) | folders if token != own}
