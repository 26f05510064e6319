"""The Gaussian posterior of one number per candidate, conditioned on observations one by one. Pure.

Conditioning on an observation costs one pass over the candidates and earlier observations, so that a search can afford
the exact posterior of thousands of candidates after each result.

Thousands of candidates are in parts, each of which is computed when it is asked for: a search asks for the runs of one
number of nodes at a time. What all observations say of one part does not depend on the other parts' candidates, only on
those that were observed: so a part that is not asked for costs nothing, and one that is asked for late is what it had
been early, to the last bit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


LEAST_LEARNED = 0.02
"""an observation that would narrow the variance by a smaller share is left out: each one costs time"""
FREEDOM = 5.0
FAR = -3.0
"""spreads below 0 from which a normal distribution's density over its tail is computed by Sampford's bound (1953,
Annals of Mathematical Statistics 24): both are 0 to a computer in the end"""
ROOM = 128
"""further observations before the array of them is made larger"""
ROWS_AT_ONCE = 32
"""so many rows of the factor are multiplied at once: right of the last one's diagonal all are zero"""


@dataclass(frozen=True)
class Observation:
    """What one more observation says, of whichever candidates."""

    shared: Floats
    """its covariance with each earlier one, less what those before that one explain, over that one's spread"""
    spread: float
    """of what was to be expected"""
    innovation: float
    """how far it is off that, over the spread"""


@dataclass(frozen=True)
class Observed:
    """What many observations at once say, of whichever candidates."""

    inverse: Floats
    """of the lower root of their covariance"""
    innovations: Floats
    """what each is off what those before it had let expect, over the spread of that"""

    @classmethod
    def of(cls, covariance: Floats, error: Floats) -> Observed:
        """``covariance``: of the observations, with their noise; ``error``: their values less the means."""
        inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        return cls(inverse, inverse @ error)


class GaussianPosterior:
    """Mean and covariance of a number per candidate. Mutable: ``observe`` conditions it.

    ``column(i)``: the prior covariance of all candidates with candidate i.
    """

    def __init__(
        self, mean: Floats, variance: Floats, column: Callable[[int], Floats] | None = None, room: int = ROOM
    ) -> None:
        self.mean, self.variance = mean.copy(), variance.copy()
        self._column = column
        self._rows: Floats = np.empty((room, len(mean)))
        self._used = 0

    def learn_first(self, covariance: Floats, observed: Observed) -> None:
        """Condition on the first observations. ``covariance``: (observations, candidates)."""
        inverse = observed.inverse
        for first in range(0, len(inverse), ROWS_AT_ONCE):
            part = slice(first, min(first + ROWS_AT_ONCE, len(inverse)))
            rows = np.matmul(inverse[part, : part.stop], covariance[: part.stop], out=self._rows[part])
            self.mean += observed.innovations[part] @ rows
            self.variance -= np.einsum("ij,ij->j", rows, rows)
        self._used = len(inverse)

    def observe(self, index: int, value: float, noise: float) -> None:
        """Condition on candidate ``index`` having ``value``, with Gaussian error of variance ``noise``."""
        assert self._column is not None
        self.learn(self._column(index), self.observation(index, value, noise))

    def observation(self, index: int, value: float, noise: float) -> Observation:
        """What it says that candidate ``index`` has ``value``, with Gaussian error of variance ``noise``."""
        spread = math.sqrt(max(float(self.variance[index]), 0.0) + noise)
        return Observation(self._rows[: self._used, index].copy(), spread, (value - float(self.mean[index])) / spread)

    def learn(self, covariance: Floats, seen: Observation) -> None:
        """Condition on one more observation. ``covariance``: of the candidates with the observed one, a priori."""
        if self._used == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty((max(len(self._rows), ROOM), len(self.mean)))])
        row = np.subtract(covariance, seen.shared @ self._rows[: self._used], out=self._rows[self._used])
        row /= seen.spread
        self.mean += row * seen.innovation
        self.variance -= row**2
        self._used += 1

    @property
    def observations(self) -> int:
        """How many it is conditioned on."""
        return self._used

    def explained(self, indices: Ints) -> Floats:
        """(observations, some candidates): the products of two columns add up to what they explain of a covariance."""
        return self._rows[: self._used, indices]


def bordered(covariance: Floats, values: Floats) -> Floats:
    """A covariance with its values as a further row and column: their root holds what the log evidence needs."""
    size = len(values)
    found = np.empty((size + 1, size + 1))
    found[:size, :size], found[size, :size], found[:size, size] = covariance, values, values
    found[size, size] = sys.float_info.max  # of any size: it changes no other element of the root
    return found


def log_evidence(bordered: Floats) -> float:
    """Log density of values that are jointly normal about 0 (without the constant), by ``bordered``."""
    try:
        root = np.linalg.cholesky(bordered)
    except np.linalg.LinAlgError:
        return -math.inf
    whitened = root[-1, :-1]  # the inverse of the covariance's own root, times the values
    return -0.5 * float(whitened @ whitened) - float(np.log(root.diagonal()[:-1]).sum())


def normal_cdf(z: Floats) -> Floats:
    """P(x <= z) of a standard normal x, to 1e-7 (Abramowitz and Stegun, 7.1.26)."""
    x = np.abs(z) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * np.exp(-(x**2))
    found: Floats = np.where(z > 0, 1 - tail, tail)
    return found


def expected_improvement(mean: Floats, spread: Floats, threshold: Floats) -> Floats:
    """E[max(x - threshold, 0)], x as in ``exceeds``."""
    width = math.sqrt((FREEDOM - 2) / FREEDOM) * spread
    z = (mean - threshold) / width
    more = 1 + z**2 / FREEDOM
    density = 8 / (3 * math.pi * math.sqrt(FREEDOM)) / more**3
    found: Floats = width * (FREEDOM / (FREEDOM - 1) * more * density + z * exceeds(mean, spread, threshold))
    return found


def exceeds(mean: Floats, spread: Floats, threshold: Floats) -> Floats:
    """P(x > threshold). Spreads are uncertain themselves: x has the tails of Student's t with 5 degrees of freedom, and
    this standard deviation.
    """
    z = (mean - threshold) / (math.sqrt((FREEDOM - 2) / FREEDOM) * spread)
    tangent, cosine_squared = z / math.sqrt(FREEDOM), 1 / (1 + z**2 / FREEDOM)
    found: Floats = 0.5 + (np.arctan(tangent) + tangent * cosine_squared * (1 + 2 / 3 * cosine_squared)) / math.pi
    return found


def one_sided(mean: float, variance: float, share: float) -> tuple[float, float, float]:
    """Learning that x > 0, or that something else happened: the observation (value, noise) that it amounts to.

    x is normal. The event has probability 1 where x > 0, and ``share`` elsewhere. Returns (value, variance of its
    error, probability that x > 0 given the event); a variance of infinity where nothing is learned. The observation has
    the moments of the true posterior (assumed-density filtering, as in expectation propagation, Minka 2001).
    """
    spread = math.sqrt(max(variance, 1e-12))
    z = mean / spread
    above = float(normal_cdf(np.float64(z)))
    density = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    whole = share + (1 - share) * above
    slope = (1 - share) * density / max(whole, 1e-12)  # derivative of log whole by z
    if share == 0 and z < FAR:
        slope, above, whole = (math.sqrt(z**2 + 8) - 3 * z) / 4, 1.0, 1.0
    curvature = slope * (slope + z)
    if curvature < LEAST_LEARNED:
        return mean, math.inf, above / max(whole, 1e-12)
    noise = variance * (1 / min(curvature, 0.999) - 1)
    return mean + spread * slope / min(curvature, 0.999), noise, above / max(whole, 1e-12)


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
