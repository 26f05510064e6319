"""The leader's hold on the sweep directory: in a thread of its own, and patient.

A shared file system may hang for minutes or refuse for a while. The event loop must go on meanwhile: an agent that
does not hear its leader ends the job. One thread keeps what is written and read in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sweep.errors import log_error
from sweep.state.events import Event
from sweep.store.directory import Claim, SweepDir, try_claim
from sweep.store.journal import Journal, JournalReader

RETRY_S = 2.0

T = TypeVar("T")


class Files:
    """One writer's journal, and what it reads and claims of the sweep."""

    def __init__(self, sweep: SweepDir, writer: str) -> None:
        self._sweep = sweep
        self._journal = Journal(sweep.journal(writer))
        self._reader = JournalReader(sweep)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")

    async def do(self, act: Callable[[], T]) -> T:
        """Do it in the thread, after all that was asked before. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    async def look(self) -> Sequence[Event]:
        """What was appended to the journals since the last look. Raises OSError."""
        return await self.do(self._reader.new_events)

    async def new_events(self) -> Sequence[Event]:
        """The same, however long the file system refuses."""
        return await self._patiently("read", self._reader.new_events)

    async def append(self, event: Event) -> None:
        """Write a line to the journal, however long the file system refuses: nothing may be lost."""
        await self._patiently("written", lambda: self._journal.append(event))

    async def claim(self, run_id: str, attempt: int, claim: Claim) -> bool:
        """Take the right to run an attempt, however long the file system refuses. False where another has it."""
        return await self._patiently("claimed in", lambda: try_claim(self._sweep, run_id, attempt, claim))

    def close(self) -> None:
        """Nothing more is written."""
        self._thread.shutdown()
        self._journal.close()

    async def _patiently(self, what: str, act: Callable[[], T]) -> T:
        while True:
            try:
                return await self.do(act)
            except OSError as error:
                log_error(f"the sweep directory cannot be {what}, trying again: {error}")
                await asyncio.sleep(RETRY_S)
