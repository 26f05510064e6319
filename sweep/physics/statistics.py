"""Small-sample statistics of comparisons. Pure.

scipy has a t distribution too, but as a wheel of 35 MB; numpy and the standard library have none.

Student's t distribution by the continued fraction of the incomplete beta function (Numerical Recipes, 3rd edition,
section 6.4; Abramowitz and Stegun 26.7.1). Holm's step-down procedure (Holm 1979, Scandinavian Journal of Statistics
6:65): the chance of even one false finding among all tests stays below the level, however the tests depend on one
another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

LEVEL = 0.01
"""The chance of a false claim that one of several is the fastest, or that two sweeps differ"""
LEAST_FACTOR = 1.1
"""Runs of one configuration are taken to differ by as much, however quiet a sweep is: fewer never decide"""
MEDIAN_FACTOR = math.sqrt(math.pi / 2)
"""Ratio of the standard error of the median of normal values to that of their mean"""
MAD_FACTOR = 1.4826
"""Ratio of the standard deviation of normal values to their median absolute deviation"""
FAR = 3.0
"""Values this many robust standard deviations from the median did change: they do not measure noise"""
_TRIMMED = 0.9866
"""Standard deviation of normal values without those beyond ``FAR``"""
SURENESS = 0.7
"""Degrees of freedom that remain of each, since the bound at ``FAR`` is estimated too"""


def student_two_sided(t: float, freedom: float) -> float:
    """The chance that Student's t with ``freedom`` degrees of freedom is at least as far from 0 as ``t``."""
    if math.isnan(t):
        return 1.0
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def over_looks(chance: float, look: int) -> float:
    """The chance at the first, second, … look at growing data such that any number of looks errs at most at the level.

    At look k a share 1 / (k (k + 1)) of the level is spent, in all no more than the level: Boole's inequality, as in
    the confidence sequences of Darling and Robbins 1967, Proceedings of the National Academy of Sciences 58:66.
    """
    return min(1.0, chance * look * (look + 1))


def pooled_variance(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Variance within groups, and its degrees of freedom."""
    squares = sum(float(np.var(values)) * len(values) for values in groups if len(values) > 1)
    freedom = sum(max(len(values) - 1, 0) for values in groups)
    return squares / max(freedom, 1), freedom


def variance_ratio_chance(ratio: float, above: float, below: float) -> float:
    """The chance that Snedecor's F of so many degrees of freedom (numerator, denominator) is at least ``ratio``.

    Abramowitz and Stegun 26.6.2.
    """
    if math.isnan(ratio) or ratio <= 0 or above <= 0 or below <= 0:
        return 1.0
    return 0.0 if math.isinf(ratio) else _incomplete_beta(below / 2, above / 2, below / (below + above * ratio))


@cache
def student_quantile(level: float, freedom: float) -> float:
    """The two-sided quantile: beyond it, on both sides together, is a share ``1 - level``."""
    low, high = 0.0, 1.0
    while student_two_sided(high, freedom) > 1 - level and high < 1e6:
        high *= 2
    for _ in range(54):  # a double has 53 bits
        middle = (low + high) / 2
        low, high = (middle, high) if student_two_sided(middle, freedom) > 1 - level else (low, middle)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for how many there are, in the given order; compare each with the level of all."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, worst = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = worst
    return adjusted


def log_median_variance(times: Sequence[float]) -> tuple[float, int]:
    """(variance of the logarithm of the median, degrees of freedom) of one run's iterations.

    Spread by the standard deviation, or where the median absolute deviation is less than half of that by the latter:
    one outlier in ten iterations hardly moves a median, and must not hide a change. Fewer than three iterations give
    no estimate: (0, 0).
    """
    values = np.log(np.asarray([t for t in times if t is not None and t > 0], dtype=float))
    if values.size < 3:
        return 0.0, 0
    deviation = float(np.std(values, ddof=1))
    robust = MAD_FACTOR * float(np.median(np.abs(values - np.median(values)))) * _mad_correction(values.size)
    spread = robust if 0 < robust < deviation / 2 else deviation
    return (MEDIAN_FACTOR * spread) ** 2 / values.size, int(values.size) - 1


def robust_spread(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """(standard deviation within groups, degrees of freedom), from each value's distance to its group's median.

    Distances beyond ``FAR`` times their expected median are left out, so that a minority of values that did change
    leaves it alone. Groups of one are ignored.
    """
    parts, freedom = [], 0
    for group in groups:
        if len(group) >= 2:
            values = np.asarray(group, dtype=float)
            # A group's median is nearer to its values than the true median: n / (n - 1) in the variance.
            parts.append((values - np.median(values)) * math.sqrt(len(group) / (len(group) - 1)))
            freedom += len(group) - 1
    if not parts:
        return 0.0, 0.0
    distances = np.concatenate(parts)
    within = distances[np.abs(distances) <= FAR * MAD_FACTOR * float(np.median(np.abs(distances)))]
    spread = float(np.sqrt(np.mean(within**2))) / _TRIMMED
    return spread, SURENESS * freedom * within.size / distances.size


def _mad_correction(n: int) -> float:
    """The median absolute deviation of few values is too small on average (Croux and Rousseeuw 1992)."""
    small = {3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
    return small.get(n, n / (n - 0.8))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, 1 - x) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """From its end to its start: where it converges, about sqrt(max(a, b)) terms suffice."""
    value = 1.0
    for m in range(min(300, 20 + 3 * math.isqrt(int(max(a, b)))), 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        value = 1 + even / (1 + odd / value)
    return 1 / (1 - (a + b) * x / (a + 1) / value)
