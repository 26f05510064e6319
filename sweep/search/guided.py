"""The guided search: in each cell the run with the greatest expected gain, until what is left is not worth a run.

Cells take turns until each has a few runs; then the cell with the greatest expected gain is next. The expected gain of
a run is its expected improvement over the cell's best, times its chance to work, per second of its nodes. A cell stops
when the expected gains of all remaining runs add up to at most ``miss``; and so must the chances that one is over WORTH
faster, until repeats have shown the noise. In a cell without a success the first one counts for a factor of e. What may
be missed is by spreads as wide as predictions of a search's unmeasured runs are off: wider than the posterior's, most
where a cell has few runs, and with the noise of a measurement, which the best has too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.search.candidates import Bools
from sweep.search.gaussian import Floats, Ints, exceeds, expected_improvement
from sweep.search.observations import Known
from sweep.search.remeasure import NEAR, top_configurations
from sweep.search.strategies import Pick

WORTH = 0.03
"""how much faster than the best of its cell a run must be to be called missed: 3 %"""
FIRST_GAIN = 1.0
"""what a cell's first success counts for, as a logarithm"""
WIDER, FEW = 1.3, 5.0
"""a prediction is off by WIDER times the posterior's spread, and by sqrt(1 + FEW / n) times that where its cell has n
measured runs: by `python -m benchmarks.calibration`, on synthetic clusters of which no strategy is judged"""


@dataclass(frozen=True)
class _Left:
    """Runs that may still be picked, one entry each."""

    rows: Ints
    cells: Ints
    means: Floats
    """of the logarithm of tokens/s/GPU"""
    works: Floats
    """chance to work"""
    gains: Floats
    """expected improvement over their cell's best, times ``works``"""
    missed: Floats
    """(2, runs) the same by the wider spreads, and the chance to be over WORTH faster (``missed``)"""

    def of(self, cell: int) -> Ints:
        """Places of a cell's."""
        return np.flatnonzero(self.cells == cell)


@dataclass(frozen=True)
class Guided:
    """One search over all cells."""

    miss: float = 0.01
    """expected gain of all that is left, as a logarithm, at which a cell stops"""
    min_tries: int = 2
    """runs of a cell before it may stop, and before the greatest gain decides which cell is next"""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The most promising run of the cell whose turn it is. Repeats come last; but once those of top configurations
        have begun, which are planned when nothing else is left, they come first.
        """
        able, again = free & ~known.infeasible, known.candidates.measured_again
        if shows_noise(known) and (repeat := _repeat(known, np.flatnonzero(able & again))) is not None:
            return repeat
        left = what_is_left(known, np.flatnonzero(able & (known.candidates.repeats == 0)))
        for cell in by_turn(known, left, self.min_tries).tolist():
            found = self._in_cell(known, left, cell)
            if found is not None:
                return found
        return _repeat(known, np.flatnonzero(able & (known.candidates.repeats > 0)))

    def open(self, known: Known, free: Bools) -> Bools:
        """All feasible runs in cells that have not stopped, and the top configurations' repeats."""
        able = free & ~known.infeasible
        left = what_is_left(known, np.flatnonzero(able & (known.candidates.repeats == 0)))
        found: Bools = np.zeros(len(known.candidates), dtype=bool)
        for cell in np.unique(left.cells).tolist():
            found[left.rows[left.of(cell)]] = not self._stops(known, left, cell)
        again = able & (known.candidates.repeats > 0)
        if again.any():
            cells = known.candidates.cells
            found |= again & (
                np.isin(cells, cells[found]) | np.isin(known.candidates.duplicates, top_configurations(known))
            )
        return found

    def _stops(self, known: Known, left: _Left, cell: int) -> bool:
        """Whether what is left is not worth a run: the best of several gains at most what all add up to. Until repeats
        have shown the noise, the chance that one of them is over WORTH faster counts too.
        """
        mine = left.of(cell)
        few = known.tries[cell] < self.min_tries
        missed = left.missed[:, mine].sum(axis=1)
        if shows_noise(known):
            missed = missed[:1]
        return not len(mine) or (not few and bool((missed <= self.miss).all()))

    def _in_cell(self, known: Known, left: _Left, cell: int) -> Pick | None:
        if self._stops(known, left, cell):
            return None
        mine = left.of(cell)
        if not np.isfinite(known.best[cell]):
            at = int(mine[int(np.argmax(left.means[mine] + np.log(np.maximum(left.works[mine], 1e-9))))])
            rate = float(np.exp(left.means[at]))
            return Pick(int(left.rows[at]), f"{rate:,.0f} tokens/s/GPU predicted, {left.works[at]:.0%} likely to work")
        per_second = left.gains[mine] / known.candidates.expected_s[left.rows[mine]]
        at = int(mine[int(np.argmax(per_second))])
        why = f"expected to improve its cell's best by {np.expm1(left.gains[at]):.1%}"
        return Pick(int(left.rows[at]), why)


def shows_noise(known: Known) -> bool:
    """Whether repeats of top configurations have begun: together they show it, and by it cells may open again."""
    return bool(known.begun[known.candidates.measured_again].any())


def missed(known: Known, rows: Ints) -> Floats:
    """(2, runs) what is lost where they are not measured: the expected gain over the cell's best, as a logarithm, and
    the chance that it is over WORTH. Of repeats and infeasible runs 0, as of cells without a success.
    """
    best = known.best[known.candidates.cells[rows]]
    able = np.isfinite(best) & ~known.infeasible[rows] & (known.candidates.repeats[rows] == 0)
    found: Floats = np.zeros((2, len(rows)))
    found[:, able] = what_is_left(known, rows[able]).missed
    return found


def what_is_left(known: Known, rows: Ints) -> _Left:
    """``rows``: that may still be picked."""
    posterior, cells = known.posterior(), known.candidates.cells[rows]
    works, mean = posterior.success(rows), posterior.log_rates(rows)
    some = np.isfinite(known.best[cells])
    best = np.where(some, known.best[cells], mean)
    spreads = posterior.spreads(rows)
    # of the rate that a run will show, its noise included
    off = wider(known, rows) * np.hypot(spreads, posterior.fit.scales.noise)
    gains, *missed = (
        np.where(some, works * found, FIRST_GAIN * works)
        for found in (
            expected_improvement(mean, spreads, best),
            expected_improvement(mean, off, best),
            exceeds(mean, off, best + np.log1p(WORTH)),
        )
    )
    return _Left(rows, cells, mean, works, gains, np.stack(missed))


def wider(known: Known, rows: Ints) -> Floats:
    """By how much the errors of the rows' predictions exceed the posterior's spreads."""
    cells = known.candidates.cells
    measured = np.bincount(cells[~np.isnan(known.log_rates)], minlength=len(known.best))[cells[rows]]
    found: Floats = WIDER * np.sqrt(1 + FEW / np.maximum(measured, 1))
    return found


def by_turn(known: Known, left: _Left, in_turn: int) -> Ints:
    """Cells with a run left: those with fewer runs than ``in_turn`` by their number; then by the greatest gain."""
    present = np.unique(left.cells)
    early = known.tries[present] < in_turn
    gains = np.zeros(len(known.best))
    np.maximum.at(gains, left.cells, left.gains)
    found: Ints = present[np.lexsort((known.tries[present], np.where(early, 0, -gains[present]), ~early))]
    return found


def _repeat(known: Known, rows: Ints) -> Pick | None:
    """A repeat of a top configuration, where the plan has repeats: the least repeated first."""
    if not len(rows):
        return None
    rows = rows[np.isin(known.candidates.duplicates[rows], top_configurations(known))]
    if not len(rows):
        return None
    row = int(rows[int(np.argmin(known.candidates.repeats[rows]))])
    return Pick(row, f"repeat of a top configuration: within {NEAR:.0%} of its cell's best, or one of the best two")
