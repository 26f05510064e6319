"""The end of a pilot from outside: SIGTERM of the scheduler, to the leader or to an agent, or the warning before it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable

from sweep.outcomes import Outcome
from sweep.pilot.leader.attempts import Attempts
from sweep.pilot.leader.clearing import OrphanClearing
from sweep.pilot.leader.watchdog import StopReason

LAST_POLL_S = 2.0
"""how long a pilot that got SIGTERM may take to find out who sent it"""
SIGNALLED_S = 3.0
"""how long after its ranks an agent of the same step may report its SIGTERM: Slurm signals all processes of a step at
once, but a busy node delivers and reports it late. A tenth of the time until it kills the rest (KillWait, 30 s)"""


class Ending:
    """Stops the attempts at SIGTERM; no further ones begin. `cancelled`: whether the user did it, by the journals."""

    def __init__(self, attempts: Attempts, orphans: OrphanClearing, cancelled: Callable[[], Awaitable[bool]]) -> None:
        self._attempts = attempts
        self._orphans = orphans
        self._cancelled = cancelled
        self._termination: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._draining: str | None = None

    @property
    def at_once(self) -> bool:
        """The job will be killed soon."""
        return self._termination is not None

    @property
    def reason(self) -> str | None:
        """Why no further attempt may begin; None while it may."""
        return "received SIGTERM" if self.at_once else self._draining

    def listen(self) -> None:
        """Handle the signals of the scheduler. submitit ignores SIGTERM in its jobs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.terminate)
        loop.add_signal_handler(signal.SIGUSR2, self._drain)

    async def follow(self, terminated: asyncio.Event) -> None:
        """End as for an own SIGTERM once an agent got one: preemption and `scancel -s` may signal the steps only."""
        await terminated.wait()
        self.terminate()

    async def settled(self, *, signalled: bool) -> None:
        """Wait, if the pilot ends, until it is known who ends it: that decides the attempts' outcome.

        ``signalled``: a rank died of a signal that the pilot did not send, so that it may be about to end.
        """
        if signalled:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._begun.wait(), SIGNALLED_S)
        if self._termination is not None:
            await self._termination

    def terminate(self) -> None:
        """The scheduler or the user ends the job: no evidence, a record, and exit within KillWait."""
        self._orphans.stop()
        self._begun.set()
        if self._termination is None:
            self._termination = asyncio.ensure_future(self._end_now())

    async def _end_now(self) -> None:
        cancelled = False
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            cancelled = await asyncio.wait_for(self._cancelled(), LAST_POLL_S)
        if cancelled:
            self._attempts.stop(StopReason(Outcome.CANCELLED, "cancelled by the user"))
        else:
            self._attempts.stop(StopReason(Outcome.PREEMPTED, "the pilot's job received SIGTERM"))

    def _drain(self) -> None:
        """The warning before the end of the wall time: running attempts may end, no new ones begin."""
        self._draining = "drained at the warning signal"
