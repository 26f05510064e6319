"""The guided search: in each cell the run with the greatest expected gain, until what is left is not worth a run.

Cells take turns until each has a few runs; then the cell with the greatest expected gain is next. The expected gain of
a run is its expected improvement over the cell's best, times its chance to work, per second of its nodes. A cell stops
when all remaining runs together have an expected gain below ``least_gain``, and every value of every axis was measured
there or is excluded: no run that has it is likely to beat the best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.search.candidates import Bools
from sweep.search.chances import expected_improvement, probability_above, together
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known
from sweep.search.strategies import Pick

FINALIST = 0.03
"""configurations within this of their cell's best are repeated"""
IN_TURN = 2
"""runs that each cell has before the greatest gain decides"""
MOST_TOGETHER = 64
"""the runs with the greatest gains alone that are considered together"""


@dataclass(frozen=True)
class Outlook:
    """What a cell's remaining runs may still gain."""

    stopped: bool
    gain: float
    """expected improvement of the cell's best, as a logarithm, were all of them measured"""
    sure: float
    """probability that none of them beats the best by over the tolerance"""
    excluded: tuple[tuple[str, str, float], ...]
    """(axis, value, highest chance to beat the best of a run that has it) of values that were not measured"""


@dataclass(frozen=True)
class Guided:
    """``chance``: of beating the cell's best by over ``tolerance``."""

    tolerance: float = 0.02
    max_probability: float = 0.05
    """an axis value is excluded if no run that has it has a higher chance"""
    least_gain: float = 0.01
    """expected gain of all that is left below which a cell stops"""
    min_tries: int = 4
    """runs of a cell before it may stop"""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The most promising run of the cell whose turn it is."""
        open_ = free & ~known.infeasible
        first = open_ & (known.candidates.repeats == 0)
        cells = known.candidates.cells
        for cell in self._by_turn(known, first):
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
            found[rows] = not self.outlook(known, rows, int(cell)).stopped
        again = able & (known.candidates.repeats > 0)
        if again.any():
            found |= again & (np.isin(cells, cells[found]) | np.isin(known.candidates.duplicates, _finalists(known)))
        return found

    def chance(self, known: Known, rows: Ints, cell: int) -> Floats:
        """Per row, the probability that its measurement beats the cell's best by more than the tolerance."""
        threshold = known.best[cell] + float(np.log1p(self.tolerance))
        beliefs = known.beliefs()
        above = probability_above(beliefs.log_rates(rows), beliefs.spreads(rows, measured=True), threshold)
        found: Floats = above * beliefs.success(rows)
        return found

    def outlook(self, known: Known, rows: Ints, cell: int) -> Outlook:
        """Whether the cell stops, with ``rows`` left in it, and how sure that is."""
        if known.tries[cell] < self.min_tries or not np.isfinite(known.best[cell]):
            return Outlook(False, np.inf, 0.0, ())
        beliefs, best = known.beliefs(), float(known.best[cell])
        alone = self._gains(known, rows, np.float64(best))
        if float(alone.max()) > self.least_gain:
            return Outlook(False, float(alone.max()), 0.0, ())
        untried = _untried(known, rows, cell)
        chances = self.chance(known, rows, cell)
        excluded = tuple((axis, value, float(chances[mine].max())) for axis, value, mine in untried)
        if any(chance > self.max_probability for _, _, chance in excluded):
            return Outlook(False, float(alone.max()), 0.0, excluded)
        top = rows[np.argsort(-alone, kind="stable")[:MOST_TOGETHER]]
        gain, above = together(
            beliefs.log_rates(top), beliefs.covariance(top), beliefs.success(top), best, float(np.log1p(self.tolerance))
        )
        return Outlook(gain <= self.least_gain, gain, 1 - above, excluded)

    def _by_turn(self, known: Known, first: Bools) -> Ints:
        """Cells with a run left: those with fewer than IN_TURN runs by their number; then by the greatest gain."""
        cells = known.candidates.cells
        present = np.unique(cells[first])
        early = (known.tries[present] < IN_TURN) | ~np.isfinite(known.best[present])
        gains = np.zeros(len(known.best))
        rows = np.flatnonzero(first & np.isin(cells, present[~early]))
        if len(rows):
            np.maximum.at(gains, cells[rows], self._gains(known, rows, known.best[cells[rows]]))
        found: Ints = present[np.lexsort((known.tries[present], np.where(early, 0, -gains[present]), ~early))]
        return found

    def _gains(self, known: Known, rows: Ints, best: Floats) -> Floats:
        """Expected improvement of each row, times its chance to work."""
        beliefs = known.beliefs()
        gains = expected_improvement(beliefs.log_rates(rows), beliefs.spreads(rows, measured=False), best)
        found: Floats = gains * beliefs.success(rows)
        return found

    def _in_cell(self, known: Known, rows: Ints, cell: int) -> Pick | None:
        beliefs = known.beliefs()
        if not np.isfinite(known.best[cell]):
            means, works = beliefs.log_rates(rows), beliefs.success(rows)
            place = int(np.argmax(means + np.log(np.maximum(works, 1e-9))))
            rate = float(np.exp(means[place]))
            return Pick(int(rows[place]), f"{rate:,.0f} tokens/s/GPU predicted, {works[place]:.0%} likely to work")
        outlook = self.outlook(known, rows, cell)
        if outlook.stopped:
            return None
        gains = self._gains(known, rows, known.best[cell])
        place = int(np.argmax(gains / known.candidates.expected_s[rows]))
        if gains[place] <= self.least_gain:
            place = self._worth_a_look(known, rows, cell, place)
        chance = self.chance(known, rows[place : place + 1], cell)[0]
        why = f"{chance:.0%} likely to beat its cell's best by over {self.tolerance:.0%}"
        return Pick(int(rows[place]), why)

    def _worth_a_look(self, known: Known, rows: Ints, cell: int, place: int) -> int:
        """The likeliest run of the axis value that is neither measured nor excluded; ``place`` if there is none."""
        chances = self.chance(known, rows, cell)
        values = [(float(chances[mine].max()), mine) for _, _, mine in _untried(known, rows, cell)]
        most, mine = max(values, key=lambda value: value[0], default=(0.0, None))
        return place if mine is None or most <= self.max_probability else int(mine[int(np.argmax(chances[mine]))])


def _untried(known: Known, rows: Ints, cell: int) -> list[tuple[str, str, Ints]]:
    """(axis, value, places of the rows that have it) of each value that no begun run of the cell has."""
    c, found = known.candidates, []
    begun = np.flatnonzero(known.begun & (c.cells == cell))
    for axis, codes in c.main_axes.items():
        for code in np.setdiff1d(codes[rows], codes[begun]):
            mine = np.flatnonzero(codes[rows] == code)
            found.append((axis, str(np.broadcast_to(c.columns[axis], len(c))[rows[mine[0]]]), mine))
    return found


def _repeat(known: Known, rows: Ints) -> Pick | None:
    """A repeat of a finalist, where the plan has repeats: the least repeated first."""
    if not len(rows):
        return None
    rows = rows[np.isin(known.candidates.duplicates[rows], _finalists(known))]
    if not len(rows):
        return None
    row = int(rows[int(np.argmin(known.candidates.repeats[rows]))])
    return Pick(row, f"repeat of a configuration within {FINALIST:.0%} of its cell's best")


def _finalists(known: Known) -> Ints:
    """The configurations, by their group of duplicates, whose median is near their cell's best."""
    c = known.candidates
    measured = np.flatnonzero(~np.isnan(known.log_rates))
    near = measured[known.log_rates[measured] >= known.best[c.cells[measured]] + np.log1p(-FINALIST)]
    found = []
    for duplicate in np.unique(c.duplicates[near]):
        rows = measured[c.duplicates[measured] == duplicate]
        if np.median(known.log_rates[rows]) >= known.best[c.cells[rows[0]]] + np.log1p(-FINALIST):
            found.append(duplicate)
    return np.array(found, dtype=np.int64)
