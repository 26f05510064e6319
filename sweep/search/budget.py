"""What a search may spend: runs, node-hours, wall time; in all or in each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.search.candidates import Bools
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known


@dataclass(frozen=True, kw_only=True)
class Budget:
    """BudgetLimits of a search, which are positive; None means no limit."""

    runs: int | None = None
    runs_per_cell: int | None = None
    node_hours: float | None = None
    node_hours_per_cell: float | None = None
    wall_s: float | None = None
    """seconds since the first run began"""
    repeats: int | None = None
    """runs of a configuration that the grid asks for; those beyond are re-measured top configurations, which have a
    limit of their own (``sweep.search.remeasure.room``): ``runs`` and ``runs_per_cell`` do not hold for them"""

    @classmethod
    def of(cls, limits: Mapping[str, Any], runs_total: int) -> Budget:
        """The budget of a grid (``sweep.inputs.grid.BudgetLimits``); ``share``: fraction of all runs, at least one."""
        values = {key: value for key, value in limits.items() if value is not None}
        share = values.pop("share", None)
        if share is not None:
            values["runs"] = min(values.get("runs", runs_total), max(1, int(share * runs_total)))
        if "wall_time" in values:
            values["wall_s"] = values.pop("wall_time")
        return cls(**values)

    @property
    def whole(self) -> bool:
        """Whether cells share one limit, so that one could spend what another needs."""
        return self.runs is not None or self.node_hours is not None

    def affordable(self, known: Known, seconds: Floats, elapsed_s: float) -> Bools:
        """Which runs still fit the budget. ``seconds``: each run's measured or expected duration."""
        c = known.candidates
        hours = c.nodes * seconds / 3600
        spent = np.bincount(c.cells[known.begun], hours[known.begun], minlength=len(c.cell_names))
        free: Bools = ~known.begun
        again, tries = self._again(known)
        if self.wall_s is not None:
            free &= elapsed_s + seconds <= self.wall_s
        if self.runs is not None and int(tries.sum()) >= self.runs:
            free &= again
        if self.runs_per_cell is not None:
            free &= again | (tries < self.runs_per_cell)[c.cells]
        if self.node_hours is not None:
            free &= spent.sum() + hours <= self.node_hours
        if self.node_hours_per_cell is not None:
            free &= spent[c.cells] + hours <= self.node_hours_per_cell
        return free

    def enough_for_all(self, known: Known, seconds: Floats, free: Bools) -> bool:
        """Whether each cell is certain to have a share, whichever of the ``free`` runs are open.

        Fewer open runs leave more for other cells; so it is certain if that is so with all of them open. In node-hours
        it never is, since the price of a cell's run is the mean of the open ones.
        """
        if self.node_hours is not None or self.node_hours_per_cell is not None:
            return False
        first = free & ~self._again(known)[0]
        left = self.shares(known, seconds, first)
        return bool((left[known.candidates.cells[first]] > 0).all())

    def shares(self, known: Known, seconds: Floats, open_: Bools) -> Ints:
        """How many further runs each cell may start, of the ``open_`` ones.

        The rest of a limit that cells share goes to the cells with the fewest runs first, as in their turns: otherwise
        the node count that the cluster allocates first would spend it all.
        """
        c, cells = known.candidates, len(known.candidates.cell_names)
        hours = c.nodes * seconds / 3600
        again, tries = self._again(known)
        many = np.maximum(np.bincount(c.cells[open_], minlength=cells), 1)
        price = np.bincount(c.cells[open_], hours[open_], minlength=cells) / many
        room = np.bincount(c.cells[open_ & ~again], minlength=cells)
        spent = np.bincount(c.cells[known.begun], hours[known.begun], minlength=cells)
        if self.runs_per_cell is not None:
            room = np.minimum(room, np.maximum(self.runs_per_cell - tries, 0))
        if self.runs is not None:
            room = _levelled(tries, room, np.ones(cells), self.runs - float(tries.sum()))
        room += np.bincount(c.cells[open_ & again], minlength=cells)
        if self.node_hours_per_cell is not None:
            left = np.maximum(self.node_hours_per_cell - spent, 0)
            room = np.minimum(room, np.floor(left / np.maximum(price, 1e-12)).astype(np.int64))
        if self.node_hours is not None:
            room = _levelled(known.tries, room, price, self.node_hours - float(spent.sum()))
        return room

    def _again(self, known: Known) -> tuple[Bools, Ints]:
        """(which runs are re-measured top configurations, the other runs that began per cell)."""
        c = known.candidates
        if self.repeats is None:
            return np.zeros(len(c), dtype=bool), known.tries
        return c.repeats >= self.repeats, known.tries_of_repeat[: self.repeats].sum(axis=0)


def _levelled(tries: Ints, room: Ints, price: Floats, left: float) -> Ints:
    """Number of the remaining runs per cell, so that all cells get as near as possible to the same number of tries.

    The rest, too few for all cells, goes to the cells with the fewest tries. A cell whose next run costs more than what
    is left holds up no other.
    """
    room = np.where(price <= left, room, 0)

    def upto(level: int) -> Ints:
        return np.minimum(np.maximum(level - tries, 0), room)

    low, high = 0, int((tries + room).max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        if float((upto(middle) * price).sum()) <= left:
            low = middle
        else:
            high = middle - 1
    found = upto(low)
    left -= float((found * price).sum())
    for cell in np.argsort(tries + found, kind="stable").tolist():
        if upto(low + 1)[cell] > found[cell] and price[cell] <= left:
            found[cell] += 1
            left -= float(price[cell])
    return found
