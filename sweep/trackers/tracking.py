"""Writes new runs in a sweep's journals to a tracker. Cost is proportional to the new entries.

Each run is marked in a journal after it was written, since not every tracker can be asked what it stores (files that
were uploaded and removed). A later process writes only runs without a mark; where one was killed between a run and its
mark, it replaces that run under the same key. Two at once do the work twice, and may add a run twice that both write at
the same moment.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from sweep.outcomes import Outcome
from sweep.records.record import decode_in_full
from sweep.records.schema import CONFIGURATION_NAMES, METRICS, TIME_NAMES, Record
from sweep.state.events import Recorded, Tracked
from sweep.store.directory import SweepDir
from sweep.store.journal import Journal, JournalReader
from sweep.store.place import check_own
from sweep.trackers.tracker import TrackedRun, Tracker


class Tracking:
    """One sweep and one tracker. `poll` reads new entries; `write_waiting` writes what it found."""

    def __init__(self, directory: SweepDir, sweep_id: str, tracker: Tracker) -> None:
        self._sweep_id = sweep_id
        self._tracker = tracker
        check_own(directory)
        self._journal = Journal(directory.journal(f"tracker-{uuid.uuid4().hex[:12]}"))
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
        for event in events:
            if isinstance(event, Tracked) and event.outcome and event.destination == self._tracker.destination:
                self._written[event.run_id, event.attempt] = event.outcome
        for event in events:
            if isinstance(event, Recorded):
                # It waits unless it was written; one written as `lost` is written again with its reported outcome.
                record, identity = event.record, (event.record.run_id, event.record.attempt)
                waiting = self._waiting.get(identity)
                earlier = self._written.get(identity) if waiting is None else waiting.outcome
                if earlier is None or (earlier == Outcome.LOST and record.outcome is not Outcome.LOST):
                    self._waiting[identity] = record
        self.known = len(self._written.keys() | self._waiting.keys())

    def write_waiting(self, *, picture: Callable[[], Path | None] = lambda: None) -> None:
        """Write waiting attempts, oldest first.

        ``picture``: called once, before the last of all is written, which carries it: a tracker stores a picture only
        in a run. Raises TrackerError; what was written before that is marked.
        """
        due = list(self._waiting)
        for identity in due[:1]:
            self._mark(identity, "")  # in a full directory one error, before the tracker's client leaves parts of a run
        for number, identity in enumerate(due, start=1):
            record = self._waiting[identity]
            last = number == len(due)
            self._tracker.write(tracked(record, self._sweep_id), picture() if last else None)
            self._mark(identity, str(record.outcome))
            del self._waiting[identity]

    def close(self) -> None:
        """Close the journal, or remove it where nothing was written."""
        self._journal.remove_empty()

    def _mark(self, identity: tuple[str, int], outcome: str) -> None:
        run_id, attempt = identity
        destination, now = self._tracker.destination, time.time()
        event = Tracked(time=now, destination=destination, run_id=run_id, attempt=attempt, outcome=outcome)
        self._journal.append(event)
        self._written[identity] = outcome


IDENTITY = ("run_id", "attempt", "repeat", "sweep_name", "pilot", "job_id", "started_at", "ended_at", "node_names")
SUMMARY = (
    *("outcome", "message", "evidence", "advice", "suspect", "notes", "slow_rank"),
    *(column.name for column in METRICS if not column.type.startswith("list<")),
    *TIME_NAMES,
)
JSON_COLUMNS = {"shape_json": "shape", "params_json": "params", "env_json": "env", "versions_json": "versions"}
"""Columns that hold JSON, and their names in the tracker"""


def key_of(sweep_id: str, run_id: str, attempt: int) -> str:
    """The tracker's id of an attempt: always the same, on any host."""
    return hashlib.sha256(json.dumps([sweep_id, run_id, attempt]).encode()).hexdigest()[:24]


def tracked(record: Record, sweep_id: str) -> TrackedRun:
    """A record as a tracker's run: configuration and environment, metrics, one row of history per iteration."""
    # msgspec leaves out what the text of a record that others wrote lacks
    values = dict.fromkeys((*IDENTITY, *CONFIGURATION_NAMES, *JSON_COLUMNS, *SUMMARY)) | msgspec.to_builtins(record)
    plain = [name for name in CONFIGURATION_NAMES if name not in JSON_COLUMNS]
    config = {"sweep_id": sweep_id} | {name: values[name] for name in (*IDENTITY, *plain)}
    config |= {name: json.loads(values[column] or "{}") for column, name in JSON_COLUMNS.items()}
    return TrackedRun(
        key=key_of(sweep_id, record.run_id, record.attempt),
        name=f"{record.run_id}.{record.attempt}",
        group=sweep_id,
        config=config,
        summary={name: values[name] for name in SUMMARY if values[name] not in (None, [])},
        history=history(record),
        failed=record.outcome is not Outcome.OK,
    )


def history(record: Record) -> list[dict[str, float]]:
    """One row per iteration: its number from 0, loss, gradient norm, and if it was timed its time and rate.

    Losses include the warm-up, times do not: times belong to the last iterations. Names differ from the summary's,
    which a tracker would overwrite with the last row's values.
    """
    times = record.step_times_s or []
    series = {"loss": record.losses or [], "grad_norm": record.grad_norms or []}
    total = max(len(times), *(len(values) for values in series.values()))
    rows = []
    for iteration in range(total):
        row: dict[str, float] = {"iteration": iteration}
        row |= {name: values[iteration] for name, values in series.items() if iteration < len(values)}
        timed = iteration - (total - len(times))
        if timed >= 0:
            step_s = row["step_time_s"] = times[timed]
            if record.global_batch_tokens and record.gpus and step_s > 0:
                row["step_tokens_per_second_per_gpu"] = record.global_batch_tokens / record.gpus / step_s
        rows.append(row)
    return rows
