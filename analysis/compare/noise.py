"""Significance of a change: its variance within and between runs, and its test. Method: see the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.compare.comparison import Change, Noise
from analysis.compare.sides import Cell, Row, cell_of
from analysis.metrics import Metric
from analysis.statistics import (
    MEDIAN_FACTOR,
    log_median_variance,
    robust_spread,
    student_quantile,
    student_two_sided,
)

ASSUMED_NOISE = 0.01
"""Run-to-run standard deviation of a change where the sweeps have too few pairs to estimate it: 1 %"""
MIN_NOISE = 0.002
"""No two runs of a training job agree better than that: a smaller estimate is chance"""
MIN_FREEDOM = 2.5
"""Degrees of freedom from which on the noise estimated from the sweeps is used"""
ASSUMED_FREEDOM = 30


def gain(x: Row, y: Row, metric: Metric) -> float:
    """Logarithm of the ratio B to A, positive where B is better."""
    ratio = math.log(float(y["value"]) / float(x["value"]))
    return ratio if metric.higher_is_better else -ratio


def _own_variance(row: Row, metric: Metric) -> tuple[float, int]:
    """Variance of the logarithm of a row's value by its iterations, and its degrees of freedom."""
    times: Any = row.get("step_times_s")
    if metric.time_like == 0 or np.ndim(times) != 1:  # that of a missing value is 0
        return 0.0, 0
    variance, freedom = log_median_variance(times)
    repeats = int(row["repeats"])
    return variance / repeats, freedom * repeats


def _usual_error(pairs: Sequence[tuple[Row, Row]], metric: Metric) -> float:
    """The median over runs of the standard error by their iterations: five iterations agree by chance now and then."""
    own = [variance for pair in pairs for variance, freedom in (_own_variance(row, metric) for row in pair) if freedom]
    return math.sqrt(float(np.median(own))) if own else 0.0


def noise_of(pairs: Sequence[tuple[Row, Row]], gains: Sequence[float], metric: Metric) -> Noise:
    """The run-to-run part of a change's spread: what is left of it without the iterations' part."""
    usual = _usual_error(pairs, metric)
    by_cell: dict[Cell, list[float]] = {}
    for (x, _), gain in zip(pairs, gains, strict=True):
        by_cell.setdefault(cell_of(x), []).append(gain)
    spread, freedom = robust_spread(list(by_cell.values()))
    if freedom < MIN_FREEDOM:
        # One run per cell: the cells themselves serve as repeats, as long as most of them did not change.
        spread, freedom = robust_spread([list(gains)])
    if freedom < MIN_FREEDOM:
        return Noise(deviation=ASSUMED_NOISE, freedom=ASSUMED_FREEDOM, estimated=False, iterations=usual)
    own = [_own_variance(x, metric)[0] + _own_variance(y, metric)[0] for x, y in pairs]
    rest = math.sqrt(max(0.0, spread**2 - float(np.median(own))))
    return Noise(deviation=max(MIN_NOISE, rest), freedom=freedom, estimated=True, iterations=usual)


def tested(gain: float, parts: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """(gain, standard error, degrees of freedom, p) from the parts (variance, degrees of freedom) of its variance."""
    variance = sum(part for part, _ in parts)
    uncertainty = sum(part**2 / freedom for part, freedom in parts if freedom > 0)
    freedom = min(1e6, variance**2 / uncertainty) if uncertainty > 0 else 1e6
    error = math.sqrt(variance)
    return gain, error, freedom, student_two_sided(gain / error if error > 0 else math.nan, freedom)


def parts_of(x: Row, y: Row, metric: Metric, noise: Noise) -> list[tuple[float, float]]:
    """Parts of the variance of one pair's change: the iterations of both, and the noise from run to run."""
    share = (1 / int(x["repeats"]) + 1 / int(y["repeats"])) / 2
    own = [_own_variance(row, metric) for row in (x, y)]
    iterations = [(max(variance, noise.iterations**2), float(freedom)) for variance, freedom in own]
    return [*iterations, (noise.deviation**2 * share, noise.freedom)]


def typical_change(pairs: Sequence[tuple[Row, Row]], metric: Metric, noise: Noise) -> tuple[float, float, float, float]:
    """The median change of several pairs, tested."""
    gains = [gain(x, y, metric) for x, y in pairs]
    n = len(pairs)
    factor = (MEDIAN_FACTOR**2 if n > 2 else 1.0) / n**2
    parts = [(part * factor, freedom) for x, y in pairs for part, freedom in parts_of(x, y, metric, noise)[:2]]
    shared = sum(parts_of(x, y, metric, noise)[2][0] for x, y in pairs) * factor
    return tested(float(np.median(gains)), [*parts, (shared, noise.freedom)])


def change_of(test: tuple[float, float, float, float], p: float) -> Change:
    """The outcome of a test, in ratios, with the corrected chance ``p`` of it by noise alone."""
    gain, error, freedom, _ = test
    reach = student_quantile(0.95, freedom) * error
    return Change(change=math.expm1(gain), low=math.expm1(gain - reach), high=math.expm1(gain + reach), p=p)
