"""What others left on the pilot's nodes, and what its own agents leave when they die: the leader has it cleared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from sweep.errors import SweepError
from sweep.pilot.agent.orphans import clear_orphans
from sweep.pilot.leader.nodes import Link
from sweep.pilot.leader.stale_pilots import dead_tokens
from sweep.pilot.messages import ClearStale
from sweep.pilot.order import PilotOrder
from sweep.store.directory import SweepDir

CLEAR_STALE_S = 30.0


async def clear_stale_pilots(sweep: SweepDir, order: PilotOrder, links: Sequence[Link]) -> None:
    """End what dead pilots of this sweep left on our nodes. Where the scheduler does not answer, touch nothing."""
    tokens = sorted({token for link in links for token in link.stale_tokens})
    with contextlib.suppress(OSError, UnicodeError, SweepError):
        dead = await asyncio.to_thread(dead_tokens, sweep, order.executor, tokens)
        asked = [link for link in links if set(link.stale_tokens) & set(dead)]
        for link in asked:
            link.send(ClearStale(tokens=tuple(dead)))
        waits = [asyncio.wait_for(link.cleared.wait(), CLEAR_STALE_S) for link in asked]
        await asyncio.gather(*waits, return_exceptions=True)


class OrphanClearing:
    """Clears nodes whose agents died alone: those can clear nothing any more."""

    def __init__(self, order: PilotOrder, links: Sequence[Link]) -> None:
        self._order = order
        self._clearing: list[asyncio.Task[None]] = []
        self._watching = [asyncio.ensure_future(self._clear_after(link)) for link in links]

    def stop(self) -> None:
        """The whole job goes, agents first: whose agent ends from now on is not cleared."""
        for task in self._watching:
            task.cancel()

    async def end(self, *, at_once: bool) -> None:
        """Wait for what is being cleared. `at_once`: there is no time for it."""
        for task in self._clearing if at_once else ():
            task.cancel()
        await asyncio.gather(*self._clearing, return_exceptions=True)
        self.stop()

    async def _clear_after(self, link: Link) -> None:
        await link.gone.wait()
        self._clearing.append(asyncio.ensure_future(clear_orphans(self._order, link.node)))
