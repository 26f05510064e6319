"""What remaining runs may gain: chances and expected improvements over the best so far, from beliefs. Pure.

Beliefs about rates are normal given factors and scales, which are themselves uncertain: tails are those of Student's t
with 5 degrees of freedom.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from sweep.search.gaussian import Floats

FREEDOM = 5.0
_SCALE = 8 / (3 * np.pi * np.sqrt(5.0))
"""of the density of Student's t with 5 degrees of freedom"""
_DRAWS = 256


def cdf(z: Floats) -> Floats:
    """P(x <= z) of Student's t with 5 degrees of freedom."""
    angle = np.arctan(z / np.sqrt(FREEDOM))
    sine, cosine = np.sin(angle), np.cos(angle)
    found: Floats = 0.5 + (angle + sine * cosine + 2 / 3 * sine * cosine**3) / np.pi
    return found


def probability_above(mean: Floats, spread: Floats, threshold: Floats | float) -> Floats:
    """P(x > threshold)."""
    return cdf((mean - threshold) / spread)


def expected_improvement(mean: Floats, spread: Floats, threshold: Floats) -> Floats:
    """E[max(x - threshold, 0)]."""
    z = (mean - threshold) / spread
    density = _SCALE * (1 + z**2 / FREEDOM) ** -3
    found: Floats = spread * ((FREEDOM + z**2) / (FREEDOM - 1) * density + z * cdf(z))
    return found


def together(
    mean: Floats, covariance: Floats, works: Floats, threshold: float, tolerance: float
) -> tuple[float, float]:
    """(expected improvement of the best of several runs, probability that it exceeds the tolerance).

    ``works``: success probabilities. By draws from the joint distribution, always the same ones: correlated runs do not
    add up their chances. What each run has alone is known exactly: the draws are corrected by how far they are off it
    (a ratio estimator), and neither result is below that of the best run alone or above the sum of all.
    """
    size, spread = len(mean), np.sqrt(np.diag(covariance))
    normal, scale, uniform = _draws(size)
    root = np.linalg.cholesky(covariance + np.diag(np.full(size, 1e-8 + 1e-6 * np.diag(covariance).mean())))
    drawn = mean[:, None] + (root @ normal) * scale
    gains = np.where(uniform < works[:, None], drawn - threshold, -np.inf)
    gain_alone = works * expected_improvement(mean, spread, np.full(size, threshold))
    above_alone = works * probability_above(mean, spread, threshold + tolerance)
    gain = _corrected(np.maximum(gains, 0), gain_alone)
    above = _corrected((gains > tolerance).astype(np.float64), above_alone)
    return gain, min(1.0, above)


def _corrected(drawn: Floats, alone: Floats) -> float:
    """The mean of the greatest of several non-negative values. ``alone``: the exact mean of each."""
    found = float(drawn.mean())
    corrected = float(drawn.max(axis=0).mean()) * float(alone.mean()) / found if found > 0 else 0.0
    return float(np.clip(corrected, alone.max(), alone.sum()))


@cache
def _draws(size: int) -> tuple[Floats, Floats, Floats]:
    """Standard normal ones (size, draws), Student's scales (draws,), uniform ones (size, draws)."""
    generator = np.random.default_rng(size)
    normal = generator.standard_normal((size, _DRAWS))
    squares = np.sort(generator.chisquare(FREEDOM, 100 * _DRAWS))[50::100]  # one per stratum: tails as they should be
    scale = np.sqrt(FREEDOM / generator.permutation(squares))
    return normal, scale, generator.random((size, _DRAWS))
