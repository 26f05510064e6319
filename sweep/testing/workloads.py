"""Whether a workload declares itself and reports as ``sweep.contract`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweep.contract import Measurement, Phase, Run, Workload
from sweep.pilot.agent.progress import RankHeartbeat
from sweep.pilot.messages import RankFailure
from sweep.plugins import WORKLOAD
from sweep.records.validity import refusal
from sweep.testing.declarations import declaration_findings, registration_findings
from sweep.testing.examples import example_run
from sweep.testing.findings import require_none
from sweep.testing.ranks import RankResult, run_ranks

PHASES = tuple(Phase)


def check_workload(workload: Workload | str, run: Run | None = None, *, timeout_s: float = 120.0) -> None:
    """Check a workload's declaration, and one run of it with real ranks on this machine.

    ``workload``: the declaration, or the name under which it is registered. ``run``: what is run, by default
    ``example_run(workload)``, a tiny model on two ranks. Raises ConformanceError; SweepError for an unknown name.
    """
    declared = WORKLOAD.find(workload) if isinstance(workload, str) else workload
    asked = example_run(declared) if run is None else run
    findings = [*declaration_findings(declared, asked)]
    if isinstance(workload, str):
        findings += registration_findings(workload)
        if declared.name != workload:
            findings.append(f"name: it is registered as {workload!r} and named {declared.name!r}")
    if not findings:  # a wrong declaration explains most of what a run would show
        findings += measured_findings(asked, run_ranks(declared, asked, timeout_s), timeout_s)
    require_none(f"the workload {declared.name}", findings)


def measured_findings(run: Run, ranks: Sequence[RankResult], timeout_s: float) -> Iterator[str]:
    """What is wrong with the reports of the ranks of a run that should succeed."""
    for rank in ranks:
        yield from (f"rank {rank.number}: {finding}" for finding in _rank_findings(run, rank, timeout_s))
    measured = [_measurements(rank) for rank in ranks]
    if all(len(of_rank) == 1 for of_rank in measured):
        problem = refusal(run, [of_rank[0] for of_rank in measured])
        if problem is not None:
            yield f"the attempt would be recorded as {problem[0]}: {problem[1]}"


def _rank_findings(run: Run, rank: RankResult, timeout_s: float) -> Iterator[str]:
    failures = [report for report in rank.reports if isinstance(report, RankFailure)]
    yield from (f"{failure.type}: {failure.message}" for failure in failures)
    if rank.exit_code is None:
        yield f"has not ended after {timeout_s:g} s; the end of its output: {rank.output[-400:]!r}"
    elif rank.exit_code and not failures:
        yield f"ended with {rank.exit_code}; the end of its output: {rank.output[-400:]!r}"
    yield from (f"wrote no report: {line[:80]!r}" for line in rank.unreadable)
    if failures or rank.exit_code is None:
        return
    measurements = _measurements(rank)
    if len(measurements) != 1:
        yield f"reported {len(measurements)} measurements: call progress.measured once"
    yield from _heartbeat_findings(rank)
    for measurement in measurements:
        yield from _measurement_findings(run, measurement)


def _heartbeat_findings(rank: RankResult) -> Iterator[str]:
    beats = [report for report in rank.reports if isinstance(report, RankHeartbeat)]
    if not any(beat.phase in (Phase.FIRST_ITERATION, Phase.STEADY) for beat in beats):
        yield "sent no heartbeat of an iteration: it would be ended as hung"
    order = [PHASES.index(beat.phase) for beat in beats]
    if order != sorted(order):
        yield f"its phases go back: {', '.join(str(beat.phase) for beat in beats)}"
    numbers = [beat.iteration for beat in beats if beat.iteration is not None]
    if numbers != sorted(numbers) or any(number < 0 for number in numbers):
        yield f"its iterations do not count up from 0: {numbers}"


def _measurement_findings(run: Run, measurement: Measurement) -> Iterator[str]:
    if len(measurement.warmup_times_s) > run.warmup_iterations:
        yield f"warmup_times_s has {len(measurement.warmup_times_s)} values for {run.warmup_iterations} iterations"
    for name in ("peak_allocated_bytes", "peak_reserved_bytes", "parameters"):
        value = getattr(measurement, name)
        if value is not None and value <= 0:
            yield f"{name} is {value}: what is unknown is None"


def _measurements(rank: RankResult) -> list[Measurement]:
    return [report for report in rank.reports if isinstance(report, Measurement)]
