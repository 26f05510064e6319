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
from typing import NamedTuple

import msgspec

from sweep.outcomes import Outcome
from sweep.records.record import decode_in_full
from sweep.records.schema import CONFIGURATION_NAMES, METRICS, TIME_NAMES, Record
from sweep.state.events import Recorded, Tracked
from sweep.store.directory import SweepDir
from sweep.store.journal import Journal, JournalReader
from sweep.store.place import check_own
from sweep.trackers.tracker import TrackedRun, Tracker, TrackerError


class Sent(NamedTuple):
    """What ``send`` came to, in attempts."""

    known: int
    """those that have a record"""
    new: int
    left: int
    error: str | None
    """why some are left"""


def send(
    directory: SweepDir, sweep_id: str, tracker: Tracker, picture: Callable[[], Path | None] = lambda: None
) -> Sent:
    """Write the attempts that are not written yet, oldest first, until the tracker refuses one.

    ``picture``: called once, before the last of all is written, which carries it: a tracker stores a picture only in a
    run.
    """
    check_own(directory)
    events = JournalReader(directory, decode=decode_in_full).new_events()
    written: dict[tuple[str, int], str] = {
        (event.run_id, event.attempt): event.outcome
        for event in events
        if isinstance(event, Tracked) and event.outcome and event.destination == tracker.destination
    }
    waiting: dict[tuple[str, int], Record] = {}
    for record in (event.record for event in events if isinstance(event, Recorded)):
        # It waits unless it was written; one written as `lost` is written again with its reported outcome.
        identity = record.run_id, record.attempt
        earlier = waiting[identity].outcome if identity in waiting else written.get(identity)
        if earlier is None or (earlier == Outcome.LOST and record.outcome is not Outcome.LOST):
            waiting[identity] = record
    known, due = len(written.keys() | waiting.keys()), len(waiting)
    journal, error = Journal(directory.journal(f"tracker-{uuid.uuid4().hex[:12]}")), None

    def mark(record: Record, outcome: str) -> None:
        to, now = tracker.destination, time.time()
        event = Tracked(time=now, destination=to, run_id=record.run_id, attempt=record.attempt, outcome=outcome)
        journal.append(event)

    try:
        for record in [*waiting.values()][:1]:
            mark(record, "")  # in a full directory one error, before the tracker's client leaves parts of a run
        for identity, record in [*waiting.items()]:
            tracker.write(tracked(record, sweep_id), picture() if len(waiting) == 1 else None)
            mark(record, str(record.outcome))
            del waiting[identity]
    except TrackerError as refused:
        error = str(refused)
    finally:
        journal.remove_empty()
    return Sent(known, due - len(waiting), len(waiting), error)


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
