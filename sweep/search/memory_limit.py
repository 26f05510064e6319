"""At which peak runs run out of memory: near the GPU's stated memory, unless runs show that this is not theirs. Pure.

Two hypotheses, each with a distribution of the logarithm of (peak at which runs fail / stated memory): the memory is as
stated; or it is not, since the site names another GPU or the recorded peaks count something else. Ends of runs move
the odds and both distributions, so a run that worked above the stated memory leaves the second one alone.
"""

from __future__ import annotations

import numpy as np

from sweep.search.gaussian import Floats, normal_cdf

STATED, STATED_ERROR = -0.04, 0.04
"""where the memory is as stated: CUDA context, communication buffers and fragmentation take 1 to 4 GB of 80"""
MISSTATED, MISSTATED_ERROR = 0.02, 1.0
"""prior probability that it is not, and the spread of the logarithm then: GPUs in use have 16 to 288 GB"""
_POINTS = np.linspace(-3.0, 3.0, 241)
"""standard deviations at which the distributions are kept"""
_QUARTERS = 4


class MemoryLimit:
    """The belief about the peak at which runs fail. Mutable: every end of a run may condition it."""

    def __init__(self, stated: float = STATED, error: float = STATED_ERROR) -> None:
        """``stated``, ``error``: mean and spread where the memory is as stated."""
        self._points = stated + np.outer([error, MISSTATED_ERROR], _POINTS)
        density = np.exp(-0.5 * _POINTS**2)
        self._weights = np.outer([1 - MISSTATED, MISSTATED], density / density.sum())
        self._hypotheses: list[tuple[float, float, float]] | None = None

    def is_above(self, peak: float, variance: float) -> None:
        """A run with about this peak (logarithm of its share of the memory) worked."""
        self._condition(self._exceeds(peak, variance))

    def is_below(self, peak: float, variance: float, share: float) -> None:
        """A run with about this peak failed. ``share``: probability that one that fits does."""
        self._condition(share + (1 - share) * (1 - self._exceeds(peak, variance)))

    def above(self, peaks: Floats, variances: Floats) -> Floats:
        """Probability that runs with about these peaks fit."""
        found = np.zeros(len(peaks))
        if self._hypotheses is None:
            self._hypotheses = self._summed_up()
        for odds, mean, variance in self._hypotheses:
            found += odds * normal_cdf((mean - peaks) / np.sqrt(variance + variances))
        return found

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the limit by the likelier hypothesis: what an end says of a peak is read by it."""
        likelier = int(np.argmax(self._weights.sum(axis=1)))
        points, weights = self._points[likelier], self._weights[likelier] / self._weights[likelier].sum()
        mean = float(points @ weights)
        return mean, max(float((points - mean) ** 2 @ weights), (points[1] - points[0]) ** 2)

    def _summed_up(self) -> list[tuple[float, float, float]]:
        """(probability, mean, variance) of the first, and of each quarter of the second: it may end abruptly."""
        found = []
        for points, weights, parts in zip(self._points, self._weights, (1, _QUARTERS), strict=True):
            below = np.cumsum(weights) - weights / 2
            part = np.minimum((parts * below / max(weights.sum(), 1e-300)).astype(np.int64), parts - 1)
            for mine in (weights * (part == number) for number in range(parts)):
                odds = max(float(mine.sum()), 1e-300)
                mean = float(points @ mine) / odds
                found.append((odds, mean, max(float((points - mean) ** 2 @ mine) / odds, (points[1] - points[0]) ** 2)))
        return found

    def _exceeds(self, peak: float, variance: float) -> Floats:
        steps = np.diff(self._points, axis=1)[:, :1]
        return normal_cdf((self._points - peak) / np.sqrt(variance + (steps / 2) ** 2))

    def _condition(self, likelihood: Floats) -> None:
        found = self._weights * np.maximum(likelihood, 1e-12)
        self._weights, self._hypotheses = found / found.sum(), None
