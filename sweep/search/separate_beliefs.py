"""Beliefs of a search that does not transfer: what one cell's runs showed says nothing about another cell. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sweep.search.beliefs import Beliefs, End
from sweep.search.candidates import Candidates
from sweep.search.gaussian import Floats, Ints


class SeparateBeliefs:
    """As ``Beliefs``, of each cell by its own ends alone. Mutable: ``learn`` adds ends, in their order."""

    def __init__(self, candidates: Candidates) -> None:
        self._cells = candidates.cells
        self._place = np.zeros(len(candidates), dtype=np.int64)
        """of each candidate among those of its cell"""
        self._of: list[Beliefs] = []
        for rows, own in candidates.by_cell:
            self._place[rows] = np.arange(len(rows))
            self._of.append(Beliefs(own))

    def learn(self, ends: Sequence[tuple[int, End]]) -> None:
        """Further ends, in their order."""
        by_cell: dict[int, list[tuple[int, End]]] = {}
        for index, end in ends:
            by_cell.setdefault(int(self._cells[index]), []).append((int(self._place[index]), end))
        for cell, own in by_cell.items():
            self._of[cell].learn(own)

    def log_rates(self, rows: Ints) -> Floats:
        """Mean of the logarithm of tokens/s/GPU."""
        return self._each(rows, lambda beliefs, own: beliefs.log_rates(own))

    def spreads(self, rows: Ints, *, measured: bool) -> Floats:
        """Standard deviation of the same; of a further measurement, or of the rate without its noise."""
        return self._each(rows, lambda beliefs, own: beliefs.spreads(own, measured=measured))

    def covariance(self, rows: Ints) -> Floats:
        """Of the logarithms of rates without noise, among some candidates: 0 between cells."""
        found = np.zeros((len(rows), len(rows)))
        for cell in np.unique(self._cells[rows]).tolist():
            at = np.flatnonzero(self._cells[rows] == cell)
            found[np.ix_(at, at)] = self._of[cell].covariance(self._place[rows[at]])
        return found

    def success(self, rows: Ints) -> Floats:
        """Probability that a run works."""
        return self._each(rows, lambda beliefs, own: beliefs.success(own))

    def undisturbed(self, rows: Ints) -> Floats:
        """Probability that nothing else slows a run down."""
        return self._each(rows, lambda beliefs, own: beliefs.undisturbed(own))

    def _each(self, rows: Ints, ask: Callable[[Beliefs, Ints], Floats]) -> Floats:
        found = np.zeros(len(rows))
        for cell in np.unique(self._cells[rows]).tolist():
            at = np.flatnonzero(self._cells[rows] == cell)
            found[at] = ask(self._of[cell], self._place[rows[at]])
        return found
