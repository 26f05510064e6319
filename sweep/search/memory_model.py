"""What is believed of the peak memory of all candidates, and so of their chance to run out of it. Pure.

log (peak / limit) = log of the predicted one, its kinds (states, activations, …) weighted by uncertain factors, and a
residual over layouts. Measured peaks condition it; so does, from one side, every run that ended well or ran out. The
same ends show at which peak runs fail (``memory_limit``): a run that worked above the stated memory refutes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import memory
from sweep.physics.profiles import MemoryProfile
from sweep.search.gaussian import Belief, Floats, Ints, one_sided
from sweep.search.layout_kernel import LayoutKernel
from sweep.search.memory_limit import MemoryLimit

GROUPS = (
    ("weights", "gradients", "master_weights", "optimizer_states", "gradient_buckets"),
    ("activations",),
    ("logits", "workspace"),
    ("pipeline_buffers", "gathered", "fixed", "fragmentation"),
)
UNKNOWN_TRAINER = 0.5
"""standard deviation of the logarithm of each group's factor for a trainer without a profile: trainers hold 6 to 20
bytes of states per parameter, and as different multiples of activations (``sweep.physics.profiles``)"""
KNOWN_TRAINER = 0.12
"""the same for one with a profile: the error of its predicted peaks"""
RESIDUAL = 0.05
"""standard deviation of one axis' effect on a peak, apart from those factors"""
PEAK_NOISE = 0.01


@dataclass(frozen=True)
class PredictedPeaks:
    """Of all candidates: shares of each group in the predicted peak; its logarithm over the limit; spreads."""

    log_use: Floats
    shares: Floats
    """(candidates, groups)"""
    spreads: Floats
    """per candidate, of the logarithm of each group's factor"""


def predicted_peaks(columns: Mapping[str, Any], profile: MemoryProfile, limit: float) -> tuple[Floats, Floats]:
    """(log of the heaviest rank's peak over the limit, shares of the groups in it)."""
    parts = []
    for stage in ("first", "last"):
        found = memory.breakdown(columns, profile, stage)
        size = np.shape(found["total"])
        parts.append(np.stack([sum(np.broadcast_to(found[k], size) for k in group) for group in GROUPS], 1))
    heavier = parts[0].sum(axis=1) >= parts[1].sum(axis=1)
    bytes_ = np.where(heavier[:, None], parts[0], parts[1])
    total = np.maximum(bytes_.sum(axis=1), 1.0)
    return np.log(total / limit), bytes_ / total[:, None]


class Peaks:
    """The belief, conditioned on how runs ended."""

    def __init__(self, predicted: PredictedPeaks, kernel: LayoutKernel) -> None:
        linear = predicted.shares * predicted.spreads[:, None]
        squares = np.array([RESIDUAL, RESIDUAL / 2, RESIDUAL / 2]) ** 2

        def column(index: int) -> Floats:
            found: Floats = linear @ linear[index] + squares @ kernel.column(index)
            return found

        variance = (linear**2).sum(axis=1) + squares @ kernel.variances
        self._belief = Belief(predicted.log_use, variance, column)
        self._limit = MemoryLimit()

    def fits(self, rows: Ints) -> Floats:
        """Probability that each row does not run out of memory."""
        return self._limit.above(self._belief.mean[rows], np.maximum(self._belief.variance[rows], 0.0))

    def spread(self, index: int) -> float:
        """Standard deviation of the logarithm of a run's peak."""
        return math.sqrt(max(float(self._belief.variance[index]), 0.0))

    def measured(self, index: int, log_use: float) -> None:
        """A run ended well, with this peak."""
        self._limit.is_above(log_use, PEAK_NOISE**2)
        if self.spread(index) > RESIDUAL:
            self._belief.observe(index, log_use, PEAK_NOISE**2)

    def fitted(self, index: int) -> None:
        """A run ended well, its peak unknown."""
        mean, variance = self._peak(index)
        limit, error = self._limit.moments()
        value, noise, _ = one_sided(limit - mean, variance + error, 0.0)
        self._limit.is_above(mean, variance)
        self._learn(index, limit - value, noise + error)

    def failed(self, index: int, share: float) -> float:
        """A run failed. ``share``: the probability that one that fits does. Returns the probability that it ran out."""
        mean, variance = self._peak(index)
        limit, error = self._limit.moments()
        value, noise, _ = one_sided(mean - limit, variance + error, share)
        over = 1 - float(self._limit.above(np.array([mean]), np.array([variance]))[0])
        self._limit.is_below(mean, variance, share)
        self._learn(index, limit + value, noise + error)
        return over / max(over + share * (1 - over), 1e-12)

    def _peak(self, index: int) -> tuple[float, float]:
        return float(self._belief.mean[index]), max(float(self._belief.variance[index]), 0.0)

    def _learn(self, index: int, value: float, noise: float) -> None:
        if math.isfinite(noise):
            self._belief.observe(index, value, noise)
