"""How an agent finds its leader, at its start and again after it lost the connection, and when it gives up."""

from __future__ import annotations

import asyncio
import os
import random
from enum import Enum
from pathlib import Path

from sweep.errors import log_error
from sweep.pilot.channel import AgentChannel, NoLeaderError, Rendezvous, connect
from sweep.pilot.clock import PausingClock
from sweep.pilot.job import has_node
from sweep.pilot.messages import ChannelError
from sweep.pilot.timeouts import RECONNECT_S

CONNECT_S = 5.0
"""for each address of the leader: a lost SYN is sent again after 1 and 3 s (RFC 6298, section 2)"""
AGAIN_S = 1.0
"""pause between two rounds over the addresses: one packet each, so that an interruption costs a second more than it
lasts"""
REFUSED_S = 5.0
"""A host that answers for this long that no process listens there has no leader any more. Under Slurm the agent waits
all the same: Slurm ends the job, unless the leader's job step is gone too: then the agent cancels it"""
ASK_S = 10.0
"""between two questions to the scheduler whether the leader's node is still in the job: a thirtieth of Slurm's default
SlurmdTimeout, after which that changes"""
ASK_PER_NODE_S = 0.5
"""the agents of a job ask the scheduler at most twice a second, all together"""


class GiveUp(Enum):
    """Why an agent no longer looks for its leader."""

    LEAVE = "the leader has ended or cannot be reached: others may still work with it"
    CANCEL = "the leader's node is gone: the job would stay RUNNING indefinitely"


def reason_to_give_up(
    looking_s: float, *, scheduled: bool, refused_s: float = 0.0, leaders_node_in_job: bool | None = None
) -> GiveUp | None:
    """Whether to give up after so many seconds. No answer of the scheduler is never a reason to cancel the job.

    ``scheduled``: a scheduler manages the leader's node. ``refused_s``: for how long the leader's host has answered
    that no process listens. ``leaders_node_in_job``: what the scheduler says; None: no answer.
    """
    if leaders_node_in_job is False:
        return GiveUp.CANCEL
    if looking_s >= RECONNECT_S or (refused_s >= REFUSED_S and not scheduled):
        return GiveUp.LEAVE
    return None


class LeaderSearch:
    """Connects to the leader, as often as needed."""

    def __init__(self, pilot_dir: Path, clock: PausingClock) -> None:
        self._file = pilot_dir / "rendezvous"
        self._clock = clock
        self._rendezvous: Rendezvous | None = None
        self._address: str | None = None
        """by which the leader was reached before"""

    async def connect(self) -> AgentChannel | GiveUp:
        """A new connection, or why there will be none."""
        began = refused_at = self._clock.now()
        ask_at = began + self._ask_s() * random.random()  # noqa: S311 (no secret: not all agents at once)
        in_job: bool | None = None
        reason: Exception | None = None
        while True:
            now, scheduled = self._clock.now(), self._rendezvous is not None and bool(self._rendezvous.node)
            end = reason_to_give_up(
                now - began, refused_s=now - refused_at, scheduled=scheduled, leaders_node_in_job=in_job
            )
            if end is not None:
                log_error(f"{end.value} ({reason if end is GiveUp.LEAVE else 'according to the scheduler'})")
                return end
            try:
                if self._rendezvous is None:  # a shared file system may show the file late
                    self._rendezvous = Rendezvous.read(self._file)
                channel = await connect(self._rendezvous, CONNECT_S)
                self._address = channel.peer_address
                return channel
            except NoLeaderError as error:
                if not self._refuses(error):
                    refused_at = self._clock.now()
                reason = error
            except (OSError, ValueError, ChannelError) as error:
                reason, refused_at = error, self._clock.now()
            if self._clock.now() >= ask_at:
                in_job = await asyncio.to_thread(
                    has_node, self._rendezvous.node if self._rendezvous is not None else ""
                )
                ask_at = self._clock.now() + self._ask_s()
            await asyncio.sleep(AGAIN_S)

    def _refuses(self, error: NoLeaderError) -> bool:
        """Did the leader's host answer? One of its other addresses may be an address of this host too."""
        addresses = self._rendezvous.addresses if self._rendezvous is not None else ()
        return error.refused.issuperset(addresses) if self._address is None else self._address in error.refused

    def _ask_s(self) -> float:
        nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
        return max(ASK_S, ASK_PER_NODE_S * int(nodes) if nodes.isdigit() else 0.0)
