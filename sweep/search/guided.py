"""The guided search: in each cell the run with the greatest expected gain, until what is left is not worth a run.

Cells take turns until each has a few runs; then the cell with the greatest expected gain is next. The expected gain of
a run is its expected improvement over the cell's best, times its chance to work, per second of its nodes. A cell stops
when all remaining runs together have an expected gain below ``least_gain``, and every value of every axis was tried
there or is excluded: no run that has it is likely to beat the best. In a cell without a success the first one counts
for a factor of e.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.search.candidates import Bools
from sweep.search.chances import expected_improvement, gain_together, probability_above, together
from sweep.search.finalists import NEAR, finalists
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known
from sweep.search.strategies import Pick

FIRST_GAIN = 1.0
"""what a cell's first success counts for, as a logarithm"""
MOST_TOGETHER = 32
"""the runs with the greatest gains alone that are considered together"""


@dataclass(frozen=True)
class Outlook:
    """What a cell's remaining runs may still gain."""

    stopped: bool
    gain: float
    """expected improvement of the cell's best, as a logarithm, were all of them measured"""
    sure: float
    """probability that none of them beats the best by over the tolerance; 0 where that is not worked out"""
    excluded: tuple[tuple[str, str, float], ...]
    """(axis, value, highest chance to beat the best of a run that has it) of values that were not tried"""


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
    chances: Floats
    """of beating their cell's best by over the tolerance"""

    def of(self, cell: int) -> Ints:
        """Places of a cell's."""
        return np.flatnonzero(self.cells == cell)


@dataclass(frozen=True)
class Guided:
    """``chance``: of beating the cell's best by over ``tolerance``."""

    tolerance: float = 0.02
    max_probability: float = 0.05
    """an axis value is excluded if no run that has it has a higher chance"""
    least_gain: float = 0.01
    """expected gain of all that is left below which a cell stops"""
    min_tries: int = 2
    """runs of a cell before it may stop, and before the greatest gain decides which cell is next"""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The most promising run of the cell whose turn it is."""
        able = free & ~known.infeasible
        left = self._left(known, np.flatnonzero(able & (known.candidates.repeats == 0)))
        for cell in by_turn(known, left, self.min_tries).tolist():
            found = self._in_cell(known, left, cell)
            if found is not None:
                return found
        return _repeat(known, np.flatnonzero(able & (known.candidates.repeats > 0)))

    def open(self, known: Known, free: Bools) -> Bools:
        """All feasible runs in cells that have not stopped, and the finalists' repeats."""
        able = free & ~known.infeasible
        left = self._left(known, np.flatnonzero(able & (known.candidates.repeats == 0)))
        found: Bools = np.zeros(len(known.candidates), dtype=bool)
        for cell in np.unique(left.cells).tolist():
            found[left.rows[left.of(cell)]] = not self._outlook(known, left, cell).stopped
        again = able & (known.candidates.repeats > 0)
        if again.any():
            cells = known.candidates.cells
            found |= again & (np.isin(cells, cells[found]) | np.isin(known.candidates.duplicates, finalists(known)))
        return found

    def chance(self, known: Known, rows: Ints, cell: int) -> Floats:  # noqa: ARG002
        """Per row, the probability that its measurement beats its cell's best by more than the tolerance."""
        return self._left(known, rows).chances

    def outlook(self, known: Known, cell: int) -> Outlook:
        """Whether the cell stops, and how sure that is."""
        c = known.candidates
        rows = np.flatnonzero((c.cells == cell) & (c.repeats == 0) & ~known.begun & ~known.infeasible)
        return self._outlook(known, self._left(known, rows), cell, sure=True)

    def _left(self, known: Known, rows: Ints) -> _Left:
        beliefs, cells = known.beliefs(), known.candidates.cells[rows]
        works, mean = beliefs.success(rows), beliefs.log_rates(rows)
        better = works * beliefs.undisturbed(rows)
        some = np.isfinite(known.best[cells])
        best = np.where(some, known.best[cells], mean)
        gains = expected_improvement(mean, beliefs.spreads(rows, measured=False), best) * better
        above = probability_above(mean, beliefs.spreads(rows, measured=True), best + float(np.log1p(self.tolerance)))
        gains, above = np.where(some, gains, FIRST_GAIN * works), np.where(some, above * better, works)
        return _Left(rows, cells, mean, works, gains, above)

    def _outlook(self, known: Known, left: _Left, cell: int, *, sure: bool = False) -> Outlook:
        """``sure``: work out how sure it is, too."""
        mine = left.of(cell)
        if not len(mine):
            return Outlook(True, 0.0, 1.0, ())
        if known.tries[cell] < self.min_tries:
            return Outlook(False, np.inf, 0.0, ())
        gains = left.gains[mine]
        if float(gains.max()) > self.least_gain:
            return Outlook(False, float(gains.max()), 0.0, ())
        excluded = tuple(
            (axis, value, float(left.chances[at].max())) for axis, value, at in untried_values(known, left, cell)
        )
        if any(chance > self.max_probability for _, _, chance in excluded):
            return Outlook(False, float(gains.max()), 0.0, excluded)
        if float(gains.sum()) <= self.least_gain:  # the gain of the best of several is at most the sum of their gains
            return Outlook(True, float(gains.sum()), max(0.0, 1 - float(left.chances[mine].sum())), excluded)
        if not np.isfinite(known.best[cell]):
            return Outlook(False, float(gains.max()), 0.0, excluded)
        top = mine[np.argsort(-gains, kind="stable")[:MOST_TOGETHER]]
        covariance = known.beliefs().covariance(left.rows[top])
        several = left.means[top], covariance, left.works[top], float(known.best[cell])
        if not sure:
            gain = gain_together(*several)
            return Outlook(gain <= self.least_gain, gain, 0.0, excluded)
        gain, above = together(*several, float(np.log1p(self.tolerance)))
        return Outlook(gain <= self.least_gain, gain, 1 - above, excluded)

    def _in_cell(self, known: Known, left: _Left, cell: int) -> Pick | None:
        if self._outlook(known, left, cell).stopped:
            return None
        mine = left.of(cell)
        if not np.isfinite(known.best[cell]):
            at = int(mine[int(np.argmax(left.means[mine] + np.log(np.maximum(left.works[mine], 1e-9))))])
            rate = float(np.exp(left.means[at]))
            return Pick(int(left.rows[at]), f"{rate:,.0f} tokens/s/GPU predicted, {left.works[at]:.0%} likely to work")
        per_second = left.gains[mine] / known.candidates.expected_s[left.rows[mine]]
        at = int(mine[int(np.argmax(per_second))])
        if left.gains[at] <= self.least_gain:
            at = self._untried_likeliest(known, left, cell, at)
        why = f"{left.chances[at]:.0%} likely to beat its cell's best by over {self.tolerance:.0%}"
        return Pick(int(left.rows[at]), why)

    def _untried_likeliest(self, known: Known, left: _Left, cell: int, otherwise: int) -> int:
        """The likeliest run of an axis value that is neither tried nor excluded; ``otherwise`` if there is none."""
        untried = [at for _, _, places in untried_values(known, left, cell) for at in places.tolist()]
        likely = max(untried, key=lambda at: float(left.chances[at]), default=otherwise)
        return likely if left.chances[likely] > self.max_probability else otherwise


def by_turn(known: Known, left: _Left, in_turn: int) -> Ints:
    """Cells with a run left: those with fewer runs than ``in_turn`` by their number; then by the greatest gain."""
    present = np.unique(left.cells)
    early = known.tries[present] < in_turn
    gains = np.zeros(len(known.best))
    np.maximum.at(gains, left.cells, left.gains)
    found: Ints = present[np.lexsort((known.tries[present], np.where(early, 0, -gains[present]), ~early))]
    return found


def untried_values(known: Known, left: _Left, cell: int) -> list[tuple[str, str, Ints]]:
    """(axis, value, places that have it) of each value that no begun run of the cell has."""
    c, mine, found = known.candidates, left.of(cell), []
    begun = np.flatnonzero(known.begun & (c.cells == cell))
    for axis, codes in c.main_axes.items():
        here, number = codes[left.rows[mine]], int(codes.max()) + 1
        untried = np.bincount(here, minlength=number).astype(bool)
        untried[codes[begun]] = False
        for code in np.flatnonzero(untried).tolist():
            places = mine[here == code]
            column = c.columns[axis]
            found.append((axis, str(column if np.ndim(column) == 0 else column[left.rows[places[0]]]), places))
    return found


def _repeat(known: Known, rows: Ints) -> Pick | None:
    """A repeat of a finalist, where the plan has repeats: the least repeated first."""
    if not len(rows):
        return None
    rows = rows[np.isin(known.candidates.duplicates[rows], finalists(known))]
    if not len(rows):
        return None
    row = int(rows[int(np.argmin(known.candidates.repeats[rows]))])
    return Pick(row, f"repeat of a finalist: within {NEAR:.0%} of its cell's best, or one of the best two")
