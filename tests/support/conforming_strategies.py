"""Whether a search strategy is a function of the observations, and picks only what it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from sweep.inputs.load import parse_grid
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.planning.build import build
from sweep.plugins import STRATEGY
from sweep.search.candidates import Bools, Candidates, from_plan
from sweep.search.observations import Known
from sweep.search.strategies import Pick, Strategy
from tests.support.findings import named, require_none

GRID = """
workload: simulated
models: [1B, 8B]
nodes: [1, 2]
sequence_length: 4096
global_batch: 256Ki
tp: [1, 2, 8]
zero: [0, 3]
micro_batch_size: [1, 2]
site: {gpu: h100, gpus_per_node: 8}
"""
PEAK_BYTES = 40e9
CHECK_ORDER_EVERY = 8
"""picks between two checks that the order of arrival does not matter: they cost a fit each"""


def check_strategy(strategy: Callable[[], Strategy] | str) -> None:
    """Check a strategy on a small sweep in which every run, some or no run works.

    ``strategy``: its class, or the name under which it is registered. Raises ConformanceError; SweepError for an
    unknown name.
    """
    make: Callable[[], Strategy] = STRATEGY.find(strategy) if isinstance(strategy, str) else strategy
    name = strategy if isinstance(strategy, str) else getattr(strategy, "__name__", "strategy")
    findings: list[str] = []
    for title, outcomes in scenarios().items():
        try:
            findings += (f"{title}: {finding}" for finding in _Sweep(make, outcomes).findings())
        except Exception as error:  # third-party code: a strategy may raise anything
            findings.append(f"{title}: raised {named(error)}")
    require_none(f"the strategy {name}", findings)


def scenarios() -> Mapping[str, Callable[[int], Outcome]]:
    """How runs end, by their place in the plan."""
    return {
        "every run works": lambda _: Outcome.OK,
        "every third run is out of memory": lambda place: Outcome.OK if place % 3 else Outcome.OOM_CUDA,
        "no run works": lambda _: Outcome.UNKNOWN,
    }


class _Sweep:
    """One strategy on one plan, until it wants no further run."""

    def __init__(self, make: Callable[[], Strategy], outcome_of: Callable[[int], Outcome]) -> None:
        grid = parse_grid(GRID, "the grid of this check")
        assert grid.site is not None
        self._candidates: Candidates = from_plan(build(grid, grid.site).runs, GPUS["h100"])
        self._make, self._outcome_of = make, outcome_of
        self._strategy = make()
        self._known = Known(self._candidates)
        self._measured: list[int] = []
        """places of the runs, in order"""

    def findings(self) -> Iterator[str]:
        """What is wrong with each pick; stops at the first wrong one."""
        yield from self._with_nothing_free()
        for number in range(len(self._candidates) + 1):
            free = ~self._known.begun
            findings = list(self._of_a_pick(free))
            findings = findings or list(self._of_cells(free))
            if not findings and number % CHECK_ORDER_EVERY == 1:
                findings += self._of_the_order(free)
            pick = self._strategy.pick(self._known, free)
            yield from findings
            if findings or pick is None:
                return
            self._measure(pick.index)

    def _with_nothing_free(self) -> Iterator[str]:
        none = np.zeros(len(self._candidates), dtype=bool)
        if self._strategy.pick(self._known, none) is not None:
            yield "picks a run when none is free"

    def _of_a_pick(self, free: Bools) -> Iterator[str]:
        given, before = free.copy(), self._known.begun.copy()
        pick, open_ = self._strategy.pick(self._known, given), self._strategy.open(self._known, given)
        if (given != free).any() or (self._known.begun != before).any():
            yield "changes what it is given"
        if not isinstance(open_, np.ndarray) or open_.dtype != np.bool_ or open_.shape != free.shape:
            yield f"open gives {type(open_).__name__}, not a boolean per run"
            return
        if (open_ & ~free).any():
            yield "open has runs that are not free"
        if pick is None:
            if open_.any():
                yield f"picks none, though {int(open_.sum())} runs are open: the sweep would never end"
            return
        if not isinstance(pick, Pick) or not 0 <= pick.index < len(free) or not free[pick.index]:
            yield f"picks {pick!r}, which is not a free run"
        elif not open_[pick.index]:
            yield f"picks run {pick.index}, which is not open"
        elif not pick.why:
            yield "gives no reason for its pick"
        if self._make().pick(self._known, free.copy()) != pick:
            yield "a new instance picks another run: it depends on more than the observations"

    def _of_cells(self, free: Bools) -> Iterator[str]:
        cells = self._candidates.cells
        for cell, name in enumerate(self._candidates.cell_names):
            mine = free & (cells == cell)
            if not mine.any():
                continue
            picks = self._strategy.pick(self._known, mine) is not None
            if picks != bool(self._strategy.open(self._known, mine).any()):
                yield f"in the cell {name}, open and pick disagree on whether a run is left"

    def _of_the_order(self, free: Bools) -> Iterator[str]:
        """A launcher that reads the journals later sees the same ends in another order."""
        again = Known(self._candidates)
        for when, place in reversed([*enumerate(self._measured)]):
            self._end(again, place, when)
        if self._make().pick(again, free.copy()) != self._strategy.pick(self._known, free.copy()):
            yield "the order in which results arrive changes its pick"

    def _measure(self, place: int) -> None:
        self._end(self._known, place, len(self._measured))
        self._measured.append(place)

    def _end(self, known: Known, place: int, when: int) -> None:
        outcome = self._outcome_of(place)
        worked = outcome is Outcome.OK
        rate = 1000.0 + 37 * (place * 7919 % 101) if worked else None
        known.end(place, outcome, rate, PEAK_BYTES if worked else None, when=float(when))
