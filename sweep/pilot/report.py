"""From how an attempt went to the record that it leaves. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from sweep.contract import Run
from sweep.outcomes import Outcome
from sweep.pilot.attempt import AttemptResult
from sweep.pilot.findings import Findings
from sweep.pilot.order import PilotOrder
from sweep.pilot.watchdog import Verdict
from sweep.records.record import build_record
from sweep.records.schema import problems

ENDED_WITH_THE_JOB = frozenset({Outcome.NODE_FAIL, Outcome.CANCELLED, Outcome.UNKNOWN})
"""what the end of the whole job looks like: the scheduler signals agents and ranks at the same moment as the leader"""
MOST_OF_IT = 0.8
"""an attempt that had so much of a pilot's time and did not end would not end in the next pilot either"""
MOST_PROBLEMS = 5
"""so many are told: the first says what the workload does wrong"""


@dataclass(frozen=True, kw_only=True)
class Conducted:
    """An attempt, as its leader knows it."""

    run: Run
    attempt: int
    order: PilotOrder
    job_id: str
    nodes: tuple[str, ...]
    started_at: float
    """unix seconds"""
    idle_s: float
    """how long its nodes were idle before"""
    limit_s: float
    """what it was given: less than the order's limit where the pilot's time is near its end"""
    beside: Set[str]
    """attempts of the same pilot that shared a part of its time"""


def record_of(
    conducted: Conducted, result: AttemptResult, stopping: Verdict | None, ended_at: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record, and what it says of nodes. `stopping`: why the whole pilot is being ended, if it is.

    A measurement that is none (a workload of someone else may send anything) is left out, and an ok attempt then is
    `unknown`: a record that breaks the schema would keep every later collect from reading the sweep.
    """
    outcome, message = _outcome(conducted, result, stopping)
    try:
        record = _record(conducted, result, outcome, message, ended_at)
        wrong = "; ".join(problems(record)[:MOST_PROBLEMS])
    except Exception:  # in a way that nobody thought of: it costs the attempt, not the pilot
        wrong = traceback.format_exc(limit=-2)
    if wrong:
        for rank in result.ranks:
            rank.measurement = None
        told = f"the measurement cannot be recorded: {wrong}"
        outcome, message = (Outcome.UNKNOWN, told) if outcome is Outcome.OK else (outcome, f"{message}; {told}")
        record = _record(conducted, result, outcome, message, ended_at)
    about_nodes = _about_nodes(conducted, record, result) if stopping is None else {}
    return record, about_nodes


def _outcome(conducted: Conducted, result: AttemptResult, stopping: Verdict | None) -> tuple[Outcome, str | None]:
    outcome = result.diagnosis.outcome or Outcome.UNKNOWN
    if stopping is not None and outcome in ENDED_WITH_THE_JOB:
        return stopping.outcome, stopping.text
    if outcome is Outcome.TIME_LIMIT and conducted.limit_s < conducted.order.limits.attempt_s:
        if conducted.limit_s < MOST_OF_IT * conducted.order.time_limit_s:
            return Outcome.PREEMPTED, f"the pilot's time ended before the run did: {result.message}"
        return outcome, f"longer than a whole pilot: raise pilot_time in the site ({result.message})"
    if outcome is Outcome.CANCELLED and stopping is None:
        return Outcome.UNKNOWN, result.message  # a SIGTERM that neither the user nor the scheduler sent
    return outcome, result.message


def _record(
    conducted: Conducted, result: AttemptResult, outcome: Outcome, message: str | None, ended_at: float
) -> dict[str, Any]:
    measurements = [rank.measurement for rank in result.ranks]
    extras = [m.extra if m is not None else {} for m in measurements]
    findings = Findings.of((rank.tail for rank in result.ranks), extras)
    facts = {"left_in_dev_shm": result.removed, "beside": sorted(conducted.beside)}
    record = build_record(
        run=conducted.run,
        attempt=conducted.attempt,
        outcome=outcome,
        message=message,
        evidence=result.diagnosis.evidence or None,
        advice=result.diagnosis.advice or None,
        measurements=measurements,
        node_names=conducted.nodes,
        gpu=conducted.order.gpu,
        pilot=conducted.order.name,
        job_id=conducted.job_id,
        started_at=conducted.started_at,
        ended_at=ended_at,
        times_s={**result.times_s, "pilot_idle_s": conducted.idle_s},
        sweep_name=conducted.order.sweep_name,
        torch_version=conducted.order.torch_version,
        extra={**findings.facts, **{name: value for name, value in facts.items() if value}},
    )
    return findings.annotate(record)


def _about_nodes(conducted: Conducted, record: Mapping[str, Any], result: AttemptResult) -> dict[str, Any]:
    """What the attempt says of nodes; nothing where all are this one machine."""
    if conducted.order.executor == "local":
        return {}
    slow = record["slow_rank"]
    slow_node = None if slow is None else record["node_names"][slow // record["gpus_per_node"]]
    return {"accused": list(result.accused), "slow_node": slow_node}
