"""A Gaussian posterior of thousands of candidates in parts, each of which is computed when it is asked for. Pure.

A search asks for the runs of one number of nodes at a time. What all observations say of one part does not depend on
the other parts' candidates, only on those that were observed: so a part that is not asked for costs nothing, and one
that is asked for late is what it had been early, to the last bit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from sweep.search.gaussian import Floats, GaussianPosterior, Ints, Observation, Observed


class Prior(Protocol):
    """Means and covariances before anything is observed."""

    def moments(self, part: int) -> tuple[Floats, Floats]:
        """Mean and variance of a part's candidates."""

    def between(self, observed: Ints, part: int) -> Floats:
        """(observed, a part's candidates): covariances."""

    def within(self, rows: Ints) -> Floats:
        """Covariances among some candidates."""


class Parts:
    """Which candidates are in which part."""

    def __init__(self, of: Ints) -> None:
        """``of``: number of each candidate's part, from 0."""
        self.of = of
        self.rows = [np.flatnonzero(of == part) for part in range(int(of.max(initial=-1)) + 1)]
        self.places = np.zeros(len(of), dtype=np.int64)
        """of each candidate among those of its part"""
        for rows in self.rows:
            self.places[rows] = np.arange(len(rows))

    def split(self, rows: Ints) -> list[tuple[int, Ints]]:
        """(part, which of the rows are in it)."""
        of = self.of[rows]
        return [(part, np.flatnonzero(of == part)) for part in np.flatnonzero(np.bincount(of)).tolist()]


class PosteriorInParts:
    """Mean and covariance of a number per candidate. Mutable: ``observe`` conditions it."""

    def __init__(self, parts: Parts, prior: Prior, first: Ints, observed: Observed) -> None:
        """``first``: the candidates that were ``observed`` at once."""
        self._parts, self._prior, self._first, self._observed = parts, prior, first, observed
        self._posteriors: dict[int, GaussianPosterior] = {}
        self._further: list[tuple[int, Observation]] = []
        self._taught: dict[int, int] = {}
        """how many of these each part's posterior is given"""

    def moments(self, rows: Ints) -> tuple[Floats, Floats]:
        """Mean and variance of some candidates."""
        mean, variance = np.empty(len(rows)), np.empty(len(rows))
        for part, at in self._parts.split(rows):
            posterior, places = self._of(part), self._parts.places[rows[at]]
            mean[at], variance[at] = posterior.mean[places], posterior.variance[places]
        return mean, variance

    def covariance(self, rows: Ints) -> Floats:
        """Among some candidates."""
        explained = np.empty((len(self._first) + len(self._further), len(rows)))
        for part, at in self._parts.split(rows):
            explained[:, at] = self._of(part).explained(self._parts.places[rows[at]])
        found: Floats = self._prior.within(rows) - explained.T @ explained
        return found

    def observe(self, index: int, value: float, noise: float) -> None:
        """Condition on candidate ``index`` having ``value``, with Gaussian error of variance ``noise``."""
        part, place = int(self._parts.of[index]), int(self._parts.places[index])
        self._further.append((index, self._of(part).observation(place, value, noise)))

    def _of(self, part: int) -> GaussianPosterior:
        if part not in self._posteriors:
            posterior = GaussianPosterior(*self._prior.moments(part), room=len(self._first) + len(self._further) + 1)
            if len(self._first):
                posterior.learn_first(self._prior.between(self._first, part), self._observed)
            self._posteriors[part], self._taught[part] = posterior, 0
        posterior, further = self._posteriors[part], self._further[self._taught[part] :]
        if further:
            indices = np.array([index for index, _ in further], dtype=np.int64)
            for covariance, (_, seen) in zip(self._prior.between(indices, part), further, strict=True):
                posterior.learn(covariance, seen)
            self._taught[part] = len(self._further)
        return posterior
