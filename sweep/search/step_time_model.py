"""How step times depend on layouts: physics with uncertain factors, and what physics leaves out, fitted to some runs.

log time = log sum of parts * factors + effects + residual + noise. Parts, spreads of their factors and effects are
those of ``sweep.physics.prediction``, one set for all cells, so that neighbours in nodes and size inform each other.
The residual is a Gaussian process over layouts (``layout_kernel``). Its scales, the noise, and by how much the stated
spreads are too narrow or wide are the most probable ones given the measurements. So a layout keeps a wide spread as
long as the parts and axis values that it depends on were never measured. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sweep.physics.constants import TRAINER
from sweep.physics.prediction import FACTOR_SPREADS, Layouts, corrected
from sweep.search.gaussian import Floats, Ints, log_evidence
from sweep.search.surprises import SLAB, surprises

MOST_FOR_SCALES = 128
"""the scales of the residual are found from this many of them"""
SLOWDOWN = 1.0
"""standard deviation of the logarithm by which disturbed runs are slower: published ones take 1.5 to 20 times as
long"""
DISTURBED, DISTURBED_RUNS = 0.05, 20.0
"""prior share of runs that something else slowed down, and the number of runs that it counts as"""


@dataclass(frozen=True)
class Scales:
    """Standard deviations of the logarithm of time. The priors are log-normal about these, PRIOR_OF_SCALES wide."""

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

    @property
    def values(self) -> tuple[float, ...]:
        """In the order of the fields."""
        return (self.physics, self.single, self.paired, self.joint, self.noise)

    def times(self, name: str | int, factor: float) -> Scales:
        """With one scale changed: a field, or by its number a size's."""
        if isinstance(name, str):
            return replace(self, **{name: getattr(self, name) * factor})
        return replace(self, by_size=tuple(v * factor if i == name else v for i, v in enumerate(self.by_size)))

    def residual(self, orders: Floats, left: Any, right: Any) -> Floats:
        """Covariance of the residuals. ``orders``: by order of the effect; ``left``, ``right``: number of the size."""
        factors = np.array(self.by_size)
        found: Floats = orders[2] * (self.joint**2 * (factors[left] * factors[right]))
        found += self.single**2 * orders[0]
        found += self.paired**2 * orders[1]
        return found


Steps = tuple[int, ...]
PRIOR_OF_SCALES = 0.8
"""standard deviation of the logarithm of each scale"""
STEP = 1.5
"""factor between two values of a scale that are compared"""
LEAST_NOISE = 0.003


@dataclass(frozen=True)
class Fit:
    """A linearisation at the most probable factors, and scales."""

    factors: Floats
    """the logarithms of each part's own factor, then of what parts share (``causes``), over their spreads"""
    scales: Scales = field(default_factory=Scales)
    disturbed: float = DISTURBED
    """share of runs that something else slowed down"""

    @classmethod
    def prior(cls, layouts: Layouts, scales: Scales) -> Fit:
        """Before anything is measured."""
        return cls(np.zeros(layouts.parts.shape[1] + layouts.causes.shape[1]), scales)


def effects(values: Floats, names: list[Ints]) -> Floats:
    """(runs, effects) of values and pairs that have their own, times its spread. ``values``: 1 where a run has one."""
    columns = [values[:, name].prod(axis=1) for name in names]
    found: Floats = SLAB * np.array(columns).reshape(len(columns), len(values)).T
    return found


def linearised(layouts: Layouts, fit: Fit) -> tuple[Floats, Floats]:
    """Mean of the log times where the factors are 1, and their slopes by everything uncertain, in its spreads."""
    number = layouts.parts.shape[1]
    shared = (layouts.causes * fit.factors[number:]) @ layouts.loadings.T
    median, shares = corrected(layouts, layouts.spreads * fit.factors[:number] + shared)
    slopes = np.concatenate([shares * layouts.spreads, layouts.causes * (shares @ layouts.loadings)], axis=1)
    trainer = np.full((len(layouts), 1), TRAINER.spread)
    linear = np.concatenate([slopes, layouts.factors * FACTOR_SPREADS, trainer], axis=1)
    linear *= fit.scales.physics
    return median - slopes @ fit.factors, linear


@dataclass(frozen=True)
class MeasuredTimes:
    """The measured runs: as physics sees them, their sizes, log times, and covariances by order of the effect."""

    layouts: Layouts
    sizes: Ints
    log_times: Floats
    within: Floats
    surprising: Floats | None = None
    """(runs, effects) of values and pairs that have their own, times its spread"""

    def covariance(self, linear: Floats, scales: Scales, extra: Floats) -> Floats:
        """Of the measurements. ``extra``: additional variance of each run's noise."""
        found: Floats = linear @ linear.T + self.unexplained(scales, extra)
        return found

    def unexplained(self, scales: Scales, extra: Floats) -> Floats:
        """The part of it that does not depend on the factors."""
        found = scales.residual(self.within, self.sizes[:, None], self.sizes)
        _add_to_diagonal(found, scales.noise**2 + extra)
        return found if self.surprising is None else found + self.surprising @ self.surprising.T

    def surprises(self, fit: Fit, values: Floats) -> list[Ints]:
        """Values and pairs of them that have an effect of their own. ``values``: (runs, values), 1 where one has it."""
        mean, linear = linearised(self.layouts, fit)
        covariance = replace(self, surprising=None).covariance(linear, fit.scales, np.zeros(len(mean)))
        some = slice(-MOST_FOR_SCALES, None)
        error = (self.log_times - mean)[some]
        return surprises(values[some], error, covariance[some, some], fit.disturbed, SLOWDOWN)

    def factors(self, fit: Fit, extra: Floats) -> Fit:
        """Gauss-Newton steps to the most probable factors, everything else integrated out."""
        unexplained = self.unexplained(fit.scales, extra)
        for _ in range(3):
            mean, linear = linearised(self.layouts, fit)
            weights = np.linalg.solve(linear @ linear.T + unexplained, self.log_times - mean)
            slopes = linear[:, : len(fit.factors)]
            step = fit.scales.physics * (slopes.T @ weights) - fit.factors
            fit = replace(fit, factors=fit.factors + step / max(1.0, float(np.abs(step).max()) / 2))
        return fit

    def scaled(self, fit: Fit, extra: Floats) -> Fit:
        """The scales of most evidence, one after another, in steps of a factor."""
        some = slice(-MOST_FOR_SCALES, None)
        mean, linear = linearised(self.layouts.take(some), replace(fit, scales=replace(fit.scales, physics=1.0)))
        own = None if self.surprising is None else self.surprising[some]
        parts = _Sum(self.within[:, some, some], linear @ linear.T, self.sizes[some], own)
        error, extra = self.log_times[some] - mean, extra[some]
        start = np.array([*fit.scales.values, *fit.scales.by_size])
        usual = np.array([*Scales().values, *(1.0 for _ in fit.scales.by_size)])
        away, further = (np.log(start / usual) / PRIOR_OF_SCALES).tolist(), math.log(STEP) / PRIOR_OF_SCALES

        def value(scales: Scales, at: Steps) -> float:
            """``at``: how many steps each scale is from the first."""
            off = sum((w + step * further) ** 2 for w, step in zip(away, at, strict=True))
            return log_evidence(error, parts.covariance(scales, extra)) - 0.5 * float(off)

        names = list(enumerate(("physics", "single", "paired", "joint", "noise")))
        names += [(len(names) + size, size) for size in np.unique(parts.sizes).tolist()]
        best, at = fit.scales, (0,) * len(start)
        most, compared = value(best, at), {at}
        """what was compared once is not better the next time"""
        for place, name in names * 2:
            for step, factor in ((1, STEP), (-1, 1 / STEP)):
                while True:
                    there = (*at[:place], at[place] + step, *at[place + 1 :])
                    other = best.times(name, factor)
                    if there in compared or other.noise < LEAST_NOISE or other.physics < 1:
                        break
                    compared.add(there)
                    found = value(other, there)
                    if found <= most:
                        break
                    best, most, at = other, found, there
        return replace(fit, scales=best)

    def doubted(self, fit: Fit) -> tuple[Fit, Floats]:
        """The share of disturbed runs, and additional variance of the noise of each, given all others' times."""
        mean, linear = linearised(self.layouts, fit)
        inverse = np.linalg.inv(self.covariance(linear, fit.scales, np.zeros(len(self.log_times))))
        alone = 1 / np.diag(inverse)
        slower = (inverse @ (self.log_times - mean)) * alone
        undisturbed = trust(slower, alone, fit.disturbed)
        count = DISTURBED * DISTURBED_RUNS + float((1 - undisturbed).sum())
        fit = replace(fit, disturbed=count / (DISTURBED_RUNS + len(slower)))
        return fit, disturbance_variance(slower, alone, fit.disturbed)


class _Sum:
    """A covariance of measurements as a sum of parts, each times a scale: quick to compute for many scales."""

    def __init__(self, within: Floats, physics: Floats, sizes: Ints, own: Floats | None) -> None:
        self.sizes, number = sizes, len(sizes)
        constant = np.zeros_like(physics) if own is None else own @ own.T
        self._parts = np.stack([*within, physics, constant]).reshape(5, number**2)
        self._joint, self._by_size = within[2].copy(), (1.0,) * (int(sizes.max(initial=0)) + 1)

    def covariance(self, scales: Scales, extra: Floats) -> Floats:
        """``extra``: additional variance of each run's noise."""
        if scales.by_size != self._by_size:
            factors = np.array(scales.by_size)[self.sizes]
            np.multiply(self._joint, factors[:, None] * factors, out=self._parts[2].reshape(self._joint.shape))
            self._by_size = scales.by_size
        weights = np.array([scales.single, scales.paired, scales.joint, scales.physics, 1.0]) ** 2
        found: Floats = (weights @ self._parts).reshape(self._joint.shape)
        _add_to_diagonal(found, scales.noise**2 + extra)
        return found


def _add_to_diagonal(square: Floats, values: Floats) -> None:
    square.flat[:: len(square) + 1] += values


def trust(slower: Floats, variance: Floats, disturbed: float) -> Floats:
    """Probability that runs are not disturbed, by how much slower than expected they are (as a logarithm)."""
    wide = variance + SLOWDOWN**2
    usual = (1 - disturbed) * np.exp(-0.5 * slower**2 / variance) / np.sqrt(variance)
    slow = disturbed * 2 * (slower > 0) * np.exp(-0.5 * slower**2 / wide) / np.sqrt(wide)
    found: Floats = np.maximum(usual, 1e-30) / (np.maximum(usual, 1e-30) + slow)
    return found


def disturbance_variance(slower: Floats, variance: Floats, disturbed: float) -> Floats:
    """The additional variance of a measurement's error that moves expectations as much as they should.

    If it is disturbed, it says nothing of others: the mean moves by the probability that it is not, times the usual
    step (the first moment of the true posterior: assumed-density filtering).
    """
    found: Floats = variance * (1 / np.maximum(trust(slower, variance, disturbed), 1e-6) - 1)
    return found
