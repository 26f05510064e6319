"""From how an attempt went to the record that it leaves, with what its communication and memory tell. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from sweep.contract import Run
from sweep.diagnose.cuda_allocator import AllocatorVerdict, judge
from sweep.diagnose.nccl_log import summarize
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt_result import AttemptResult
from sweep.pilot.leader.watchdog import Verdict
from sweep.pilot.order import PilotOrder
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


def nccl_findings(outputs: Iterable[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """The summary of all ranks' NCCL lines as JSON values, and its findings; (None, []) where NCCL said nothing."""
    summary = summarize(line for text in outputs if "NCCL" in text for line in text.splitlines())
    return (None, []) if summary is None else (summary.as_json(), list(summary.findings))


def allocator_findings(extras: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any] | None, list[str], bool]:
    """The worst rank's allocator: its verdict as JSON values, findings, and whether its timing is not valid."""
    verdicts = [(rank, verdict) for rank, extra in enumerate(extras) if (verdict := _verdict(extra)) is not None]
    if not verdicts:
        return None, [], False
    rank, worst = max(verdicts, key=lambda pair: (bool(pair[1].pressure), len(pair[1].findings), -pair[0]))
    values = {**vars(worst), "rank": rank, "findings": list(worst.findings)}
    return values, [f"rank {rank}: {text}" for text in worst.findings], bool(worst.pressure)


def _verdict(extra: Mapping[str, Any]) -> AllocatorVerdict | None:
    """From what a workload's rank gives: ``allocator`` (peaks), ``allocator_new`` (counters over the timed iterations)
    and ``device_memory_not_torch_bytes``.
    """
    new = extra.get("allocator_new")
    if not isinstance(new, Mapping):
        return None
    peaks = {name: value for name, value in (extra.get("allocator") or {}).items() if value is not None}
    outside = extra.get("device_memory_not_torch_bytes")
    after = {**peaks, **new, "reserved_bytes.all.current": 0}
    return judge(dict.fromkeys(new, 0), after, device_free_bytes=0, device_total_bytes=outside)


def _own_words(extras: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the workload itself found odd: the ``notes`` of its ranks' further values, each once."""
    said = [note for extra in extras if isinstance(extra.get("notes"), list) for note in extra["notes"]]
    return list(dict.fromkeys(str(note) for note in said))


@dataclass(frozen=True)
class Findings:
    """Facts for the record's further values, notes in words, and whether the numbers cannot be trusted."""

    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    invalid: bool

    @classmethod
    def of(cls, outputs: Iterable[str], extras: Sequence[Mapping[str, Any]]) -> Findings:
        """From the ranks' outputs and the further values of their measurements."""
        nccl, nccl_words = nccl_findings(outputs)
        allocator, allocator_words, invalid = allocator_findings(extras)
        facts = {"nccl": nccl, "allocator_verdict": allocator}
        known = {name: value for name, value in facts.items() if value is not None}
        return cls(known, (*nccl_words, *allocator_words, *_own_words(extras)), invalid)

    def annotate(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record with the notes. A note alone does not make it suspect: slow communication is slow, not wrong."""
        suspect = record["suspect"] or self.invalid
        return {**record, "notes": [*record["notes"], *self.notes], "suspect": suspect}
