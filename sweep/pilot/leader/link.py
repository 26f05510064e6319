"""The connection to one node's agent: it may be lost, and the same agent may come back on a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sweep.errors import log_error
from sweep.inputs.topology import Spot
from sweep.pilot.channel import LeaderChannel
from sweep.pilot.clock import PausingClock
from sweep.pilot.leader.node_fate import Fate
from sweep.pilot.messages import AgentMessage, Alive, Cleared, Hello, Inspected, LeaderMessage, OfAttempt, Terminated
from sweep.pilot.timeouts import QUIET_S, RETURN_S, SILENCE_S


@dataclass(frozen=True)
class NodeLost:
    """Local event: the connection to the agent is lost."""

    how: str = "it was closed"


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
    spot: Spot | None = None
    """where the node is, by its own Slurm daemon"""
    boot: str = ""
    """of its kernel: equal on nodes that are one machine"""
    stale_tokens: tuple[str, ...] = ()
    """of this sweep's other pilots that have processes or files on the node"""
    clean: bool = True
    """False where processes of an attempt could not be ended: no further attempt goes there"""
    clock: PausingClock = field(default_factory=PausingClock)
    leaders_address: Callable[[], str | None] = lambda: None
    """by which agents on other nodes reach the leader's host"""
    lost_at: list[float] = field(default_factory=list)
    """when the connection was lost, each time"""
    terminated: asyncio.Event = field(default_factory=asyncio.Event)
    """its agent got SIGTERM"""
    cleared: asyncio.Event = field(default_factory=asyncio.Event)
    readings: str | None = None
    """JSON of its Inspected"""
    inspected: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """its agent died: nothing on the node ends what it left"""
    fate: Fate = Fate.UNKNOWN
    """what became of the node, once its agent is gone"""
    resolved: asyncio.Event = field(default_factory=asyncio.Event)
    """since the last loss: its agent is back or cannot be reached, or it is gone and the node's fate is asked for"""

    def __post_init__(self) -> None:
        self._last_message_at = self._responsive_since = self.clock.now()

    @property
    def on_this_host(self) -> bool:
        """Whether the agent runs where the leader does: its end of the connection says nothing about other nodes."""
        return self.channel.peer_address == self.channel.local_address

    def send(self, message: LeaderMessage) -> None:
        """Send to the agent; without effect while there is no connection."""
        if self.alive:
            self.channel.send(message)

    async def read(self) -> None:
        """Forward the agent's messages until this connection is lost."""
        channel, how = self.channel, NodeLost().how
        try:
            while (message := await channel.receive()) is not None:
                now = self.clock.now()
                if now - self._last_message_at > QUIET_S:
                    self._responsive_since = now
                self._last_message_at = now
                self._take(message)
        except Exception as error:
            how = f"a message cannot be decoded: {error!r}"
        if self.alive and self.channel is channel:
            self._lose(how)
            asyncio.get_running_loop().call_later(RETURN_S, self._bury, channel)

    @property
    def quiet(self) -> bool:
        """Connected, but heartbeats are missing: what happens on the node is unknown for now."""
        return self.alive and self.clock.now() - self._last_message_at > QUIET_S

    @property
    def known_since(self) -> float:
        """Since when it is known without a gap what happens on the node: neither its agent nor this process was away.
        An agent's first message after it was stopped may come before those of its ranks, which were stopped too.
        """
        return max(self._responsive_since, self.clock.runs_since)

    def check(self) -> None:
        """Give up a connection without a message for too long. Its agent may live, and come back."""
        if self.alive and self.clock.now() - self._last_message_at > SILENCE_S:
            self._lose(f"no message for {SILENCE_S:.0f} s")
            self.resolved.set()

    def take_back(self, channel: LeaderChannel, hello: Hello) -> None:
        """Its agent, which has ended its attempt, is back on a new connection: read that."""
        if self.alive:
            self._lose("its agent connected again")
        self.channel, self.alive, self._last_message_at = channel, True, self.clock.now()
        self.clean = self.clean and not hello.not_ended
        self.resolved.set()

    def _lose(self, how: str) -> None:
        log_error(f"the connection to the agent on {self.node} is lost: {how}")
        self.alive = False
        self.lost_at.append(self.clock.now())
        self.resolved.clear()
        self.channel.close()
        self.cleared.set()
        self.inspected.set()
        if self.inbox is not None:
            self.inbox.put_nowait((self.node, NodeLost(how)))

    def _bury(self, channel: LeaderChannel) -> None:
        """The connection was closed a while ago: an agent that lives would be back."""
        if not self.alive and self.channel is channel:
            self.gone.set()

    def _take(self, message: AgentMessage) -> None:
        if isinstance(message, Cleared):
            self.cleared.set()
        elif isinstance(message, Inspected):
            self.readings = message.readings
            self.inspected.set()
        elif isinstance(message, Terminated):
            self.terminated.set()
        elif not isinstance(message, Hello | Alive) and self.inbox is not None:
            self.inbox.put_nowait((self.node, message))


def one_machine(links: Sequence[Link]) -> bool:
    """Whether these are several nodes on one machine: what one of them does slows down the others."""
    if len(links) < 2:
        return False
    return all(link.on_this_host for link in links) or (bool(links[0].boot) and len({link.boot for link in links}) == 1)
