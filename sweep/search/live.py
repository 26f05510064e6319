"""A search that follows a sweep: reads what changed in the world, and asks its strategy what to run next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sweep.outcomes import Outcome
from sweep.physics.hardware import Gpu
from sweep.plan import PlannedRun
from sweep.search.budget import Budget
from sweep.search.candidates import UNKNOWN_GPU, Bools, from_plan
from sweep.search.known import Known
from sweep.search.strategies import strategy_named
from sweep.state import World

UNKNOWN_SECONDS = 60.0
"""what a run is taken to last for a budget, where the plan does not say"""


class Search:
    """One search over the runs of a plan. Keeps what it has read, so that a choice costs what changed since the last.

    Raises SweepError where there is no such strategy.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        gpu: Gpu | None = None,
        strategy: str = "exhaustive",
        budget: Budget | None = None,
    ) -> None:
        self._runs = runs
        self._strategy = strategy_named(strategy)
        self._budget = budget
        self._known = Known(from_plan(runs, gpu or UNKNOWN_GPU))
        seconds = [run.predicted_s or UNKNOWN_SECONDS for run in runs]
        self._seconds = np.array(seconds, dtype=np.float64)
        self._widths = sorted({run.nodes for run in runs}, reverse=True)
        self._retries: dict[int, int] = {}
        self._world: World | None = None
        self._read = 0

    @property
    def known(self) -> Known:
        """What the search knows, as of the last look."""
        return self._known

    def look(self, world: World) -> Known:
        """Read what changed in the world since the last look. Always given the same world, or one begun anew."""
        if self._world is not world:
            self._world, self._read = world, 0
            self._known, self._retries = Known(self._known.candidates), {}
        changed = dict.fromkeys(world.touched[self._read :])
        self._read = len(world.touched)
        for run_id in changed:
            place = self._known.candidates.index.get(run_id)
            if place is not None:
                self._read_run(world, run_id, place)
        return self._known

    def choices(self, world: World, most: int, taken: frozenset[tuple[str, int]]) -> Iterator[tuple[int, int]]:
        """(place in the plan, attempt) to consider, the widest first: of each width the strategy's pick, then retries.

        ``most``: so many nodes are free. ``taken``: attempts that are another's.
        """
        known = self.look(world)
        free = self._free(known, taken)
        nodes = known.candidates.nodes
        for width in (width for width in self._widths if width <= most):
            pick = self._strategy.pick(known, free & (nodes == width))
            if pick is not None:
                yield pick.index, 1
            for place in sorted(place for place in self._retries if nodes[place] == width):
                if (self._runs[place].run_id, self._retries[place]) not in taken:
                    yield place, self._retries[place]

    def left_out(self, world: World) -> Bools:
        """The runs, by place, that the strategy would not start at any width though nothing else hinders them."""
        known = self.look(world)
        found: Bools = ~known.begun & known.hopeless
        return found

    def _free(self, known: Known, taken: frozenset[tuple[str, int]]) -> Bools:
        if self._budget is None:
            free: Bools = ~known.begun
        else:
            free = self._budget.affordable(known, self._seconds)
        for run_id, attempt in taken:
            place = known.candidates.index.get(run_id)
            if attempt == 1 and place is not None:
                free[place] = False
        return free

    def _read_run(self, world: World, run_id: str, place: int) -> None:
        state = world.runs[run_id]
        again = state.next_attempt()
        self._retries.pop(place, None)
        if again is not None and again > 1:
            self._retries[place] = again
        if not state.attempts:
            return
        self._known.begin(place)
        counting = state.ok or state.last
        if counting is not None and counting.outcome is not None and again is None:
            rate, peak = counting.tokens_per_second_per_gpu, counting.peak_memory_bytes
            self._known.end(place, Outcome(counting.outcome), rate, peak)
