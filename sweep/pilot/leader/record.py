"""From an attempt's result to its record, with findings on communication and memory. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

import msgspec

from sweep.contract import Measurement
from sweep.diagnose.cuda_allocator import AllocatorVerdict, verdict_of
from sweep.diagnose.nccl_log import summarize
from sweep.outcomes import Outcome
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.attempt_state import AttemptResult
from sweep.pilot.leader.watchdog import StopReason
from sweep.records.record import EndedAttempt, build_record, problems
from sweep.records.schema import OVERSUBSCRIBED, Json, Record
from sweep.state.events import Recorded

ENDED_WITH_THE_JOB = frozenset({Outcome.NODE_FAIL, Outcome.NETWORK, Outcome.CANCELLED, Outcome.UNKNOWN})
"""outcomes seen when the whole job ends: the scheduler signals agents and ranks at the same moment as the leader"""
MOST_OF_IT = 0.8
"""an attempt that had this fraction of a pilot's time and did not end would not end in the next pilot either"""
MOST_PROBLEMS = 5
"""at most this many are reported: the first shows what the workload does wrong"""


def recorded_of(
    attempt: EndedAttempt, result: AttemptResult, spec: JobSpec, limit_s: float, stopping: StopReason | None
) -> Recorded[Record]:
    """What is journalled of an attempt. ``attempt``: which it was, where and when; this adds how it ended.

    ``limit_s``: its time limit, less than the job spec's where the pilot's time is nearly over. ``stopping``: why the
    whole pilot is being ended, if it is; then the attempt reports nothing about nodes.

    An invalid measurement (a third-party workload may send anything) is dropped, and an ok attempt then becomes
    `unknown`: a record that breaks the schema would make every later collect of the sweep fail.
    """
    outcome, message = _outcome(result, spec, limit_s, stopping)
    found = result.diagnosis
    evidence, advice = found.evidence or None, found.advice or None
    attempt = replace(attempt, outcome=outcome, message=message, evidence=evidence, advice=advice)
    measurements = [rank.measurement for rank in result.state.ranks]
    try:
        record = _record(attempt, result, measurements)
        wrong = "; ".join(problems(record)[:MOST_PROBLEMS])
    except Exception:  # unexpected: fail the attempt, not the pilot
        wrong = traceback.format_exc(limit=-2)
    if wrong:
        reason = f"the measurement cannot be recorded: {wrong}"
        if outcome is Outcome.OK:
            attempt = replace(attempt, outcome=Outcome.UNKNOWN, message=reason)
        else:
            attempt = replace(attempt, message=f"{message}; {reason}")
        record = _record(attempt, result, [None] * len(measurements))
    recorded = Recorded(time=attempt.ended_at, pilot=spec.name, record=record)
    if stopping is not None or spec.executor == "local":  # locally all nodes are this one machine
        return recorded
    slow = None if record.slow_rank is None else result.state.ranks[record.slow_rank].node
    return msgspec.structs.replace(recorded, accused=result.accused, slow_node=slow)


def _outcome(
    result: AttemptResult, spec: JobSpec, limit_s: float, stopping: StopReason | None
) -> tuple[Outcome, str | None]:
    outcome = result.diagnosis.outcome or Outcome.UNKNOWN
    if stopping is not None and outcome in ENDED_WITH_THE_JOB:
        return stopping.outcome, stopping.text
    if outcome is Outcome.TIME_LIMIT and limit_s < spec.limits.attempt_s:
        if limit_s < MOST_OF_IT * spec.time_limit_s:
            return Outcome.PREEMPTED, f"the pilot's time ended before the run did: {result.message}"
        return outcome, f"longer than a whole pilot: raise pilot_time in the site ({result.message})"
    if outcome is Outcome.CANCELLED and stopping is None:
        return Outcome.UNKNOWN, result.message  # a SIGTERM that neither the user nor the scheduler sent
    return outcome, result.message


def _record(attempt: EndedAttempt, result: AttemptResult, measurements: Sequence[Measurement | None]) -> Record:
    state, extras = result.state, [{} if m is None else m.extra for m in measurements]
    facts, notes, suspect = findings_of([rank.log_tail for rank in state.ranks], extras)
    if removed := {node: clean.removed for node, clean in state.clean.items() if clean.removed}:
        facts["left_in_dev_shm"] = removed
    if attempt.outcome is not Outcome.OK and (read := [clean.sources for clean in state.clean.values()]):
        facts["kernel_sources"] = [name for name in read[0] if all(name in of_node for of_node in read)]
    if state.stopped_s:
        facts["stopped_s"] = round(state.stopped_s, 1)
        notes.append(
            f"the pilot was stopped for {state.stopped_s:.0f} s meanwhile (suspended?): one step may be that long"
        )
    times_s, facts = {**attempt.times_s, **result.times_s}, {**attempt.facts, **facts}
    attempt = replace(attempt, times_s=times_s, facts=facts, notes=(*attempt.notes, *notes), suspect=suspect)
    return build_record(attempt, measurements)


def findings_of(
    outputs: Iterable[str], extras: Sequence[Mapping[str, Json]]
) -> tuple[dict[str, Json], list[str], bool]:
    """Facts, notes, and whether the numbers cannot be trusted: by the ranks' outputs and their further values."""
    facts: dict[str, Json] = {}
    notes: list[str] = []
    summary = summarize(line for text in outputs if "NCCL" in text for line in text.splitlines())
    if summary is not None:
        facts["nccl"] = asdict(summary)
        notes += summary.findings
    verdicts = [(rank, verdict) for rank, extra in enumerate(extras) if (verdict := _verdict(extra)) is not None]
    suspect = False
    if verdicts:  # the worst rank's allocator
        rank, worst = max(verdicts, key=lambda pair: (bool(pair[1].pressure), len(pair[1].findings), -pair[0]))
        facts["allocator_verdict"] = {**vars(worst), "rank": rank, "findings": list(worst.findings)}
        notes += [f"rank {rank}: {text}" for text in worst.findings]
        suspect = bool(worst.pressure)
    stated = [note for extra in extras if isinstance(found := extra.get("notes"), list) for note in found]
    loads = [(extra.get("host_runnable_tasks"), extra.get("host_cores")) for extra in extras]
    if any(isinstance(a, (int, float)) and isinstance(b, (int, float)) and a > b for a, b in loads):
        stated.append(OVERSUBSCRIBED)
    return facts, [*notes, *dict.fromkeys(map(str, stated))], suspect


def _verdict(extra: Mapping[str, Json]) -> AllocatorVerdict | None:
    """From the extra values of a rank: ``allocator`` (peaks), ``allocator_new`` (counters over the timed iterations)
    and ``device_memory_not_torch_bytes``.
    """
    new, peaks, outside = (extra.get(n) for n in ("allocator_new", "allocator", "device_memory_not_torch_bytes"))
    if not isinstance(new, Mapping):
        return None
    given = str(extra.get("allocator_configuration") or "")
    return verdict_of(_numbers(new), _numbers(peaks), outside if isinstance(outside, int) else None, given)


def _numbers(values: Json) -> dict[str, float]:
    known = values if isinstance(values, Mapping) else {}
    return {name: value for name, value in known.items() if isinstance(value, (int, float))}
