"""What is believed of the step times of all candidates: physics with uncertain factors, and what physics leaves out.

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
from sweep.search.gaussian import Belief, Data, Floats, Ints, log_evidence
from sweep.search.layout_kernel import LayoutKernel
from sweep.search.surprises import SLAB, surprises

MOST_ANCHORS = 256
"""a fit uses this many of the latest measurements; the factors keep what earlier ones taught"""
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
        joint = self.joint**2 * (factors[left] * factors[right])
        of_values = self.single**2 * orders[0]
        of_values += self.paired**2 * orders[1]
        found: Floats = of_values + joint * orders[2]
        return found


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
    linear: Floats | None = None
    """slopes of all candidates by everything uncertain, in its spreads; of a fit that is complete"""

    @classmethod
    def prior(cls, layouts: Layouts, scales: Scales) -> Fit:
        """Before anything is measured."""
        return cls(np.zeros(layouts.parts.shape[1] + layouts.causes.shape[1]), scales)


class StepTimes:
    """Beliefs about the logarithm of each candidate's seconds."""

    def __init__(self, layouts: Layouts, sizes: Ints, kernel: LayoutKernel) -> None:
        """``sizes``: number of each candidate's number of nodes."""
        self._layouts, self._sizes, self._kernel = layouts, sizes, kernel

    def fitted(self, indices: Ints, log_times: Floats) -> tuple[Fit, Belief]:
        """The factors and scales that fit the measurements best, and the belief given them."""
        indices, log_times = indices[-MOST_ANCHORS:], log_times[-MOST_ANCHORS:]
        usual = Scales(by_size=(1.0,) * (int(self._sizes.max(initial=0)) + 1))
        fit, extra = Fit.prior(self._layouts, usual), np.zeros(len(indices))
        surprising = np.zeros((len(self._layouts), 0))
        if len(indices):
            within = self._kernel.within(indices)
            seen = MeasuredTimes(self._layouts.take(indices), self._sizes[indices], log_times, within)
            for _ in range(2):
                fit = seen.factors(fit, extra)
                fit, extra = seen.doubted(fit)
                fit = seen.factors(fit, extra)
                fit = seen.scaled(fit, extra)
                fit = seen.factors(fit, extra)
                # After the scales: where all runs of a size differ wildly, nothing about one value is surprising.
                surprising = seen.surprises(fit, self._kernel.values, indices)
                seen = replace(seen, surprising=surprising[indices])
            fit = seen.factors(fit, extra)
        mean, linear = linearised(self._layouts, fit)
        scales, sizes = fit.scales, self._sizes
        # The scale of tested values says little of the others, which keep the prior's.
        more = math.sqrt(max(Scales().single ** 2 - scales.single**2, 0.0))
        linear = np.concatenate([linear, more * self._kernel.untested(indices), surprising], axis=1)
        variance = np.einsum("ij,ij->i", linear, linear)
        variance += scales.residual(self._kernel.variances[:, None], sizes, sizes)

        def column(index: int) -> Floats:
            found: Floats = linear @ linear[index] + scales.residual(self._kernel.column(index), sizes[index], sizes)
            return found

        covariance = linear[indices] @ linear.T
        for place, index in enumerate(indices.tolist()):
            covariance[place] += scales.residual(self._kernel.column(index), sizes[index], sizes)
        data_noise = fit.scales.noise**2 + extra
        data = Data(indices, log_times, data_noise, covariance)
        return replace(fit, linear=linear), Belief.given(mean, variance, column, data)

    def prior_within(self, fit: Fit, indices: Ints) -> Floats:
        """Prior covariance among some candidates."""
        assert fit.linear is not None
        linear, sizes = fit.linear[indices], self._sizes[indices]
        found: Floats = linear @ linear.T + fit.scales.residual(self._kernel.within(indices), sizes[:, None], sizes)
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

    def surprises(self, fit: Fit, values: Floats, indices: Ints) -> Floats:
        """(candidates, effects) of values and pairs that have their own, times its spread.

        ``values``: (candidates, values), 1 where one has it; ``indices``: of the measured ones.
        """
        mean, linear = linearised(self.layouts, fit)
        covariance = replace(self, surprising=None).covariance(linear, fit.scales, np.zeros(len(mean)))
        some = slice(-MOST_FOR_SCALES, None)
        error, mine = (self.log_times - mean)[some], values[indices][some]
        found = surprises(mine, error, covariance[some, some], fit.disturbed, SLOWDOWN)
        columns = [values[:, name].prod(axis=1) for name in found]
        effects: Floats = SLAB * np.array(columns).reshape(len(columns), len(values)).T
        return effects

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
        sizes, within = self.sizes[some], self.within[:, some, some]
        mean, linear = linearised(self.layouts.take(some), replace(fit, scales=replace(fit.scales, physics=1.0)))
        error, gram = self.log_times[some] - mean, linear @ linear.T
        own = None if self.surprising is None else (self.surprising @ self.surprising.T)[some, some]

        def value(scales: Scales) -> float:
            away = np.log(np.concatenate([np.array(scales.values) / Scales().values, scales.by_size])) / PRIOR_OF_SCALES
            covariance = scales.residual(within, sizes[:, None], sizes)
            covariance += scales.physics**2 * gram
            if own is not None:
                covariance += own
            _add_to_diagonal(covariance, scales.noise**2 + extra[some])
            return log_evidence(error, covariance) - 0.5 * float(away @ away)

        best, most = fit.scales, value(fit.scales)
        names = [*("physics", "single", "paired", "joint", "noise"), *np.unique(sizes).tolist()]
        at = (0,) * len(names)
        """steps of each scale; what was compared once is not better the next time"""
        compared = {at}
        for place, name in list(enumerate(names)) * 2:
            for step, factor in ((1, STEP), (-1, 1 / STEP)):
                while True:
                    there = (*at[:place], at[place] + step, *at[place + 1 :])
                    other = best.times(name, factor)
                    if there in compared or other.noise < LEAST_NOISE or other.physics < 1:
                        break
                    compared.add(there)
                    found = value(other)
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
