"""What was tracked already, and which process tracks now: journals in the sweep directory, one per session.

A session marks a run after writing it. A later session reads all marks and writes only runs without one; if a
session was killed between the two, the run is written again under the same key.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from sweep.errors import Mistake, SweepError
from sweep.state.events import Event, Tracked, TrackingAlive, TrackingBegan, TrackingEnded
from sweep.store.directory import SweepDir
from sweep.store.journal import Journal, read_events
from sweep.store.lease import alive, this_process

PREFIX = "track-"
ALIVE_S = 20.0


class TrackingSession:
    """The one session that tracks a sweep now. Raises SweepError on construction if another one is running."""

    def __init__(self, directory: SweepDir) -> None:
        self._directory = directory
        self._name, self._journal = _new_journal(directory)
        me = this_process()
        try:
            self._write(
                TrackingBegan(
                    time=me.time, host=me.host, pid=me.pid, boot_id=me.boot_id, process_started=me.process_started
                )
            )
        except OSError:
            self._journal.remove_empty()
            raise
        others = (alive(began, directory.journal(name)) for name, began in _sessions(directory) if name < self._name)
        holder = next(filter(None, others), None)
        if holder is not None:
            self.close()
            fact = f"another process tracks this sweep: {holder}"
            raise SweepError(Mistake(fact, file=str(directory.path), remedy="it will write new runs; or end it first"))

    def mark(self, destination: str, run_id: str, attempt: int, outcome: str) -> None:
        """Mark the run as written."""
        now = time.time()
        self._write(Tracked(time=now, destination=destination, run_id=run_id, attempt=attempt, outcome=outcome))

    def alive(self) -> None:
        """Write a heartbeat, for sessions on other hosts."""
        if time.time() - self._written_at > ALIVE_S:
            self._write(TrackingAlive(time=time.time()))

    def close(self) -> None:
        """End the session."""
        self._write(TrackingEnded(time=time.time()))
        self._journal.close()

    def _write(self, event: Event) -> None:
        self._written_at = event.time
        self._journal.append(event)


def marks(events: Iterable[Event], destination: str) -> dict[tuple[str, int], str]:
    """(run_id, attempt) -> the outcome that was written to the destination."""
    return {
        (event.run_id, event.attempt): event.outcome
        for event in events
        if isinstance(event, Tracked) and event.destination == destination
    }


def _new_journal(directory: SweepDir) -> tuple[str, Journal]:
    """The next number is claimed by creating its file: of two sessions, the lower number was first."""
    while True:
        taken = (path.stem.removeprefix(PREFIX) for path in directory.journals() if path.stem.startswith(PREFIX))
        name = f"{PREFIX}{1 + max(map(int, filter(str.isdecimal, taken)), default=0):06d}"
        with contextlib.suppress(FileExistsError):
            return name, Journal(directory.journal(name))


def _sessions(directory: SweepDir) -> list[tuple[str, TrackingBegan]]:
    """The sessions that did not end, by name, with their first line."""
    found = []
    for path in directory.journals():
        if path.stem.startswith(PREFIX):
            events, _ = read_events(path)
            if events and isinstance(events[0], TrackingBegan) and not isinstance(events[-1], TrackingEnded):
                found.append((path.stem, events[0]))
    return found
