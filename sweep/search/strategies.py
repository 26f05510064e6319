"""Which run next: search strategies by name. Each is a pure function of the observations and of what may start now.

A further strategy is a class with ``pick`` and an entry in ``sweep.plugins.STRATEGY``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sweep.contract import FREE, LAYOUT_NUMBERS
from sweep.physics.columns import read
from sweep.plugins import STRATEGY
from sweep.search.candidates import Bools, Candidates
from sweep.search.gaussian import Ints
from sweep.search.observations import Known

AXES = tuple(name for name in FREE if name in LAYOUT_NUMBERS)
HURTS = float(np.log(0.8))
"""effect (logarithm of the rate against the base) below which a value is dropped"""


@dataclass(frozen=True)
class Pick:
    """A run to start, by its index among the candidates, and the reason."""

    index: int
    why: str


class Strategy(Protocol):
    """The interface of a search strategy."""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The run to start now among the ``free`` ones (not begun, and ready to start); None if none is promising.

        A strategy has no state other than what follows from ``known``.
        """
        ...

    def open(self, known: Known, free: Bools) -> Bools:
        """The ``free`` runs that it may still pick, as known now: no others are picked.

        In a cell there is an open run if and only if ``pick`` has one for that cell.
        """
        ...


def strategy_named(name: str, **settings: float) -> Strategy:
    """The strategy. ``settings``: `miss`, of guided. Raises SweepError for an unknown name."""
    strategy: Strategy = STRATEGY.find(name)(**settings)
    return strategy


class Exhaustive:
    """Every run, cells in turn, in the plan's order: the most promising first, and those last that cannot fit."""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The next that is free and feasible; if there is none, the next that is free."""
        able = free & ~known.infeasible
        return _next(known, able, "next in the plan") or _next(known, free, "next in the plan; it cannot fit")

    def open(self, known: Known, free: Bools) -> Bools:  # noqa: ARG002
        """All."""
        return free


class Prune:
    """The same, except those that cannot fit or need more than a run that ran out of memory."""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The next that is free and feasible."""
        return _next(known, self.open(known, free), "next in the plan of those that can fit")

    def open(self, known: Known, free: Bools) -> Bools:
        """The feasible ones."""
        return free & ~known.infeasible


def _next(known: Known, free: Bools, why: str) -> Pick | None:
    """The first run of the cell of which the fewest were begun: runs that were ruled out since take no turn of theirs.
    Repeats come last.
    """
    places, c = np.flatnonzero(free), known.candidates
    if not len(places):
        return None
    repeats = c.repeats[places]
    places = places[repeats == repeats.min()]
    begun = known.tries_of_repeat[repeats.min()]
    return Pick(int(places[np.argmin(begun[c.cells[places]])]), why)


class OneAxisFirst:
    """The playbook's three steps, each cell independently, cells in turn.

    A cell's first success is its base. Runs that differ from it in one axis come next; a value that costs over a fifth
    is dropped; the rest are combined, the greatest sum of single effects first.
    """

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The next run, from the cell with the fewest runs that has one."""
        open_ = free & ~known.infeasible
        cells = known.candidates.cells
        present = np.unique(cells[open_])
        for cell in present[np.argsort(known.tries[present], kind="stable")]:
            found = _in_cell(known, np.flatnonzero(cells == cell), open_)
            if found is not None:
                return found
        return None

    def open(self, known: Known, free: Bools) -> Bools:
        """All feasible runs in cells that have a next run: dropped values are known only during the search."""
        able = free & ~known.infeasible
        found: Bools = np.zeros(len(known.candidates), dtype=bool)
        cells = known.candidates.cells
        for cell in np.unique(cells[able]):
            mine = cells == cell
            if _in_cell(known, np.flatnonzero(mine), able) is not None:
                found |= able & mine
        return found


def _in_cell(known: Known, rows: Ints, open_: Bools) -> Pick | None:
    values, free = _values(known.candidates, rows), open_[rows]
    rates = known.log_rates[rows]
    measured = np.flatnonzero(~np.isnan(rates))
    if not len(measured):
        return Pick(int(rows[int(np.argmax(free))]), "the first feasible run, as the base of its cell")
    base = int(measured[0])  # in the plan's order: the most promising success
    differs = values != values[base]
    single = free & (differs.sum(axis=1) == 1)
    if single.any():
        place = int(np.argmax(single))
        return Pick(
            int(rows[place]), f"{(*AXES, 'recompute')[int(np.argmax(differs[place]))]} alone, against the cell's base"
        )
    gains = rates - rates[base]
    effects = np.zeros(values.shape)  # of each run's value of each axis alone; 0 if not measured
    alone = (differs.sum(axis=1) == 1) & ~np.isnan(gains)
    for axis in range(values.shape[1]):
        for one in np.flatnonzero(alone & differs[:, axis]):
            same = values[:, axis] == values[one, axis]
            effects[same, axis] = gains[one]
    score = np.where(free & (effects.min(axis=1) > HURTS), effects.sum(axis=1), -np.inf)
    place = int(np.argmax(score))
    return Pick(int(rows[place]), "combination of values that help alone") if np.isfinite(score[place]) else None


def _values(candidates: Candidates, rows: Ints) -> Ints:
    """(runs, axes) of the rows; recomputation as an axis of its own."""
    columns = candidates.columns
    parts = [np.broadcast_to(read(columns, name), len(candidates))[rows] for name in AXES]
    parts.append(np.unique(np.asarray(columns["recompute"])[rows], return_inverse=True)[1])
    return np.stack(parts, axis=1).astype(np.int64)
