"""The process a pilot has on each of its nodes: starts ranks, forwards what they report, cleans up after them.

Free of torch, and one event loop: only what asks the driver of a GPU, which may hang, is in threads.
It runs one attempt at a time, so all its descendants but the fork servers are that attempt's. When it loses its
leader, it ends its attempt and looks for the leader again: `sweep.pilot.agent.reconnect`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

from bench_workloads.checks.reading import read_all
from sweep.errors import log_error
from sweep.inputs.topology import spot_at
from sweep.pilot.agent.attempt import Node, NodeAttempt, compile_workers
from sweep.pilot.agent.cleanup import clear, kill, make_temporary, remove_scratch, remove_stale_scratch
from sweep.pilot.agent.fork_servers import ForkServerError, ForkServerPool
from sweep.pilot.agent.processes import ACTIVITY_CHECK_S, PILOT_MARK, carrying, tokens_of_sweep
from sweep.pilot.channel import AgentChannel
from sweep.pilot.clock import PausingClock
from sweep.pilot.messages import (
    Alive,
    ChannelError,
    Cleared,
    ClearStale,
    Hello,
    Inspect,
    Inspected,
    LeaderMessage,
    Leave,
    Ping,
    Prepare,
    Start,
    Stop,
    Terminated,
)
from sweep.pilot.timeouts import HEARTBEAT_S, SILENCE_S
from sweep.store.directory import kernel_boot

Inbox = asyncio.Queue[LeaderMessage]


class Agent:
    """Serves a leader on one node. All methods run on one event loop; the leader's messages are handled in order."""

    def __init__(self, node: str, index: int, scratch: Path, clock: PausingClock | None = None) -> None:
        self._clock = clock or PausingClock()
        temporary, self._temporary_lock = make_temporary(scratch)
        self._node = Node(node, index, scratch, temporary, self._clock)
        self._fork_servers = ForkServerPool(node)
        self.reap = self._fork_servers.reap
        self._attempt: NodeAttempt | None = None
        self._channel: AgentChannel | None = None
        self._last_message_at = 0.0
        self._left = False
        self._not_ended: tuple[str, ...] = ()
        self._inspecting: asyncio.Task[None] | None = None
        self.is_terminated = False
        """SIGTERM came"""

    async def serve(self, channel: AgentChannel) -> bool:
        """Execute the leader's messages until Leave (True) or until the connection is lost (False)."""
        self._channel, self._last_message_at = channel, self._clock.now()
        hello = Hello(
            node=self._node.name,
            index=self._node.index,
            spot=spot_at(*(os.environ.get(f"SLURM_TOPOLOGY_ADDR{end}", "") for end in ("", "_PATTERN"))),
            boot=kernel_boot(),
            stale_tokens=tuple(sorted(stale_tokens(self._node.scratch))),
            not_ended=self._not_ended,
        )
        channel.send(hello)
        inbox: Inbox = asyncio.Queue()
        tasks = [
            asyncio.ensure_future(task)
            for task in (self._work(channel, inbox), self._listen_to(channel, inbox), self._watch_leader())
        ]
        watches = (self._watch_activity(), self._watch_output(), self._send_heartbeats(channel))
        helpers = [asyncio.ensure_future(task) for task in watches]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._channel = None
            for task in (*tasks, *helpers):
                task.cancel()
            await asyncio.gather(*tasks, *helpers, return_exceptions=True)
        return self._left

    async def abandon(self) -> None:
        """The leader is lost: end the attempt. The fork servers stay, for the attempts after a new connection."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._not_ended = tuple(await attempt.abandon())

    async def end(self, grace_s: float) -> None:
        """End all ranks and fork servers and remove the pilot's files."""
        ranks = self._attempt.ranks if self._attempt is not None else []
        await clear(ranks, [], grace_s, self.reap)
        remove_scratch(self._node.scratch)
        os.close(self._temporary_lock)

    def terminated(self) -> bool:
        """SIGTERM came: report it before anything else, so that the leader accuses no node of what now ends.

        False where there is no leader to report it to, or it was reported before.
        """
        if self._channel is None or self.is_terminated:
            return False
        self.is_terminated = True
        self._channel.send(Terminated())
        return True

    async def _work(self, channel: AgentChannel, inbox: Inbox) -> None:
        while not isinstance(message := await inbox.get(), Leave):
            await self._handle(message, channel)

    async def _handle(self, message: LeaderMessage, channel: AgentChannel) -> None:
        match message:
            case Prepare():
                self._attempt = NodeAttempt(message, self._node, self._fork_servers, channel)
                await self._attempt.prepare()
            case Start() if self._attempt is not None:
                await self._attempt.start(message)
            case Stop() if self._attempt is not None:
                await self._attempt.stop(message)
                self._attempt = None
            case ClearStale():
                # after pilots whose jobs have ended, as the scheduler reported to the leader
                for text in await kill(lambda: carrying(message.tokens)):
                    log_error(f"{self._node.name}: stale process of an ended pilot, could not be killed: {text}")
                for token in message.tokens:
                    remove_stale_scratch(self._node.scratch.parent, token)
                channel.send(Cleared())
            case Inspect():
                self._inspecting = asyncio.ensure_future(self._inspect(message, channel))
                with contextlib.suppress(ForkServerError, OSError):  # reported when that run is prepared
                    env = {**compile_workers(message.ranks), **message.env}
                    await self._fork_servers.get(message.preload, env)
            case Ping() | Leave():
                pass
            case _:
                raise AssertionError(f"{type(message).__name__} before Prepare")

    async def _inspect(self, message: Inspect, channel: AgentChannel) -> None:
        """Readers run in threads: a device that does not answer holds up no message of the leader."""
        values = await asyncio.to_thread(read_all, message.readers, message.limit_s)
        channel.send(Inspected(readings=json.dumps(values, default=str)))

    async def _listen_to(self, channel: AgentChannel, inbox: Inbox) -> None:
        """Receive messages at once, so that a long task (an import, a teardown) does not look like a timeout."""
        try:
            while (message := await channel.receive()) is not None:
                self._last_message_at = self._clock.now()
                self._left = self._left or isinstance(message, Leave)
                inbox.put_nowait(message)
        except ChannelError as error:
            log_error(f"{self._node.name}: cannot decode the leader's message: {error}")

    async def _watch_leader(self) -> None:
        while self._clock.now() - self._last_message_at < SILENCE_S:
            await asyncio.sleep(1.0)
        log_error(f"{self._node.name}: no message from the leader for {SILENCE_S:.0f} s")

    async def _watch_activity(self) -> None:
        while True:
            await asyncio.sleep(ACTIVITY_CHECK_S)
            if self._attempt is not None:
                self._attempt.report_busy()

    async def _send_heartbeats(self, channel: AgentChannel) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            channel.send(Alive())

    async def _watch_output(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._attempt is not None:
                await self._attempt.bound_output()


def stale_tokens(scratch: Path) -> set[str]:
    """Tokens of this sweep's other pilots that have processes or files on this node."""
    own = os.environ.get(PILOT_MARK, "")
    prefix = own.rpartition("-")[0] + "-"
    if len(prefix) < 2:
        return set()
    folders = {path.name.partition(".")[0] for path in scratch.parent.glob(f"{prefix}*.*")}
    return {token for token in tokens_of_sweep(prefix) | folders if token != own}
