"""Predictions for unmeasured runs, fitted to measurements. Pure; a few matrix products per fit.

Time: the parts of ``sweep.physics.step_time`` weighted by fitted factors, one set for all cells, so that
neighbours in nodes and size inform each other; then an offset per cell. Failures: how often similar runs failed, for
any cause; that only moves a run back in the order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SPREAD_OF_FACTORS = 1.0
"""standard deviation of a factor's logarithm before anything is measured"""
NOISE = 0.2
"""standard deviation of a measurement's logarithm about the weighted parts, before anything is measured"""
OUTLIER = 0.3
"""residuals beyond it count less (Cauchy weights): disturbed runs are common on large clusters"""
OFFSET_WEIGHT = 1.0
"""a cell's offset is shrunk as if it had this many more measurements with offset zero"""
SPREAD_WEIGHT = 4.0
"""prior weight, in measurements, of NOISE as the spread of all cells, and of that as the spread of each cell"""
LENGTH = 2.0
"""doublings (of tp, pp, …) over which a failure is informative"""
MOST_ANCHORS = 512
"""a fit uses this many of the latest measurements"""
PRIOR_WEIGHT = 2.0


@dataclass(frozen=True)
class TimeModel:
    """Step times corrected by what was measured."""

    factors: Floats
    """logarithm of each part's factor"""
    offsets: Floats
    """per cell, the offset of its measured logarithms from the weighted parts"""
    spreads: Floats
    """per cell, the scale of a measurement's logarithm about its prediction: large clusters are noisier"""

    def log_times(self, terms: Floats, cells: Ints) -> Floats:
        """Logarithm of predicted seconds for (candidates, parts) of the given cells."""
        found: Floats = np.log(terms @ np.exp(self.factors)) + self.offsets[cells]
        return found


def unlearned(parts: int, cells: int) -> TimeModel:
    """The model before anything is measured."""
    return TimeModel(np.zeros(parts), np.zeros(cells), np.full(cells, NOISE))


def learn_times(terms: Floats, cells: Ints, log_times: Floats, before: TimeModel, steps: int = 5) -> TimeModel:
    """The model that fits the measured seconds best, starting from an earlier one.

    ``terms`` (n, parts) and ``cells`` (n,) of the measured runs, ``log_times`` (n,) the logarithm of their seconds.
    """
    terms, cells, log_times = terms[-MOST_ANCHORS:], cells[-MOST_ANCHORS:], log_times[-MOST_ANCHORS:]
    factors = before.factors
    for _ in range(steps):
        factors = factors + _step(terms, log_times, factors)
    residuals = log_times - np.log(terms @ np.exp(factors))
    clipped = np.clip(residuals, -2 * OUTLIER, 2 * OUTLIER)
    sums = np.bincount(cells, clipped, minlength=len(before.offsets))
    counts = np.bincount(cells, minlength=len(before.offsets))
    offsets = sums / (counts + OFFSET_WEIGHT)
    return TimeModel(factors, offsets, _spreads(residuals - offsets[cells], cells, counts))


def success_rates(prior: Floats, features: Floats, tried: Floats, succeeded: Floats) -> Floats:
    """Success probability per candidate, from similar tried runs: (successes + prior) / (trials + prior), weighted.

    ``prior`` (n,) and ``features`` (n, f) of the candidates, ``tried`` (m, f) of the runs that ended, ``succeeded``
    (m,) 1 or 0.
    """
    tried, succeeded = tried[-MOST_ANCHORS:], succeeded[-MOST_ANCHORS:]
    near = _nearness(features, tried)
    rates: Floats = (PRIOR_WEIGHT * prior + near @ succeeded) / (PRIOR_WEIGHT + near.sum(axis=1))
    return rates


def probability_above(mean: Floats, spread: float, threshold: float) -> Floats:
    """P(x > threshold) for x distributed by Student's t with 3 degrees of freedom about the mean.

    Errors of predicted step times have heavier tails than a normal distribution.
    """
    z = (mean - threshold) / spread / np.sqrt(3.0)
    found: Floats = 0.5 + (z / (1 + z**2) + np.arctan(z)) / np.pi
    return found


def _step(terms: Floats, log_times: Floats, factors: Floats) -> Floats:
    """One Gauss-Newton step to the most probable factors: Cauchy weights, priors log-normal about 1."""
    weighted = terms * np.exp(factors)
    total = weighted.sum(axis=1)
    slope, residual = weighted / total[:, None], log_times - np.log(total)
    trusted = slope * (1 / (1 + (residual / OUTLIER) ** 2) / NOISE**2)[:, None]
    curvature = trusted.T @ slope + np.eye(len(factors)) / SPREAD_OF_FACTORS**2
    step: Floats = np.linalg.solve(curvature, trusted.T @ residual - factors / SPREAD_OF_FACTORS**2)
    return step / max(1.0, float(np.abs(step).max()))


def _spreads(residuals: Floats, cells: Ints, counts: Ints) -> Floats:
    """Per cell the root mean square of its residuals (outliers clipped), shrunk towards the value of all cells."""
    square = np.clip(residuals, -2 * OUTLIER, 2 * OUTLIER) ** 2
    pooled = (SPREAD_WEIGHT * NOISE**2 + square.sum()) / (SPREAD_WEIGHT + len(square))
    own = np.bincount(cells, square, minlength=len(counts))
    found: Floats = np.sqrt((SPREAD_WEIGHT * pooled + own) / (SPREAD_WEIGHT + counts))
    return found


def _nearness(left: Floats, right: Floats) -> Floats:
    square = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    near: Floats = np.exp(-np.maximum(square, 0) / (2 * LENGTH**2))
    return near
