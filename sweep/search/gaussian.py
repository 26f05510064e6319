"""The Gaussian posterior of one number per candidate, conditioned on observations one by one. Pure.

Conditioning on an observation costs one pass over the candidates and earlier observations, so that a search can afford
the exact posterior of thousands of candidates after each result.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

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
        self.observations = 0
        """how many it is conditioned on"""

    def learn_first(self, covariance: Floats, observed: Observed) -> None:
        """Condition on the first observations. ``covariance``: (observations, candidates)."""
        inverse = observed.inverse
        for first in range(0, len(inverse), ROWS_AT_ONCE):
            part = slice(first, min(first + ROWS_AT_ONCE, len(inverse)))
            rows = np.matmul(inverse[part, : part.stop], covariance[: part.stop], out=self._rows[part])
            self.mean += observed.innovations[part] @ rows
            self.variance -= np.einsum("ij,ij->j", rows, rows)
        self.observations = len(inverse)

    def observe(self, index: int, value: float, noise: float) -> None:
        """Condition on candidate ``index`` having ``value``, with Gaussian error of variance ``noise``."""
        assert self._column is not None
        self.learn(self._column(index), self.observation(index, value, noise))

    def observation(self, index: int, value: float, noise: float) -> Observation:
        """What it says that candidate ``index`` has ``value``, with Gaussian error of variance ``noise``."""
        spread = math.sqrt(max(float(self.variance[index]), 0.0) + noise)
        return Observation(
            self._rows[: self.observations, index].copy(), spread, (value - float(self.mean[index])) / spread
        )

    def learn(self, covariance: Floats, seen: Observation) -> None:
        """Condition on one more observation. ``covariance``: of the candidates with the observed one, a priori."""
        if self.observations == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty((max(len(self._rows), ROOM), len(self.mean)))])
        row = np.subtract(covariance, seen.shared @ self._rows[: self.observations], out=self._rows[self.observations])
        row /= seen.spread
        self.mean += row * seen.innovation
        self.variance -= row**2
        self.observations += 1

    def explained(self, indices: Ints) -> Floats:
        """(observations, some candidates): the products of two columns add up to what they explain of a covariance."""
        return self._rows[: self.observations, indices]


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
