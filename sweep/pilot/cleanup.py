"""The end of an attempt on one node: SIGTERM, a bounded wait, SIGKILL to every descendant, a look that none is left.

Never by name: only processes that descend from this agent, which are this attempt's and no one else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sweep.pilot.processes import descendants, describe, in_uninterruptible_sleep, send
from sweep.pilot.ranks import Rank

KILL_WAIT_S = 8.0
POLL_S = 0.02


async def clear(ranks: Sequence[Rank], spare: Sequence[int], grace_s: float, reap: Callable[[], None]) -> list[str]:
    """End every process of the attempt but the spared ones (zygotes). What could not be ended is told, in words."""
    for rank in ranks:
        rank.terminate()
    await _until(lambda: not any(rank.alive for rank in ranks), grace_s)
    deadline = time.monotonic() + KILL_WAIT_S
    while True:
        reap()
        left = descendants(spare)
        if not left or time.monotonic() > deadline:
            break
        send(left, signal.SIGKILL)
        await asyncio.sleep(POLL_S)
    return [describe(p) + (": in uninterruptible sleep" if in_uninterruptible_sleep(p) else "") for p in left]


async def _until(done: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not done() and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)


def remove_scratch(directory: Path) -> None:
    """Remove the attempt's own temporary files."""
    with contextlib.suppress(OSError):
        shutil.rmtree(directory)
