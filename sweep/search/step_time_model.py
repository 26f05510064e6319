"""How likely unmeasured runs are to succeed, and to be better than a rate. Step times: ``sweep.physics.prediction``.

Failures: how often similar runs failed, for any cause; that only moves a run back in the order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LENGTH = 2.0
"""doublings (of tp, pp, …) over which a failure is informative"""
MOST_ANCHORS = 512
"""this many of the latest runs count"""
PRIOR_WEIGHT = 2.0


def success_rates(prior: Floats, features: Floats, tried: Floats, succeeded: Floats) -> Floats:
    """Success probability per candidate, from similar tried runs: (successes + prior) / (trials + prior), weighted.

    ``prior`` (n,) and ``features`` (n, f) of the candidates, ``tried`` (m, f) of the runs that ended, ``succeeded``
    (m,) 1 or 0.
    """
    tried, succeeded = tried[-MOST_ANCHORS:], succeeded[-MOST_ANCHORS:]
    near = _nearness(features, tried)
    rates: Floats = (PRIOR_WEIGHT * prior + near @ succeeded) / (PRIOR_WEIGHT + near.sum(axis=1))
    return rates


def probability_above(mean: Floats, spread: Floats | float, threshold: float) -> Floats:
    """P(x > threshold) for x distributed by Student's t with 3 degrees of freedom about the mean.

    Errors of predicted step times have heavier tails than a normal distribution.
    """
    z = (mean - threshold) / spread / np.sqrt(3.0)
    found: Floats = 0.5 + (z / (1 + z**2) + np.arctan(z)) / np.pi
    return found


def _nearness(left: Floats, right: Floats) -> Floats:
    square = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    near: Floats = np.exp(-np.maximum(square, 0) / (2 * LENGTH**2))
    return near
