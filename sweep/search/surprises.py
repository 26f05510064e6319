"""Axis values, and pairs of them, that a build handles much better or worse than everything else says. Pure.

Most effects of axis values are small, and a few are not: a micro-batch for which a kernel has no fast path, a
recomputation that falls back to eager code. A Gaussian residual cannot say so: it rather takes each run with such a
value for a disturbed one. So a few values and pairs get an effect of their own (a spike and slab prior, Mitchell and
Beauchamp 1988), one after another, while the evidence for one outweighs its prior.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np

from sweep.search.gaussian import Floats, Ints

SLAB = 0.7
"""standard deviation of the logarithm of such an effect: about a factor of two"""
EXPECTED = 0.5
"""prior number of such values in a sweep, and of such pairs of values"""
MOST = 8


def surprises(values: Floats, error: Floats, covariance: Floats, disturbed: float, slowdown: float) -> list[Ints]:
    """The values (one number each) and pairs (two numbers) that have an effect of their own.

    ``values``: (runs, values), 1 where a run has one; ``error``: the runs' log times less what is expected, of this
    ``covariance``. The other explanation of a slow run is that something ``disturbed`` it (the prior share of such
    runs), by ``slowdown`` (a standard deviation).
    """
    runs, (names, columns) = len(error), _separable(values)
    how_many = Counter(map(len, names))
    number = np.array([how_many[len(name)] for name in names])
    effects = np.concatenate([SLAB * columns, slowdown * np.eye(runs)], axis=1)
    odds = np.concatenate([np.log(EXPECTED / number), np.full(runs, math.log(disturbed))])
    inverse, found = np.linalg.inv(covariance), list[Ints]()
    weights = np.concatenate([inverse @ (SLAB * columns), slowdown * inverse], axis=1)
    """the inverse times the effects"""
    more, lean = 1 + np.einsum("ij,ij->j", effects, weights), error @ weights
    taken: list[tuple[Floats, Floats]] = []
    for _ in range(MOST + int(2 * disturbed * runs)):
        gains = odds - 0.5 * np.log(more) + 0.5 * lean**2 / more
        gains[len(names) :][lean[len(names) :] < 0] = -math.inf  # nothing makes a run faster
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        # From now on the effect's variance is in the covariance.
        own = weights[:, best] - sum(shared[best] * other for other, shared in taken)
        shared = own @ effects / more[best]
        taken.append((own, shared))
        lean = lean - (error @ own) * shared
        more = more - more[best] * shared**2
        odds[best] = -math.inf
        found += [names[best]] if best < len(names) else []
    return found[:MOST]


def _separable(values: Floats) -> tuple[list[Ints], Floats]:
    """Values and pairs that several runs have and others do not, and (runs, these): 1 where a run has one.

    Of those with the same runs the first, values first. One run with a value cannot be distinguished from a disturbed
    one.
    """
    runs, number = values.shape
    pairs = _pairs(number)
    columns = np.concatenate([values, values[:, pairs[:, 0]] * values[:, pairs[:, 1]]], axis=1)
    have = columns.sum(axis=0)
    several = np.flatnonzero((have > 1) & (have < runs)).tolist()
    patterns = np.ascontiguousarray(columns.T > 0)
    first: dict[bytes, int] = {}
    for place in several:
        first.setdefault(patterns[place].tobytes(), place)
    selected = list(first.values())
    names = [pairs[place - number] if place >= number else np.array([place]) for place in selected]
    return names, columns[:, selected]


@cache
def _pairs(number: int) -> Ints:
    """(pairs, 2) of so many values."""
    return np.stack(np.triu_indices(number, 1), axis=1)
