"""How long like runs took until they iterated, and how long a further one may therefore be silent. Pure.

The limits of the grid are for the worst start that anyone expects. Once some runs have started, a hang in a start is
found sooner. Nothing is held against a run for good by what was learned: a further attempt has the grid's limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sweep.contract import Run
from sweep.pilot.leader.watchdog import StartLimits
from sweep.pilot.limits import Limits
from sweep.plan.runs import PlannedRun
from sweep.state.events import Event, Recorded, RecordFacts

ENOUGH = 3
"""so many like runs must have begun to iterate before anything is learned of them"""
FACTOR = 5.0
"""a start may take so many times the longest of the like ones"""
FLOOR_S = 90.0
"""never less: a compilation of a minute is borne whatever was seen before it"""
WIDER = 2
"""runs on less than one part in so many of the nodes tell nothing of the rendezvous of this one"""


@dataclass(frozen=True)
class MeasuredStart:
    """How one attempt got to its second iteration."""

    nodes: int
    work: float
    """of one iteration, in a unit that its like share"""
    start_s: float
    first_iteration_s: float


@dataclass(frozen=True)
class _Kind:
    """A run, as far as its start depends on it."""

    planned: PlannedRun

    @cached_property
    def run(self) -> Run:
        return self.planned.run()

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Equal for runs of one program: what they import, build and compile differs in its layout alone."""
        run = self.run
        settings = tuple(sorted(run.params.items())), tuple(sorted(run.env.items()))
        return run.workload, run.model, run.sequence_length, run.dtype, run.compile, *settings

    @property
    def work(self) -> float:
        """By the plan's prediction; where there is none, by the tokens of one GPU."""
        return self.planned.predicted_s or self.run.global_batch_tokens / self.run.gpus


class Starts:
    """What the journals tell of starts in this sweep."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._kinds = {planned.run_id: _Kind(planned) for planned in runs}
        self._seen: dict[tuple[Hashable, ...], dict[tuple[str, int], MeasuredStart]] = defaultdict(dict)

    def apply_all(self, events: Iterable[Event]) -> None:
        """Read on in the journals: take note of records whose ranks began to iterate, however they ended."""
        for event in events:
            if isinstance(event, Recorded):
                self._add(event.record)

    def _add(self, record: RecordFacts) -> None:
        """A record seen twice counts once."""
        kind = self._kinds.get(record.run_id)
        if kind is None or record.start_s is None or record.first_iteration_s is None:
            return
        start = MeasuredStart(kind.planned.nodes, kind.work, record.start_s, record.first_iteration_s)
        self._seen[kind.key][record.run_id, record.attempt] = start

    def start_limits(self, planned: PlannedRun, attempt: int, grid: Limits) -> StartLimits | None:
        """The limits of an attempt's start, never above the grid's; None where these hold."""
        if attempt > 1:
            return None
        kind = _Kind(planned)
        like = [start for start in self._seen[kind.key].values() if WIDER * start.nodes >= planned.nodes]
        return limits_from(like, kind.work, grid) if len(like) >= ENOUGH else None


def limits_from(like: Sequence[MeasuredStart], work: float, grid: Limits) -> StartLimits:
    """From the longest of the like starts; a run with more work is given more for its first iteration."""
    start_s = max(start.start_s for start in like)
    first_s = max(start.first_iteration_s * max(1.0, work / start.work) for start in like)
    return StartLimits(
        start_s=min(grid.start_s, max(FLOOR_S, FACTOR * start_s)),
        first_iteration_s=min(grid.first_iteration_s, max(FLOOR_S, FACTOR * first_s)),
    )
