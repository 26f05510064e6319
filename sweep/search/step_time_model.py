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

import numpy as np

from sweep.physics.constants import NOISE, TRAINER
from sweep.physics.job import LIKELY
from sweep.physics.prediction import FACTOR_SPREADS, Layouts, corrected
from sweep.search.gaussian import Floats, Ints, normal_cdf
from sweep.search.scales import Evidence, Scales, most_evident

MOST_FOR_SCALES = 128
"""the scales of the residual are found from this many of them"""
SLOWDOWN = 1.0
"""standard deviation of the logarithm by which disturbed runs are slower: published ones take 1.5 to 20 times as
long"""
MOST_STEPS, NEAR_ENOUGH = 3, 0.02
"""Gauss-Newton steps, and the length of one (in spreads of the factors) after which there is no further one"""
DISTURBED, DISTURBED_RUNS = 0.05, 20.0
"""prior share of runs that something else slowed down, and the number of runs that it counts as"""
FREEDOM = 4.0
"""how many runs the prior of the spreads counts as where no further run can correct what slow ones teach"""


@dataclass(frozen=True)
class Fit:
    """A linearisation at the most probable factors, and scales."""

    factors: Floats
    """the logarithms of each part's own factor, then of what parts share (``causes``), over their spreads"""
    scales: Scales = field(default_factory=Scales)
    disturbed: float = DISTURBED
    """share of runs that something else slowed down"""
    freedom: float = math.inf
    """how many runs the prior of the spreads counts as; infinite: spreads are taken for known"""
    expected: Scales = field(default_factory=Scales)
    """about which the priors of the scales are"""

    @classmethod
    def prior(cls, layouts: Layouts, scales: Scales, freedom: float = math.inf) -> Fit:
        """Before anything is measured."""
        return cls(np.zeros(layouts.parts.shape[1] + layouts.causes.shape[1]), scales, freedom=freedom, expected=scales)


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

    def covariance(self, linear: Floats, scales: Scales, extra: Floats) -> Floats:
        """Of the measurements. ``extra``: additional variance of each run's noise."""
        found: Floats = linear @ linear.T + self.unexplained(scales, extra)
        return found

    def unexplained(self, scales: Scales, extra: Floats) -> Floats:
        """The part of it that does not depend on the factors."""
        found = scales.residual(self.within, self.sizes[:, None], self.sizes)
        found.flat[:: len(found) + 1] += scales.noise**2 + extra  # the diagonal
        return found

    def factors(self, fit: Fit, extra: Floats) -> Fit:
        """Gauss-Newton steps to the most probable factors, everything else integrated out."""
        unexplained = self.unexplained(fit.scales, extra)
        for _ in range(MOST_STEPS):
            mean, linear = linearised(self.layouts, fit)
            weights = np.linalg.solve(linear @ linear.T + unexplained, self.log_times - mean)
            slopes = linear[:, : len(fit.factors)]
            step = fit.scales.physics * (slopes.T @ weights) - fit.factors
            longest = float(np.abs(step).max())
            fit = replace(fit, factors=fit.factors + step / max(1.0, longest / 2))
            if longest < NEAR_ENOUGH:
                break
        return fit

    def scaled(self, fit: Fit, extra: Floats) -> Fit:
        """The scales of most evidence."""
        some = slice(-MOST_FOR_SCALES, None)
        mean, linear = linearised(self.layouts.take(some), replace(fit, scales=replace(fit.scales, physics=1.0)))
        error = self.log_times[some] - mean
        evidence = Evidence(error, self.within[:, some, some], linear @ linear.T, self.sizes[some], extra[some])
        return replace(fit, scales=most_evident(fit.scales, evidence, fit.expected))

    def errors(self, fit: Fit) -> tuple[Floats, Floats]:
        """Of the log times, as the factors expect them, and the inverse of their covariance."""
        mean, linear = linearised(self.layouts, fit)
        covariance = self.covariance(linear, fit.scales, np.zeros(len(self.log_times)))
        return self.log_times - mean, np.asarray(np.linalg.inv(covariance), dtype=np.float64)

    def disturbances(self, fit: Fit) -> tuple[Fit, Floats]:
        """The share of disturbed runs, and additional variance of the noise of each, given all others' times."""
        error, inverse = self.errors(fit)
        alone = 1 / np.diag(inverse)
        slower = (inverse @ error) * alone
        freedom = fit.freedom + len(slower)
        undisturbed = trust(slower, alone, fit.disturbed, freedom)
        count = DISTURBED * DISTURBED_RUNS + float((1 - undisturbed).sum())
        fit = replace(fit, disturbed=count / (DISTURBED_RUNS + len(slower)))
        return fit, disturbance_variance(slower, alone, fit.disturbed, freedom)


def trust(slower: Floats, variance: Floats, disturbed: float, freedom: float = math.inf) -> Floats:
    """Probability that runs are not disturbed, by how much slower than expected they are (as a logarithm).

    ``freedom``: degrees of freedom with which the variance is known. Others have Student's t then, or the normal.
    """
    wide = variance + SLOWDOWN**2
    usual = (1 - disturbed) * _density(slower**2 / variance, freedom) / np.sqrt(variance)
    slow = disturbed * 2 * (slower > 0) * np.exp(-0.5 * slower**2 / wide) / np.sqrt(wide)
    found: Floats = np.maximum(usual, 1e-30) / (np.maximum(usual, 1e-30) + slow)
    return found


def _density(squares: Floats, freedom: float) -> Floats:
    """Of Student's t by its squares, over the normal's at 0."""
    if math.isinf(freedom):
        return np.asarray(np.exp(-0.5 * squares))
    at_zero = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom / 2)
    return np.asarray(at_zero * (1 + squares / freedom) ** (-(freedom + 1) / 2))


def disturbance_variance(slower: Floats, variance: Floats, disturbed: float, freedom: float = math.inf) -> Floats:
    """The additional variance of a measurement's error that moves expectations as much as they should.

    If it is disturbed, it says nothing of others: the mean moves by the probability that it is not, times the usual
    step (the first moment of the true posterior: assumed-density filtering).
    """
    found: Floats = variance * (1 / np.maximum(trust(slower, variance, disturbed, freedom), 1e-6) - 1)
    return found


def interval(variance: Floats, disturbed: float) -> tuple[Floats, Floats]:
    """By how much (as a logarithm) 1 in 20 runs will be slower than expected, disturbed ones among them; and 1 in 20 of
    the others faster. ``variance``: of what is expected, without a measurement's noise.
    """
    spread, steps = np.sqrt(variance + NOISE.spread**2), np.linspace(0.0, 5.0, 5001)
    wide, share = np.hypot(spread, SLOWDOWN), normal_cdf(np.array(-LIKELY))
    beyond = (1 - disturbed) * normal_cdf(np.outer(-steps, wide / spread)) + 2 * disturbed * normal_cdf(-steps)[:, None]
    return wide * steps[(beyond > share).sum(axis=0)], LIKELY * spread
