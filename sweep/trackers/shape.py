"""From a record to a tracker's run. Pure."""

from __future__ import annotations

import hashlib
import json

import msgspec

from sweep.outcomes import Outcome
from sweep.records.schema import CONFIGURATION_NAMES, METRICS, TIME_NAMES, Record
from sweep.trackers.tracker import TrackedRun

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
            row |= _pace(record, times[timed])
        rows.append(row)
    return rows


def _pace(record: Record, step_s: float) -> dict[str, float]:
    pace = {"step_time_s": step_s}
    if record.global_batch_tokens and record.gpus and step_s > 0:
        pace["step_tokens_per_second_per_gpu"] = record.global_batch_tokens / record.gpus / step_s
    return pace
