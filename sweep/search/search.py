"""A search that follows a sweep: reads what changed in the sweep state, and asks its strategy what a pilot runs next.

Its answers are a function of the plan and the sweep state: pilots and launcher, each with its own search, agree once
they have read the same journals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.outcomes import Outcome
from sweep.physics.groups import PACKED, PLACEMENT, nodes_together
from sweep.physics.hardware import Gpu
from sweep.planning.runs import PlannedRun
from sweep.search.budget import Budget
from sweep.search.candidates import UNKNOWN_GPU, Bools, Candidates, from_plan
from sweep.search.guided import missed
from sweep.search.observations import Known
from sweep.search.placing import FLAT, Tree
from sweep.search.posterior import Errors
from sweep.search.remeasure import to_repeat
from sweep.search.strategies import Strategy, strategy_named
from sweep.state.state import RunState, SweepState

BY_STRATEGY, BY_BUDGET = "not_run_strategy", "not_run_budget"
"""why a run is not started: the strategy skips it, or the budget is spent"""


class Search:
    """One search over the runs of a plan. Incremental: a choice costs what changed since the last.

    Raises SweepError for an unknown strategy.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        gpu: Gpu | None = None,
        strategy: str = "exhaustive",
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        """``limits``: of a grid (its ``limits``); none: every run."""
        self._runs = runs
        given = {key: value for key, value in (limits or {}).items() if value is not None}
        settings = {"miss": given.pop("miss")} if "miss" in given else {}
        self._strategy: Strategy = strategy_named(strategy, **settings)
        self._expected = np.array([run.expected_s for run in runs], dtype=np.float64)
        self._wanted: dict[int, tuple[tuple[int, int], str]] = {}
        self._widths = sorted({run.nodes for run in runs}, reverse=True)
        self._candidates: Candidates = from_plan(runs, gpu or UNKNOWN_GPU)
        self._read: int
        self._known: Known
        asked_for = int((self._candidates.repeats < given.get("repeats", math.inf)).sum())
        self._budget = Budget.of(given, asked_for) if given else None
        self._begin(SweepState())

    @property
    def known(self) -> Known:
        """The observations as of the last update."""
        return self._known

    def update(self, sweep_state: SweepState) -> Known:
        """Read what changed since the last call. Pass the same sweep state each time, or one rebuilt from scratch."""
        if self._sweep_state is not sweep_state:
            self._begin(sweep_state)
        changed = dict.fromkeys(sweep_state.touched[self._read :])
        self._read = len(sweep_state.touched)
        for run_id in changed:
            place = self._candidates.index.get(run_id)
            if place is not None:
                self._read_run(sweep_state.runs[run_id], place)
        return self._known

    def choices(
        self,
        sweep_state: SweepState,
        most: int,
        taken: frozenset[tuple[str, int]],
        *,
        in_turn: bool = False,
        placed: bool = False,
    ) -> Iterator[tuple[int, int]]:
        """(place in the plan, attempt) to consider, the widest first: per node count the strategy's pick, then retries.

        ``most``: number of free nodes. ``taken``: attempts that others claimed. ``in_turn``: not the widest first,
        which fills a cluster's nodes, but the cell with the fewest runs: for one run at a time. ``placed``: after a
        pick that cannot be placed, one whose groups take another number of nodes.
        """
        known = self.update(sweep_state)
        found = self._by_width(sweep_state, most, taken, placed and not in_turn)
        if in_turn:
            tries, cells = known.tries, known.candidates.cells
            found = iter(sorted(found, key=lambda each: (each[1] > 1, tries[cells[each[0]]], each[0])))
        return found

    def _by_width(
        self, sweep_state: SweepState, most: int, taken: frozenset[tuple[str, int]], placed: bool
    ) -> Iterator[tuple[int, int]]:
        known = self.update(sweep_state)
        free = self._free(known).copy()
        for run_id, attempt in taken:
            place = self._candidates.index.get(run_id)
            if attempt == 1 and place is not None:
                free[place] = False
        nodes = known.candidates.nodes
        for width in (width for width in self._widths if width <= most):
            left = free & (nodes == width)
            while (pick := self._strategy.pick(known, left)) is not None:
                yield pick.index, 1
                if not placed:
                    break
                like = self.wanted(pick.index)
                left[[place for place in np.flatnonzero(left).tolist() if self.wanted(place) == like]] = False
            for place in sorted(place for place in self._retries if nodes[place] == width):
                if (self._runs[place].run_id, self._retries[place]) not in taken:
                    yield place, self._retries[place]

    def nodes_of_repeats(self, sweep_state: SweepState, place: int) -> Counter[str]:
        """The nodes on which other runs of this run's configuration were or are measured, and how often each."""
        groups = self._candidates.duplicates
        same = [self._runs[other].run_id for other in np.flatnonzero(groups == groups[place]).tolist()]
        attempts = (attempt for run_id in same for attempt in sweep_state.run_state(run_id).attempts.values())
        return Counter(node for attempt in attempts for node in attempt.nodes)

    def wanted(self, place: int) -> tuple[tuple[int, int], str]:
        """How many nodes, in rank order, should be in one domain: for tp and ep groups, for tp alone; its placement."""
        configuration = int(self._candidates.duplicates[place])
        if configuration not in self._wanted:
            run = self._runs[place].run()
            together = nodes_together(run), nodes_together(run, ("tp",))
            self._wanted[configuration] = together, run.env.get(PLACEMENT, PACKED)
        return self._wanted[configuration]

    def errors(self, sweep_state: SweepState) -> tuple[Errors, list[str]]:
        """By how much longer measured runs took than was expected, and their run_ids."""
        errors = self.update(sweep_state).posterior().errors()
        return errors, [self._runs[place].run_id for place in errors.runs]

    def skipped(self, sweep_state: SweepState) -> Mapping[str, str]:
        """run_id -> BY_STRATEGY or BY_BUDGET, for runs that will not be started, as known now."""
        known = self.update(sweep_state)
        if "out" not in self._cached:
            out = ~known.begun & ~self._to_begin(known)
            wanted = self._strategy.open(known, ~known.begun) if out.any() else out
            self._cached["out"] = {
                self._runs[place].run_id: BY_BUDGET if wanted[place] else BY_STRATEGY
                for place in np.flatnonzero(out).tolist()
            }
        found: Mapping[str, str] = self._cached["out"]
        return found

    def missed(self, sweep_state: SweepState) -> Mapping[str, tuple[float, float]]:
        """run_id -> (expected gain, chance that it is worth it), for the same: ``guided.missed``."""
        rows = np.array([self._candidates.index[run_id] for run_id in self.skipped(sweep_state)], dtype=np.int64)
        found = missed(self._known, rows).T.tolist()
        return {self._runs[row].run_id: (gain, chance) for row, (gain, chance) in zip(rows, found, strict=True)}

    def to_remeasure(self, sweep_state: SweepState, share: float) -> list[tuple[bool, str]]:
        """As of ``remeasure.to_repeat``, by run_id."""
        return [(further, self._runs[row].run_id) for further, row in to_repeat(self.update(sweep_state), share)]

    def _begin(self, sweep_state: SweepState) -> None:
        self._sweep_state = sweep_state
        self._read = 0
        self._known = Known(self._candidates)
        self._retries: dict[int, int] = {}
        self._seconds = self._expected.copy()
        self._began_at, self._seen_at = float("inf"), float("-inf")
        self._cached: dict[str, Any] = {}

    def _free(self, known: Known) -> Bools:
        """The runs that the budget allows."""
        if self._budget is None:
            return ~known.begun
        if "free" not in self._cached:
            elapsed_s = max(self._seen_at - self._began_at, 0.0)
            free = self._budget.affordable(known, self._seconds, elapsed_s)
            if self._budget.whole and not self._budget.enough_for_all(known, self._seconds, free):
                shares = self._budget.shares(known, self._seconds, self._strategy.open(known, free))
                free &= (shares > 0)[known.candidates.cells]
            self._cached["free"] = free
        found: Bools = self._cached["free"]
        return found

    def _to_begin(self, known: Known) -> Bools:
        """The runs still to be started: per cell no more than its share of the budget."""
        if "open" not in self._cached:
            open_ = self._strategy.open(known, self._free(known)).copy()
            if self._budget is not None:
                left = self._budget.shares(known, self._seconds, open_)
                cells = known.candidates.cells
                for cell in np.unique(cells[open_]):
                    open_[np.flatnonzero(open_ & (cells == cell))[left[cell] :]] = False
            self._cached["open"] = open_
        found: Bools = self._cached["open"]
        return found

    def _read_run(self, state: RunState, place: int) -> None:
        self._cached.clear()
        again = state.next_attempt()
        self._retries.pop(place, None)
        if again is not None and again > 1:
            self._retries[place] = again
        if not state.attempts:
            return
        self._known.begin(place)
        spent = 0.0  # an attempt that has not ended counts with its expected duration
        for attempt in state.attempts.values():
            times = [at for at in (attempt.started_at, attempt.ended_at) if at is not None]
            self._began_at = min([self._began_at, *times])
            self._seen_at = max([self._seen_at, *times])
            spent += times[1] - times[0] if len(times) == 2 else float(self._expected[place])
        self._seconds[place] = spent
        counting = state.ok or state.last
        if counting is None or counting.outcome is None or again is not None:
            self._known.reopen(place)
            return
        rate, peak = counting.tokens_per_second_per_gpu, counting.peak_memory_bytes
        self._known.end(
            place, Outcome(counting.outcome), rate, peak, counting.ended_at or 0.0, stopped=counting.stopped
        )


@dataclass(frozen=True)
class Choice:
    """A run and the number of the attempt to claim."""

    planned: PlannedRun
    attempt: int
    nodes: tuple[str, ...] = ()
    """the free nodes to run on; empty if it only waits"""


def claimable(runs: Sequence[PlannedRun], sweep_state: SweepState) -> Iterator[Choice]:
    """All attempts that may be claimed now, in the plan's order."""
    for planned in runs:
        state = sweep_state.runs.get(planned.run_id)
        attempt = 1 if state is None else state.next_attempt()
        if attempt is not None:
            yield Choice(planned, attempt)


def waiting(runs: Sequence[PlannedRun], sweep_state: SweepState) -> list[Choice]:
    """The same, those never tried first."""
    return sorted(claimable(runs, sweep_state), key=lambda choice: choice.attempt > 1)


def choose(
    runs: Sequence[PlannedRun],
    sweep_state: SweepState,
    free_nodes: int,
    seconds_left: float,
    expected_s: float,
    taken: frozenset[tuple[str, int]] = frozenset(),
    *,
    search: Search,
    names: Sequence[str],
    busy: Sequence[str] = (),
    tree: Tree = FLAT,
    reject_split: bool = False,
    same_nodes: bool = False,
    in_turn: bool = False,
) -> Choice | None:
    """The attempt that a pilot should claim now, of the widest run that fits; or None if nothing does.

    ``free_nodes``: how many the run may use. ``expected_s``: duration of one run here, from measurements so far. A
    run that could not end before the pilot's wall time is left for another pilot. ``taken``: claims of others that
    are not in the journals yet. ``search``: follows the sweep and gives the order. ``names``: the free nodes, ``busy``:
    those that will be free. ``tree``: their topology. ``reject_split``: leave runs whose tp or ep groups all these
    nodes together cannot keep whole. ``same_nodes``: there are no others, so a retry may use nodes where the run
    failed. ``in_turn``: see ``Search.choices``. A repeat goes to nodes and units that its configuration used least.
    """
    if sweep_state.cancelled or seconds_left < expected_s:
        return None
    placed = bool(tree.domains)
    for place, attempt in search.choices(sweep_state, free_nodes, taken, in_turn=in_turn, placed=placed):
        planned = runs[place]
        avoid = sweep_state.run_state(planned.run_id).avoid()
        used = search.nodes_of_repeats(sweep_state, place) if attempt == 1 else Counter(avoid)
        free, later = (_fit(some, avoid, planned.nodes, same_nodes) for some in (names, [*names, *busy]))
        together, placement = search.wanted(place) if tree.levels else ((1,), PACKED)
        together = together if placed or placement != PACKED else (1,)
        nodes = tree.choose(free, later, planned.nodes, together, used, reject_split=reject_split, placement=placement)
        if nodes is not None:
            return Choice(planned, attempt, nodes)
    return None


def _fit(names: Sequence[str], avoid: Container[str], wanted: int, same_nodes: bool) -> Sequence[str]:
    """The nodes on which the run did not fail in a way that a node may cause; all, if these are too few for it and
    there are no others.
    """
    good = [name for name in names if name not in avoid]
    return names if same_nodes and len(good) < wanted else good
