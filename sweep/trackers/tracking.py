"""Writes new runs in a sweep's journals to a tracker. Cost is proportional to the new entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sweep.outcomes import Outcome
from sweep.records.record import decode_in_full
from sweep.records.schema import Record
from sweep.state.events import Recorded
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader
from sweep.trackers.marks import TrackingSession, marks
from sweep.trackers.shape import tracked
from sweep.trackers.tracker import Tracker


class Tracking:
    """One sweep and one tracker. `poll` reads new entries; `write_waiting` writes what it found."""

    def __init__(self, directory: SweepDir, sweep_id: str, tracker: Tracker, session: TrackingSession) -> None:
        self._sweep_id = sweep_id
        self._tracker = tracker
        self._session = session
        self._reader = JournalReader(directory, decode=decode_in_full)
        self._written: dict[tuple[str, int], str] = {}
        self._waiting: dict[tuple[str, int], Record] = {}
        self.known = 0
        """attempts that have a record"""

    @property
    def waiting(self) -> int:
        """Attempts that are still to be written."""
        return len(self._waiting)

    def poll(self) -> None:
        """Read what was appended to the journals."""
        events = self._reader.new_events()
        self._written |= marks(events, self._tracker.destination)
        for event in events:
            if isinstance(event, Recorded):
                self._found(event.record)
        self.known = len(self._written.keys() | self._waiting.keys())
        self._session.alive()

    def write_waiting(self, *, keep: int = 0, picture: Callable[[], Path | None] = lambda: None) -> int:
        """Write waiting attempts, oldest first, except the last ``keep``; how many were written.

        ``picture``: called once, before the last of all is written, which carries it: a tracker stores a picture only
        in a run. Raises TrackerError; what was written before that is marked.
        """
        due = list(self._waiting)[: len(self._waiting) - keep]
        for number, identity in enumerate(due, start=1):
            record = self._waiting[identity]
            last = number == len(due) and not keep
            self._tracker.write(tracked(record, self._sweep_id), picture() if last else None)
            self._session.mark(self._tracker.destination, *identity, str(record.outcome))
            self._written[identity] = str(record.outcome)
            del self._waiting[identity]
            self._session.alive()
        return len(due)

    def _found(self, record: Record) -> None:
        """A record waits unless it was written; one written as `lost` is written again with its reported outcome."""
        identity = (record.run_id, record.attempt)
        waiting = self._waiting.get(identity)
        earlier = self._written.get(identity) if waiting is None else waiting.outcome
        if earlier is None or (earlier == Outcome.LOST and record.outcome is not Outcome.LOST):
            self._waiting[identity] = record
