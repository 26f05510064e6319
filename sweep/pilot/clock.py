"""A clock that stops while its process is stopped: suspended by the scheduler, frozen, or not scheduled for seconds.

A process that did not run cannot know that another was unresponsive. A leader, its agents and their ranks are often
stopped together (`scontrol suspend`, gang scheduling), and continue together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TICK_S = 1.0
"""resolution of a pause: no time-out is shorter than some seconds"""
LATE_S = 5.0
"""a tick that comes this late shows that the process was stopped; a busy event loop is late by less"""


class PausingClock:
    """Monotonic seconds, less those in which this process was stopped. It must be read every TICK_S: see `tick`."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.paused_s = 0.0
        """all pauses so far"""
        self.runs_since = float("-inf")
        """when the last pause ended, on this clock"""
        self._monotonic = monotonic
        self._read_at = monotonic()

    def now(self) -> float:
        """The time. A pause that ended just now is noticed by this very call."""
        real = self._monotonic()
        gap_s = real - self._read_at
        if gap_s > LATE_S:
            self.paused_s += gap_s - TICK_S
            self.runs_since = real - self.paused_s
        self._read_at = real
        return real - self.paused_s

    async def tick(self) -> None:
        """Read it regularly, without end: a task of the process's event loop."""
        while True:
            self.now()
            await asyncio.sleep(TICK_S)
