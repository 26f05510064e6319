"""The end of an attempt on one node: SIGTERM, a bounded wait, SIGKILL to every descendant, a look that none is left.

Never by name: only processes that descend from this agent, or that carry this pilot's and node's marks: these are this
attempt's and no one else's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweep.pilot.processes import (
    NODE_MARK,
    PILOT_MARK,
    descendants,
    describe,
    escaped,
    in_uninterruptible_sleep,
    of_tokens,
    send,
)
from sweep.pilot.ranks import Rank

if TYPE_CHECKING:
    import psutil

KILL_WAIT_S = 8.0
POLL_S = 0.02


async def clear(ranks: Sequence[Rank], spare: Sequence[int], grace_s: float, reap: Callable[[], None]) -> list[str]:
    """End every process of the attempt but the spared ones (zygotes). What could not be ended is told, in words."""
    for rank in ranks:
        rank.terminate()
    await _until(lambda: not any(rank.alive for rank in ranks), grace_s)
    marks = os.environ.get(PILOT_MARK, ""), os.environ.get(NODE_MARK, "")
    left = await _kill(lambda: descendants(spare), reap)
    if not left and all(marks):
        spared = {os.getpid(), *spare}
        left = await _kill(lambda: escaped(*marks, known=spared), reap)
    return [describe(p) + (": in uninterruptible sleep" if in_uninterruptible_sleep(p) else "") for p in left]


async def clear_dead(tokens: Sequence[str]) -> list[str]:
    """End what pilots that are known to be gone left on this node. What could not be ended, in words."""
    return [describe(p) for p in await _kill(lambda: of_tokens(tokens), lambda: None)]


async def end_escaped(token: str, node: str) -> list[str]:
    """End what ranks of this pilot and node left when their agent died. What could not be ended, in words."""
    return [describe(p) for p in await _kill(lambda: escaped(token, node, known=()), lambda: None)]


async def _kill(find: Callable[[], list[psutil.Process]], reap: Callable[[], None]) -> list[psutil.Process]:
    """SIGKILL to what `find` finds, until it finds nothing or the time is up; what is left."""
    deadline = time.monotonic() + KILL_WAIT_S
    while True:
        reap()
        left = find()
        if not left or time.monotonic() > deadline:
            return left
        send(left, signal.SIGKILL)
        await asyncio.sleep(POLL_S)


async def _until(done: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not done() and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
