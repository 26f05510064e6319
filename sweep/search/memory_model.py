"""The posterior of the peak memory of all candidates, and so of their chance to run out of it. Pure.

log (peak / limit) = log of the predicted one, its kinds (states, activations, …) weighted by uncertain factors, and a
residual over layouts. Measured peaks condition it; so does, from one side, every run that ended well or ran out. The
same ends show at which peak runs fail: near the stated memory, unless a run worked well above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import memory
from sweep.physics.profiles import MemoryProfile
from sweep.search.gaussian import Floats, GaussianPosterior, Ints, normal_cdf, one_sided
from sweep.search.layout_kernel import LayoutKernel

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
STATED, STATED_ERROR = -0.04, 0.04
"""where runs fail, as the logarithm of a share of the stated memory: CUDA context, communication buffers and
fragmentation take 1 to 4 GB of 80"""
REFUTES, MISSTATED_ERROR = 3.0, 0.5
"""spreads above the limit at which a run that worked refutes it (the site names another GPU, or peaks count something
else), and the spread of where runs fail then"""
LIKE_RUNS = 8.0
"""measured peaks that the spreads above count as, once those of this sweep are further from their predictions: by so
many a spread is known within a factor of two. Of published rows 23 % were more than three of their spreads away"""
MOST_OBSERVED = 512
"""ends that are learned from: a further one costs more the more there are, and says less. Of 21,696 runs 2,000 took
24 s, these 2 s (benchmarks/large_sweep.py)"""


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
    """The posterior, conditioned on how runs ended."""

    def __init__(self, predicted: PredictedPeaks, kernel: LayoutKernel) -> None:
        linear = predicted.shares * predicted.spreads[:, None]
        squares = np.array([RESIDUAL, RESIDUAL / 2, RESIDUAL / 2]) ** 2

        everyone = np.arange(len(linear))

        def column(index: int) -> Floats:
            found: Floats = (
                linear @ linear[index] + squares @ kernel.columns(everyone[index : index + 1], everyone)[:, 0]
            )
            return found

        variance = (linear**2).sum(axis=1) + squares @ kernel.variances
        self._posterior = GaussianPosterior(predicted.log_use, variance, column)
        self._limit, self._limit_variance = STATED, STATED_ERROR**2
        self._predicted: set[int] = set()
        """measured ones"""
        self._squares = LIKE_RUNS
        """of the errors of their predictions, in the spreads that these had"""

    def fits(self, rows: Ints) -> Floats:
        """Probability that each row does not run out of memory."""
        spare = self._limit - self._posterior.mean[rows]
        return normal_cdf(spare / np.sqrt(self._limit_variance + self._variance(rows)))

    def spread(self, index: int) -> float:
        """Standard deviation of the logarithm of a run's peak."""
        return math.sqrt(max(float(self._posterior.variance[index]), 0.0))

    def measured(self, index: int, log_use: float) -> None:
        """A run ended well, with this peak."""
        if log_use > self._limit + REFUTES * math.sqrt(self._limit_variance + PEAK_NOISE**2):
            self._limit, self._limit_variance = log_use, MISSTATED_ERROR**2
        if index not in self._predicted:
            self._squares += (log_use - self._peak(index)[0]) ** 2 / (self.spread(index) ** 2 + PEAK_NOISE**2)
            self._predicted.add(index)
        spare, noise, _ = one_sided(self._limit - log_use, self._limit_variance + PEAK_NOISE**2, 0.0)
        self._move_limit(log_use, PEAK_NOISE**2, spare, noise)
        if self.spread(index) > RESIDUAL:
            self._observe(index, log_use, PEAK_NOISE**2)

    def fitted(self, index: int) -> None:
        """A run ended well, its peak unknown."""
        mean, variance = self._peak(index)
        spare, noise, _ = one_sided(self._limit - mean, variance + self._limit_variance, 0.0)
        self._learn(index, spare, noise)

    def failed(self, index: int, share: float) -> float:
        """A run failed. ``share``: the probability that one that fits does. Returns the probability that it ran out."""
        mean, variance = self._peak(index)
        lacking, noise, ran_out = one_sided(mean - self._limit, variance + self._limit_variance, share)
        self._learn(index, -lacking, noise)
        return ran_out

    def _peak(self, index: int) -> tuple[float, float]:
        return float(self._posterior.mean[index]), float(self._variance(index))

    def _variance(self, rows: Ints | int) -> Any:
        """Of peaks: wider than the posterior's where the errors of this sweep's predictions were."""
        return max(self._squares / (LIKE_RUNS + len(self._predicted)), 1.0) * np.maximum(
            self._posterior.variance[rows], 0.0
        )

    def _learn(self, index: int, spare: float, noise: float) -> None:
        """What a run leaves of the limit was observed, with an error of this variance: it says something of both."""
        if math.isfinite(noise):
            limit, variance = self._limit, self._limit_variance
            self._move_limit(*self._peak(index), spare, noise)
            self._observe(index, limit - spare, noise + variance)

    def _observe(self, index: int, log_use: float, noise: float) -> None:
        if self._posterior.observations < MOST_OBSERVED:
            self._posterior.observe(index, log_use, noise)

    def _move_limit(self, peak: float, variance: float, spare: float, noise: float) -> None:
        gain = self._limit_variance / (self._limit_variance + variance + noise)
        self._limit += gain * (peak + spare - self._limit)
        self._limit_variance *= 1 - gain
