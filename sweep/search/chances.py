"""What remaining runs may gain: chances and expected improvements over the best so far, from beliefs. Pure.

Beliefs about rates are normal given factors and scales, which are themselves uncertain: tails are those of Student's t
with 5 degrees of freedom, with the standard deviation that is believed.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from sweep.search.gaussian import Floats

FREEDOM = 5.0
NARROW = np.sqrt((FREEDOM - 2) / FREEDOM)
"""Student's t times this has a standard deviation of 1"""
_SCALE = 8 / (3 * np.pi * np.sqrt(5.0))
"""of the density of Student's t with 5 degrees of freedom"""
_DRAWS = 256


def cdf(z: Floats) -> Floats:
    """P(x <= z) of Student's t with 5 degrees of freedom."""
    tangent = z / np.sqrt(FREEDOM)
    cosine_squared = 1 / (1 + tangent * tangent)
    found: Floats = 0.5 + (np.arctan(tangent) + tangent * cosine_squared * (1 + 2 / 3 * cosine_squared)) / np.pi
    return found


def probability_above(mean: Floats, spread: Floats, threshold: Floats | float) -> Floats:
    """P(x > threshold)."""
    return cdf((mean - threshold) / (NARROW * spread))


def expected_improvement(mean: Floats, spread: Floats, threshold: Floats) -> Floats:
    """E[max(x - threshold, 0)]."""
    width = NARROW * spread
    z = (mean - threshold) / width
    more = 1 + z**2 / FREEDOM
    tail = FREEDOM / (FREEDOM - 1) * _SCALE / (more * more)  # (freedom + z^2) / (freedom - 1) times the density
    found: Floats = width * (tail + z * cdf(z))
    return found


def together(
    mean: Floats, covariance: Floats, works: Floats, threshold: float, tolerance: float
) -> tuple[float, float]:
    """(expected improvement of the best of several runs, probability that it exceeds the tolerance).

    ``works``: success probabilities. By draws from the joint distribution, always the same ones: correlated runs do not
    add up their chances. What each run has alone is known exactly: the draws are corrected by how far they are off it
    (a ratio estimator), and neither result is below that of the best run alone or above the sum of all.
    """
    gains, gain = _gains_together(mean, covariance, works, threshold)
    alone = works * probability_above(mean, np.sqrt(np.diag(covariance)), threshold + tolerance)
    better = gains > tolerance
    above = _corrected(np.count_nonzero(better) / better.size, float(better.any(axis=0).mean()), alone)
    return gain, min(1.0, above)


def gain_together(mean: Floats, covariance: Floats, works: Floats, threshold: float) -> float:
    """The first of the two alone."""
    return _gains_together(mean, covariance, works, threshold)[1]


def _gains_together(mean: Floats, covariance: Floats, works: Floats, threshold: float) -> tuple[Floats, float]:
    """(draws of each run's improvement: 0 where there is none; the expected one of the best of them)."""
    size = len(mean)
    normal, scale, uniform = _draws(size)
    padded = covariance.copy()
    padded.flat[:: size + 1] += 1e-8 + 1e-6 * np.diag(covariance).mean()
    root = np.linalg.cholesky(padded)
    gains = (root @ normal) * scale
    gains += (mean - threshold)[:, None]
    np.copyto(gains, -np.inf, where=uniform >= works[:, None])
    np.maximum(gains, 0, out=gains)
    alone = works * expected_improvement(mean, np.sqrt(np.diag(covariance)), np.full(size, threshold))
    return gains, _corrected(float(gains.mean()), float(gains.max(axis=0).mean()), alone)


def _corrected(drawn: float, greatest: float, alone: Floats) -> float:
    """The mean of the greatest of several non-negative values. ``drawn``: the mean of their draws; ``greatest``: of
    each draw's greatest; ``alone``: the exact mean of each.
    """
    corrected = greatest * float(alone.mean()) / drawn if drawn > 0 else 0.0
    return max(float(alone.max()), min(corrected, float(alone.sum())))


@cache
def _draws(size: int) -> tuple[Floats, Floats, Floats]:
    """Standard normal ones (size, draws), Student's scales (draws,), uniform ones (size, draws)."""
    generator = np.random.default_rng(size)
    normal = generator.standard_normal((size, _DRAWS))
    squares = np.sort(generator.chisquare(FREEDOM, 100 * _DRAWS))[50::100]  # one per stratum: tails as they should be
    scale = NARROW * np.sqrt(FREEDOM / generator.permutation(squares))
    return normal, scale, generator.random((size, _DRAWS))
