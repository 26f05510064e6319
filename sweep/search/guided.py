"""The guided search: physics corrected by what was measured, cell by cell, until no remaining run is likely to win.

Cells take turns: the one with the fewest runs so far is next, so that none starves while another is uncertain.
Within a cell the run with the best corrected prediction comes first. A cell stops when no remaining run is likely
to beat its best by more than a tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.search.candidates import Bools
from sweep.search.finalists import NEAR, finalists
from sweep.search.observations import Known
from sweep.search.step_time_model import Floats, Ints, probability_above
from sweep.search.strategies import Pick

FAILURE_WEIGHT = 0.4
"""weight of the log success probability in a run's order: failures without a known cause are weak evidence"""
OPTIMISM = 0.5
"""standard deviations that are added to a prediction: what is uncertain may be better than it looks"""
MIN_RUNS = 8
"""runs of a cell that are checked first when deciding whether it may stop"""


@dataclass(frozen=True)
class Guided:
    """Stops a cell once no run has a chance over ``max_probability`` to beat its best by ``tolerance``."""

    tolerance: float = 0.02
    max_probability: float = 0.05
    min_tries: int = 4
    """runs of a cell before it may stop"""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The most promising run of the cell whose turn it is."""
        open_ = free & ~known.infeasible
        first = open_ & (known.candidates.repeats == 0)
        cells = known.candidates.cells
        for cell in _by_turn(known, cells[first]):
            found = self._in_cell(known, np.flatnonzero(first & (cells == cell)), int(cell))
            if found is not None:
                return found
        return _repeat(known, np.flatnonzero(open_ & (known.candidates.repeats > 0)))

    def open(self, known: Known, free: Bools) -> Bools:
        """All feasible runs in cells that have not stopped, and the finalists' repeats."""
        able = free & ~known.infeasible
        first = able & (known.candidates.repeats == 0)
        found: Bools = np.zeros(len(known.candidates), dtype=bool)
        cells = known.candidates.cells
        for cell in np.unique(cells[first]):
            rows = np.flatnonzero(first & (cells == cell))
            found[rows] = not self._stopped(known, rows, int(cell))
        again = able & (known.candidates.repeats > 0)
        if again.any():
            found |= again & (np.isin(cells, cells[found]) | np.isin(known.candidates.duplicates, finalists(known)))
        return found

    def chance(self, known: Known, rows: Ints, cell: int) -> Floats:
        """Per row, the probability of beating its cell's best by more than the tolerance."""
        found: Floats = self._above(known, rows, cell) * known.success(rows)
        return found

    def _above(self, known: Known, rows: Ints, cell: int) -> Floats:
        """The same, given that the run succeeds."""
        threshold = known.best[cell] + float(np.log1p(self.tolerance))
        return probability_above(*known.predicted(rows), threshold)

    def _in_cell(self, known: Known, rows: Ints, cell: int) -> Pick | None:
        predicted, spread = known.predicted(rows)
        score = predicted + OPTIMISM * spread + FAILURE_WEIGHT * np.log(known.success(rows))
        place = int(np.argmax(score))
        rate = float(np.exp(predicted[place]))
        if not self._may_stop(known, cell):
            return Pick(int(rows[place]), f"most promising of its cell: {rate:,.0f} tokens/s/GPU predicted")
        if self._stopped(known, rows, cell):
            return None
        chance = self.chance(known, rows[place : place + 1], cell)[0]
        why = f"{chance:.0%} likely to beat its cell's best by over {self.tolerance:.0%}"
        return Pick(int(rows[place]), why)

    def _may_stop(self, known: Known, cell: int) -> bool:
        return bool(known.tries[cell] >= self.min_tries and np.isfinite(known.best[cell]))

    def _stopped(self, known: Known, rows: Ints, cell: int) -> bool:
        """Whether none of the cell's rows has a chance over ``max_probability``. The likeliest are checked first."""
        if not self._may_stop(known, cell):
            return False
        above = self._above(known, rows, cell)
        likely = np.argsort(-above, kind="stable")[: int((above > self.max_probability).sum())]
        for some in (likely[:MIN_RUNS], likely[MIN_RUNS:]):
            if len(some) and float((above[some] * known.success(rows[some])).max()) > self.max_probability:
                return False
        return True


def _by_turn(known: Known, cells: Ints) -> Ints:
    """The cells, those with the fewest runs first."""
    present = np.unique(cells)
    ordered: Ints = present[np.argsort(known.tries[present], kind="stable")]
    return ordered


def _repeat(known: Known, rows: Ints) -> Pick | None:
    """A repeat of a finalist, where the plan has repeats: the least repeated first."""
    if not len(rows):
        return None
    rows = rows[np.isin(known.candidates.duplicates[rows], finalists(known))]
    if not len(rows):
        return None
    row = int(rows[int(np.argmin(known.candidates.repeats[rows]))])
    return Pick(row, f"repeat of a finalist: within {NEAR:.0%} of its cell's best, or one of the best two")
