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

import numpy as np

from sweep.search.gaussian import Belief, Data, Floats, Ints, log_evidence
from sweep.search.layout_kernel import LayoutKernel

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
class Parts:
    """What physics says of each candidate's step. Arrays have one row per candidate."""

    seconds: Floats
    """(candidates, parts) medians"""
    spreads: Floats
    """(candidates, parts) standard deviation of the logarithm of each"""
    effects: Floats
    """(candidates, effects) of what a layout uses, as standard deviations of the logarithm of its time"""

    log_nodes: Floats

    def take(self, rows: Ints) -> Parts:
        """Some of the candidates."""
        return Parts(self.seconds[rows], self.spreads[rows], self.effects[rows], self.log_nodes[rows])


@dataclass(frozen=True)
class Scales:
    """Standard deviations of the logarithm of time. The priors are log-normal about these, PRIOR_OF_SCALES wide."""

    physics: float = 1.0
    """by how much the spreads of the constants are too narrow"""
    single: float = 0.15
    """of the effect of one axis value that the formulas lack. With all axes 0.2 to 0.4: as wide as the errors of
    published analytical models on clusters that they were not fitted to"""
    paired: float = 0.07
    joint: float = 0.05
    """of a layout by itself"""
    noise: float = 0.02
    """of repeated runs: published repetitions of training benchmarks differ by 0.5 to 5 %"""
    growth: float = 0.0
    """``joint`` grows as nodes to this power: more can disturb a run. Its prior is half of a normal distribution"""

    @property
    def values(self) -> tuple[float, ...]:
        """In the order of the fields."""
        return (self.physics, self.single, self.paired, self.joint, self.noise)

    def residual(self, orders: Floats, left: Floats, right: Floats) -> Floats:
        """Covariance of the residuals. ``orders``: by order of the effect; ``left``, ``right``: log of the nodes."""
        joint = np.exp(self.growth * left) * np.exp(self.growth * right)
        found: Floats = self.single**2 * orders[0] + self.paired**2 * orders[1] + self.joint**2 * joint * orders[2]
        return found


PRIOR_OF_SCALES = 0.8
"""standard deviation of the logarithm of each scale"""
PRIOR_OF_GROWTH = 0.4
LEAST_NOISE = 0.003


@dataclass(frozen=True)
class Fit:
    """A linearisation at the most probable factors, and scales."""

    factors: Floats
    """the logarithm of each part's factor over its spread"""
    scales: Scales = field(default_factory=Scales)
    disturbed: float = DISTURBED
    """share of runs that something else slowed down"""


class StepTimes:
    """Beliefs about the logarithm of each candidate's seconds."""

    def __init__(self, parts: Parts, kernel: LayoutKernel) -> None:
        self._parts, self._kernel = parts, kernel

    def fitted(self, indices: Ints, log_times: Floats) -> tuple[Fit, Belief]:
        """The factors and scales that fit the measurements best, and the belief given them."""
        indices, log_times = indices[-MOST_ANCHORS:], log_times[-MOST_ANCHORS:]
        fit, covariances = Fit(np.zeros(self._parts.seconds.shape[1])), np.empty(0)
        extra = np.zeros(len(indices))
        if len(indices):
            covariances = self._kernel.columns(indices)
            data = _Measured(self._parts.take(indices), log_times, covariances[:, :, indices])
            for _ in range(2):
                fit, extra = data.doubted(data.factors(fit, extra))
                fit = data.scaled(data.factors(fit, extra), extra)
            fit = data.factors(fit, extra)
        mean, linear = linearised(self._parts, fit)
        scales, nodes = fit.scales, self._parts.log_nodes
        variance = (linear**2).sum(axis=1) + scales.residual(self._kernel.variances[:, None], nodes, nodes)

        def column(index: int) -> Floats:
            found: Floats = linear @ linear[index] + scales.residual(self._kernel.column(index), nodes[index], nodes)
            return found

        if not len(indices):
            return fit, Belief(mean, variance, column)
        covariance = linear[indices] @ linear.T + scales.residual(covariances, nodes[indices][:, None], nodes)
        noise = fit.scales.noise**2 + extra
        return fit, Belief.given(mean, variance, column, Data(indices, log_times, noise, covariance))

    def prior_within(self, fit: Fit, indices: Ints) -> Floats:
        """Prior covariance among some candidates."""
        _, linear = linearised(self._parts.take(indices), fit)
        nodes = self._parts.log_nodes[indices]
        found: Floats = linear @ linear.T + fit.scales.residual(self._kernel.within(indices), nodes[:, None], nodes)
        return found


def linearised(parts: Parts, fit: Fit) -> tuple[Floats, Floats]:
    """Mean of the log times where the factors are 1, and their slopes by everything uncertain, in its spreads."""
    weighted = parts.seconds * np.exp(parts.spreads * fit.factors)
    total = weighted.sum(axis=1)
    slopes = weighted / total[:, None] * parts.spreads
    return np.log(total) - slopes @ fit.factors, fit.scales.physics * np.concatenate([slopes, parts.effects], axis=1)


@dataclass(frozen=True)
class _Measured:
    """The measured runs: their parts, log times, and covariances by order of the effect."""

    parts: Parts
    log_times: Floats
    within: Floats

    def covariance(self, linear: Floats, scales: Scales, extra: Floats) -> Floats:
        """Of the measurements. ``extra``: additional variance of each run's noise."""
        nodes = self.parts.log_nodes[: len(linear)]
        residual = scales.residual(self.within, nodes[:, None], nodes)
        found: Floats = linear @ linear.T + residual + np.diag(scales.noise**2 + extra)
        return found

    def factors(self, fit: Fit, extra: Floats) -> Fit:
        """Gauss-Newton steps to the most probable factors, everything else integrated out."""
        for _ in range(3):
            mean, linear = linearised(self.parts, fit)
            weights = np.linalg.solve(self.covariance(linear, fit.scales, extra), self.log_times - mean)
            slopes = linear[:, : len(fit.factors)]
            step = fit.scales.physics * (slopes.T @ weights) - fit.factors
            fit = replace(fit, factors=fit.factors + step / max(1.0, float(np.abs(step).max()) / 2))
        return fit

    def scaled(self, fit: Fit, extra: Floats) -> Fit:
        """The scales of most evidence, one after another, in steps of a factor of 1.5."""
        some = slice(-MOST_FOR_SCALES, None)
        parts = self.parts.take(np.arange(len(self.log_times))[some])
        data = _Measured(parts, self.log_times[some], self.within[:, some, some])
        mean, linear = linearised(parts, replace(fit, scales=Scales()))

        def value(scales: Scales) -> float:
            away = np.log(np.array(scales.values) / Scales().values) / PRIOR_OF_SCALES
            covariance = data.covariance(scales.physics * linear, scales, extra[some])
            against = float(away @ away) + (scales.growth / PRIOR_OF_GROWTH) ** 2
            return log_evidence(data.log_times - mean, covariance) - 0.5 * against

        best, most = fit.scales, value(fit.scales)
        for name in ("physics", "single", "paired", "joint", "noise", "growth") * 2:
            for up in (True, False):
                while True:
                    other = replace(best, **{name: _step(name, getattr(best, name), up)})
                    found = value(other) if other.noise >= LEAST_NOISE and other.growth > -0.1 else -math.inf
                    if found <= most:
                        break
                    best, most = other, found
        return replace(fit, scales=best)

    def doubted(self, fit: Fit) -> tuple[Fit, Floats]:
        """The share of disturbed runs, and additional variance of the noise of each, given all others' times."""
        mean, linear = linearised(self.parts, fit)
        inverse = np.linalg.inv(self.covariance(linear, fit.scales, np.zeros(len(self.log_times))))
        alone = 1 / np.diag(inverse)
        slower = (inverse @ (self.log_times - mean)) * alone
        undisturbed = trust(slower, alone, fit.disturbed)
        count = DISTURBED * DISTURBED_RUNS + float((1 - undisturbed).sum())
        fit = replace(fit, disturbed=count / (DISTURBED_RUNS + len(slower)))
        return fit, doubt(slower, alone, fit.disturbed)


def _step(name: str, value: float, up: bool) -> float:
    """The next value to try: powers in steps of 0.2, scales in steps of a factor of 1.5."""
    if name == "growth":
        return round(value + (0.2 if up else -0.2), 9)
    return value * (1.5 if up else 1 / 1.5)


def trust(slower: Floats, variance: Floats, disturbed: float) -> Floats:
    """Probability that runs are not disturbed, by how much slower than expected they are (as a logarithm)."""
    wide = variance + SLOWDOWN**2
    usual = (1 - disturbed) * np.exp(-0.5 * slower**2 / variance) / np.sqrt(variance)
    slow = disturbed * 2 * (slower > 0) * np.exp(-0.5 * slower**2 / wide) / np.sqrt(wide)
    found: Floats = np.maximum(usual, 1e-30) / (np.maximum(usual, 1e-30) + slow)
    return found


def doubt(slower: Floats, variance: Floats, disturbed: float) -> Floats:
    """The additional variance of a measurement's error that moves expectations as much as they should.

    If it is disturbed, it says nothing of others: the mean moves by the probability that it is not, times the usual
    step (the first moment of the true posterior: assumed-density filtering).
    """
    found: Floats = variance * (1 / np.maximum(trust(slower, variance, disturbed), 1e-6) - 1)
    return found
