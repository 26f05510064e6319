"""Start limits observed on similar runs: how long the next one may go without a heartbeat. Pure.

The grid's limits are for the worst expected start. Once some runs have started, a hang during start is
found sooner. Observed limits never fail a run for good: a further attempt has the grid's limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from sweep.pilot.job_spec import Limits
from sweep.pilot.leader.watchdog import StartLimits
from sweep.planning.runs import PlannedRun
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
