"""Start limits observed on similar runs: how long the next one may go without a heartbeat. Pure.

The grid's limits are for the worst expected start. Once some runs have started, a hang during start is
found sooner. Observed limits never fail a run for good: a further attempt has the grid's limits.

Remaining time of a pilot's job, and time limit of its next run. Pure; times are unix seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweep.pilot.job_spec import JobSpec, Limits
from sweep.pilot.leader.watchdog import StartLimits
from sweep.planning.runs import ASSUMED_RUN_S, PlannedRun
from sweep.state.events import Event, Recorded

ENOUGH = 3
"""minimum number of similar runs that iterated before their starts are used"""
FACTOR = 5.0
"""a start may take this many times the longest of the similar ones"""
FLOOR_S = 90.0
"""lower bound: a compilation of a minute is tolerated whatever was observed before"""
WIDER = 2
"""runs on fewer nodes than this one's divided by this do not predict its rendezvous"""


@dataclass(frozen=True)
class MeasuredStart:
    """Times of one attempt up to its second iteration."""

    nodes: int
    work: float
    """work of one iteration, in a unit that similar runs share"""
    start_s: float
    first_iteration_s: float


class ObservedStarts:
    """Start times observed in this sweep, from the journals."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._runs = {planned.run_id: planned for planned in runs}
        self._seen: dict[tuple[Hashable, ...], dict[tuple[str, int], MeasuredStart]] = defaultdict(dict)

    def apply_all(self, events: Iterable[Event]) -> None:
        """Note the records whose ranks began to iterate, whatever their outcome."""
        for record in (event.record for event in events if isinstance(event, Recorded)):
            planned = self._runs.get(record.run_id)
            if planned is not None and record.start_s is not None and record.first_iteration_s is not None:
                key, work = _key_and_work(planned)
                start = MeasuredStart(planned.nodes, work, record.start_s, record.first_iteration_s)
                self._seen[key][record.run_id, record.attempt] = start  # one that is seen twice counts once

    def start_limits(self, planned: PlannedRun, attempt: int, grid: Limits) -> StartLimits | None:
        """The limits of an attempt's start, never above the grid's; None where the grid's apply."""
        if attempt > 1:
            return None
        key, work = _key_and_work(planned)
        similar = [start for start in self._seen[key].values() if WIDER * start.nodes >= planned.nodes]
        return limits_from(similar, work, grid) if len(similar) >= ENOUGH else None


def _key_and_work(planned: PlannedRun) -> tuple[tuple[Hashable, ...], float]:
    """What a run's start depends on. The key is equal for runs of one program: what they import, build and compile
    differs in its layout alone. The work: the plan's prediction; where there is none, the tokens of one GPU.
    """
    run = planned.run()
    settings = tuple(sorted(run.params.items())), tuple(sorted(run.env.items()))
    key = run.workload, run.model, run.sequence_length, run.dtype, run.compile, *settings
    return key, planned.predicted_s or run.global_batch_tokens / run.gpus


def limits_from(similar: Sequence[MeasuredStart], work: float, grid: Limits) -> StartLimits:
    """Limits from the longest of the similar starts; the first iteration's scales with the run's work."""
    start_s = max(start.start_s for start in similar)
    first_s = max(start.first_iteration_s * max(1.0, work / start.work) for start in similar)
    return StartLimits(
        start_s=min(grid.start_s, max(FLOOR_S, FACTOR * start_s)),
        first_iteration_s=min(grid.first_iteration_s, max(FLOOR_S, FACTOR * first_s)),
    )


UNKNOWN_RUN = 2.0
"""before any run was measured in this pilot, the next may take this many times the assumed duration"""
MARGIN_S = 45.0
"""reserved before the end of the job, for a full teardown: GRACE_S and CLEAN_S, whose last seconds may be in Slurm's
KillWait"""
LATELY = 20
"""number of latest attempts from which the next one's duration is estimated"""


class PilotTime:
    """The time of one pilot."""

    def __init__(self, spec: JobSpec, environment: Mapping[str, str], now: float) -> None:
        self._spec = spec
        end = environment.get("SLURM_JOB_END_TIME", "")  # Slurm states it from 22.05 on; else the limit counts from now
        began = environment.get("SLURM_JOB_START_TIME", "")
        self.began_at = float(began) if began.isdigit() else None
        """of its job, unix seconds; None where the scheduler does not say"""
        self._ends_at = min(float(end) if end.isdigit() else float("inf"), now + spec.time_limit_s)
        self._durations: list[float] = []

    def took(self, seconds: float) -> None:
        """Note an attempt's duration, from its choice to its record."""
        self._durations.append(seconds)

    def left_s(self, now: float) -> float:
        """Time left for runs."""
        return self._ends_at - now - min(MARGIN_S, 0.1 * self._spec.time_limit_s)

    def next_run_s(self) -> float:
        """Estimate for the next run: somewhat more than the longest recent one."""
        if self._durations:
            return 1.5 * max(self._durations[-LATELY:])
        return min(UNKNOWN_RUN * ASSUMED_RUN_S, self._spec.limits.attempt_s, 0.5 * self._spec.time_limit_s)
