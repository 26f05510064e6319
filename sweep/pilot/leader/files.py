"""The leader's access to the sweep directory: in its own thread, with retries.

A shared file system may hang for minutes or fail for a while. The event loop must go on meanwhile: an agent that
gets no heartbeat of its leader ends the job. One thread keeps writes and reads in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from sweep.errors import log_error
from sweep.state.events import Event
from sweep.store.directory import Claim, SweepDir, try_claim
from sweep.store.journal import Journal, JournalReader
from sweep.store.place import Removal

RETRY_S = 2.0
"""pause before what the file system refused is tried again, as in the launcher"""

T = TypeVar("T")


class Files:
    """One writer's journal, its reads of the sweep and its claims. A directory that was removed ends the retries."""

    def __init__(self, directory: SweepDir, writer: str) -> None:
        self._directory = directory
        self._journal = Journal(directory.journal(writer))
        self._reader = JournalReader(directory)
        self._claims: list[tuple[str, int, Claim]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")

    async def do(self, act: Callable[[], T]) -> T:
        """Run `act` in the thread, after all earlier calls. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    async def poll(self) -> Sequence[Event]:
        """Events appended to the journals since the last poll. Raises OSError."""
        return await self.do(self._reader.new_events)

    async def new_events(self) -> Sequence[Event]:
        """The same, retrying while the file system fails."""
        return await self._retrying(self._reader.new_events)

    async def append(self, event: Event) -> None:
        """Write a line to the journal, retrying while the file system fails: nothing may be lost."""
        await self._retrying(partial(self._append, event))

    def _append(self, event: Event) -> None:
        self._journal.check()
        with contextlib.suppress(OSError):
            self._keep_claims()
        self._journal.append(event)

    async def claim(self, run_id: str, attempt: int, claim: Claim) -> bool:
        """Claim an attempt, retrying while the file system fails. False if another has it."""
        return await self._retrying(partial(self._claim, run_id, attempt, claim))

    def _claim(self, run_id: str, attempt: int, claim: Claim) -> bool:
        self._journal.check()  # before a file is made: the directory may be another sweep's
        self._keep_claims()
        if got := try_claim(self._directory, run_id, attempt, claim):
            self._claims.append((run_id, attempt, claim))
        return got

    def _keep_claims(self) -> None:
        """Write the own claims again where somebody removed them."""
        if self._claims and not (last := self._directory.claim(*self._claims[-1][:2])).exists():
            self._directory.restore_folders()
            for run_id, attempt, claim in self._claims:
                try_claim(self._directory, run_id, attempt, claim)
            log_error(f"{last} was removed: all claims of this pilot are written again")

    def close(self) -> None:
        """Close the journal."""
        self._thread.shutdown()
        self._journal.close()

    async def _retrying(self, act: Callable[[], T]) -> T:
        """What `act` returns, once the file system allows it. Raises SweepError where the directory was removed."""
        removal = Removal(self._directory.path, "pilot")
        while True:
            try:
                done = await self.do(act)
            except OSError as error:
                await self.do(partial(removal.check, error))
                await asyncio.sleep(RETRY_S)
            else:
                removal.accessed()
                return done
