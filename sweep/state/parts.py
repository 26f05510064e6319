"""What an attempt's time is made of: parts that sum to it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sweep.outcomes import Outcome
from sweep.state.events import RecordFacts

PARTS: Mapping[str, str] = {
    "measuring": "timed iterations of runs that are measured in full",
    "stopped": "timed iterations of runs that had lost",
    "warm-up": "untimed iterations, each as long as a usual one",
    "compilation": "what the first iteration took beyond a usual one: compilers, kernels loaded, connections made",
    "model": "building model and optimizer",
    "process groups": "joining the other ranks",
    "CUDA context": "opening the device",
    "imports": "the rest of a run's start: its order, processes, imports",
    "failed": "attempts without a measurement, until their nodes were clean",
    "running": "attempts that have no record yet",
    "cleaning": "from the last rank's result to clean nodes and the record",
    "waiting": "free nodes, while their pilot runs on others: for the widest run",
    "idle": "free nodes between runs",
    "pilot": "the job's begin and end: its batch script, agents, checks of nodes",
    "lost": "nodes that failed, or whose pilot ended without a word, until the job ended",
}
START = {"build": "model", "rendezvous": "process groups", "device": "CUDA context"}
"""a rank's own phase (``Measurement.phases_s``) -> the part it is in"""
_decode: Callable[[str], Any] = msgspec.json.Decoder(
    msgspec.defstruct("Extra", [("phases_s", dict[str, Any], {})])
).decode


def parts_of(record: RecordFacts, whole_s: float) -> dict[str, float]:
    """Seconds of an attempt that took ``whole_s``, by part. What no phase states was cleaning, or is in proportion."""
    if record.outcome is not Outcome.OK:
        return {"failed": whole_s}
    given = (record.start_s, record.first_iteration_s, record.measure_s, record.step_time_median_s)
    left, first, measured, usual = (max(0.0, seconds or 0.0) for seconds in given)
    usual, warm = min(first, usual), min(measured, sum(record.warmup_times_s[1:]) if record.warmup_times_s else 0.0)
    timed = "measuring" if record.stopped is None else "stopped"
    parts = {timed: measured - warm, "warm-up": usual + warm, "compilation": first - usual}
    phases = _phases(record.extra_json)
    for phase, part in START.items():
        parts[part] = min(left, _seconds(phases.get(phase)))
        left -= parts[part]
    parts["imports"] = left
    known = sum(parts.values())
    if known > whole_s:
        return {part: seconds * whole_s / known for part, seconds in parts.items()}
    return {**parts, "cleaning": whole_s - known}


def _phases(extra_json: str | None) -> Any:
    """Phase of the start -> what the ranks took, as a record states it."""
    try:
        return _decode(extra_json).phases_s if extra_json else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def _seconds(stated: Any) -> float:
    """What the slowest rank took; 0 where none states it."""
    most = stated.get("max") if isinstance(stated, dict) else stated
    return max(0.0, most) if isinstance(most, (int, float)) else 0.0
