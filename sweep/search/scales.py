"""By how much step times differ from what physics says: spreads, and the most probable ones by measurements. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from sweep.physics.constants import NOISE, UNEXPLAINED
from sweep.search.gaussian import Floats, Ints, bordered, log_evidence

PRIOR_OF_SCALES, PRIOR_OF_SIZES = 0.5, 1.6
"""standard deviations of the logarithms of each scale, and of the factor of each number of nodes: a shared network may
disturb nearly all runs on many nodes and none on few"""
STEP = 1.5
"""factor between two values of a scale that are compared"""
LEAST_NOISE, LEAST_PHYSICS = 0.003, 1.0
COMMON = 5
"""scales that all numbers of nodes share"""


@dataclass(frozen=True)
class Scales:
    """Standard deviations of the logarithm of time. The priors are log-normal about these."""

    physics: float = 1.0
    """by how much the spreads of the constants are too narrow. Never below 1: runs that agree with the model test few
    factors"""
    single: float = 0.15
    """of the effect of one axis value that the formulas lack. With all axes 0.2 to 0.4: as wide as the errors of
    published analytical models on clusters that they were not fitted to"""
    paired: float = 0.07
    joint: float = 0.05
    """of a layout by itself"""
    noise: float = 0.02
    """of repeated runs: published repetitions of training benchmarks differ by 0.5 to 5 %"""
    by_size: tuple[float, ...] = ()
    """per number of nodes, the factor of ``joint``: what disturbs runs differs between sizes of the cluster"""

    @classmethod
    def small(cls, variances: Floats) -> Scales:
        """Where a trainer has a profile: ``UNEXPLAINED`` in all, a third by order of ``variances`` at scales of 1."""
        single, paired, joint = (UNEXPLAINED.spread / np.sqrt(3 * np.maximum(variances, 1.0))).tolist()
        return cls(1.0, single, paired, joint, NOISE.spread)

    @property
    def values(self) -> tuple[float, ...]:
        """In the order of the fields, then per number of nodes."""
        return (self.physics, self.single, self.paired, self.joint, self.noise, *self.by_size)

    @classmethod
    def of(cls, values: Sequence[float]) -> Scales:
        """``values``: as ``values`` states them."""
        physics, single, paired, joint, noise, *by_size = values
        return cls(physics, single, paired, joint, noise, tuple(by_size))

    def residual(self, orders: Floats, left: Any, right: Any) -> Floats:
        """Covariance of the residuals. ``orders``: by order of the effect; ``left``, ``right``: number of the size."""
        factors = np.array(self.by_size)
        found: Floats = orders[2] * (self.joint**2 * (factors[left] * factors[right]))
        scaled = np.empty_like(found)
        found += np.multiply(orders[0], self.single**2, out=scaled)
        found += np.multiply(orders[1], self.paired**2, out=scaled)
        return found


USUAL = Scales()


class Evidence:
    """The log evidence of measurements for many scales: their covariance is a sum of parts, each times a scale."""

    def __init__(self, error: Floats, within: Floats, physics: Floats, sizes: Ints, extra: Floats) -> None:
        """``error``: of log times. ``within``, ``physics``: covariances of residuals by order, and of factors, at
        scales of 1. ``extra``: variance besides the noise's.
        """
        self.sizes, number = sizes, len(error)
        self._parts = np.zeros((5, number + 1, number + 1))
        self._parts[:3, :number, :number], self._parts[3, :number, :number] = within, physics
        self._parts[4] = bordered(np.zeros((number, number)), error)
        self._joint, self._extra = within[2].copy(), extra
        self._by_size: tuple[float, ...] = ()

    def of(self, values: Sequence[float]) -> float:
        """``values``: of scales, in their order."""
        physics, single, paired, joint, noise = values[:COMMON]
        number, by_size = len(self.sizes), tuple(values[COMMON:])
        if by_size != self._by_size:
            factors = np.array(by_size)[self.sizes]
            np.multiply(self._joint, factors[:, None] * factors, out=self._parts[2, :number, :number])
            self._by_size = by_size
        weights = np.array([single, paired, joint, physics, 1.0]) ** 2
        found = (weights @ self._parts.reshape(len(self._parts), -1)).reshape(number + 1, number + 1)
        found.flat[: -1 : number + 2] += noise**2 + self._extra
        return log_evidence(found)


def most_evident(first: Scales, evidence: Evidence, expected: Scales = USUAL) -> Scales:
    """The scales of most evidence, found one after another, in steps of a factor."""
    usual = replace(expected, by_size=(1.0,) * len(first.by_size)).values
    wide = [PRIOR_OF_SCALES] * COMMON + [PRIOR_OF_SIZES] * len(first.by_size)
    away = [math.log(one / other) / w for one, other, w in zip(first.values, usual, wide, strict=True)]
    further = [math.log(STEP) / w for w in wide]

    def value(values: Sequence[float], at: Sequence[int]) -> float:
        """``at``: how many steps each scale is from the first."""
        off = sum((one + step * more) ** 2 for one, step, more in zip(away, at, further, strict=True))
        return evidence.of(values) - 0.5 * off

    best, at = first.values, (0,) * len(away)
    most, compared = value(best, at), {at}
    """what was compared once is not better the next time"""
    places, before = [*range(COMMON), *(COMMON + np.unique(evidence.sizes)).tolist()], None
    while before != at:
        before = at
        for place, (step, factor) in product(places, ((1, STEP), (-1, 1 / STEP))):
            while True:
                there = (*at[:place], at[place] + step, *at[place + 1 :])
                values = (*best[:place], best[place] * factor, *best[place + 1 :])
                if there in compared or values[0] < LEAST_PHYSICS or values[4] < LEAST_NOISE:
                    break
                compared.add(there)
                found = value(values, there)
                if not found > most:  # nor where there is no evidence
                    break
                best, most, at = values, found, there
    return Scales.of(best)
