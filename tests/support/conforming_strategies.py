"""Whether a search strategy is a function of the observations, and picks only what it may."""

from collections.abc import Callable

import numpy as np

from sweep.inputs.load import parse_grid
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.planning.build import build
from sweep.plugins import STRATEGY
from sweep.search.candidates import Bools, Candidates, from_plan
from sweep.search.observations import Known
from sweep.search.strategies import Pick, Strategy

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


def check_strategy(name: str) -> None:
    """A registered strategy, on a small sweep in which every run, two of three or no run works."""
    for outcome_of in (
        lambda _: Outcome.OK,
        lambda place: Outcome.OK if place % 3 else Outcome.OOM_CUDA,
        lambda _: Outcome.UNKNOWN,
    ):
        _Sweep(STRATEGY.find(name), outcome_of).check()


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

    def check(self) -> None:
        assert self._strategy.pick(self._known, np.zeros(len(self._candidates), dtype=bool)) is None, "none is free"
        for number in range(len(self._candidates) + 1):
            free = ~self._known.begun
            pick = self._of_a_pick(free)
            self._of_cells(free)
            if number % CHECK_ORDER_EVERY == 1:
                self._of_the_order(free, pick)
            if pick is None:
                return
            self._measure(pick.index)

    def _of_a_pick(self, free: Bools) -> Pick | None:
        given, before = free.copy(), self._known.begun.copy()
        pick, open_ = self._strategy.pick(self._known, given), self._strategy.open(self._known, given)
        assert (given == free).all(), "it changes what it is given"
        assert (self._known.begun == before).all(), "it changes what it is given"
        assert (open_.dtype, open_.shape) == (np.bool_, free.shape)
        assert not (open_ & ~free).any(), "runs that are not free are open"
        if pick is None:
            assert not open_.any(), "the sweep would never end"
        else:
            assert free[pick.index]
            assert open_[pick.index]
            assert pick.why
        assert self._make().pick(self._known, free.copy()) == pick, "it depends on more than the observations"
        return pick

    def _of_cells(self, free: Bools) -> None:
        """In each, open and pick agree on whether a run is left."""
        for cell in range(len(self._candidates.cell_names)):
            mine = free & (self._candidates.cells == cell)
            if mine.any():
                picks = self._strategy.pick(self._known, mine) is not None
                assert picks == self._strategy.open(self._known, mine).any()

    def _of_the_order(self, free: Bools, pick: Pick | None) -> None:
        """A launcher that reads the journals later sees the same ends in another order."""
        again = Known(self._candidates)
        for when, place in reversed([*enumerate(self._measured)]):
            self._end(again, place, when)
        assert self._make().pick(again, free.copy()) == pick

    def _measure(self, place: int) -> None:
        self._end(self._known, place, len(self._measured))
        self._measured.append(place)

    def _end(self, known: Known, place: int, when: int) -> None:
        outcome = self._outcome_of(place)
        worked = outcome is Outcome.OK
        rate = 1000.0 + 37 * (place * 7919 % 101) if worked else None
        known.end(place, outcome, rate, PEAK_BYTES if worked else None, when=float(when))
