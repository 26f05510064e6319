"""Which run next: search strategies by name. Each is a pure function of the observations and of what may start now.

A further strategy is a class with ``pick`` and an entry in ``sweep.plugins.STRATEGY``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sweep.plugins import STRATEGY

if TYPE_CHECKING:
    from sweep.search.candidates import Bools
    from sweep.search.observations import Known


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
