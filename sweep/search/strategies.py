"""Which run next: search strategies by name. Each is pure: what is known and what may start now, in; a pick, out.

A further strategy is a class with ``pick`` and an entry in ``sweep.plugins.STRATEGIES``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sweep.plugins import find_strategy

if TYPE_CHECKING:
    from sweep.search.candidates import Bools
    from sweep.search.observations import Known


@dataclass(frozen=True)
class Pick:
    """A run to be started, by its place among the candidates, and why."""

    index: int
    why: str


class Strategy(Protocol):
    """How a sweep is searched."""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The run to start now among the ``free`` ones (not begun, and fit to be started); None where none is worth it.

        A strategy may remember nothing but what follows from ``known``.
        """
        ...

    def open(self, known: Known, free: Bools) -> Bools:
        """The ``free`` runs that it may still ask for, as far as is known now: none is picked beside these.

        In a cell there is an open run if and only if ``pick`` has one for that cell.
        """
        ...


def strategy_named(name: str) -> Strategy:
    """The strategy. Raises SweepError where there is none of that name."""
    strategy: Strategy = find_strategy(name)()
    return strategy


class Exhaustive:
    """Every run, in the plan's order: the most promising of every cell first."""

    def pick(self, known: Known, free: Bools) -> Pick | None:  # noqa: ARG002
        """The first that is free."""
        return _first(free, "next in the plan")

    def open(self, known: Known, free: Bools) -> Bools:  # noqa: ARG002
        """All."""
        return free


class Prune:
    """Every run in the plan's order, but for what cannot fit or needs more than a run that ran out of memory."""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The first that is free and not hopeless."""
        return _first(self.open(known, free), "next in the plan of those that can fit")

    def open(self, known: Known, free: Bools) -> Bools:
        """Those that are not hopeless."""
        return free & ~known.infeasible


class InRandomOrder:
    """Every run, in an order that depends on nothing but the run_ids. A baseline to compare with."""

    def pick(self, known: Known, free: Bools) -> Pick | None:
        """The free run with the least digest."""
        rows = np.flatnonzero(free)
        if not len(rows):
            return None
        return Pick(int(rows[int(np.argmin(known.candidates.digests[rows]))]), "by chance")

    def open(self, known: Known, free: Bools) -> Bools:  # noqa: ARG002
        """All."""
        return free


def _first(free: Bools, why: str) -> Pick | None:
    place = int(np.argmax(free)) if len(free) else 0
    return Pick(place, why) if len(free) and free[place] else None
