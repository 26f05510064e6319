"""What a training job with failures gets of its GPUs: the checkpoint interval, and where the time goes. Pure.

Failures are a Poisson process, one of any GPU ends the job. Young 1974 (CACM 17:530-531), Daly 2006 (Future Generation
Computer Systems 22:303-312). All functions take numbers or numpy arrays, in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FAILURES_PER_GPU_DAY = 419 / (54 * 16384)
"""unexpected interruptions of Llama 3's training on 16,384 H100 in 54 days (arXiv 2407.21783, section 3.3.4)"""
SEEN_FAILURES = 419
SECONDS_PER_DAY = 86400.0
LIKELY = 1.645
"""standard deviations on each side that hold 90 % of a normal distribution"""


def count_interval(count: int) -> tuple[float, float]:
    """Between which means of a Poisson distribution a count is likely, with a probability of 0.9: exact, Garwood 1936.

    >>> [round(end, 2) for end in count_interval(25)]
    [17.38, 34.92]
    """
    return (_mean_of(count - 1, 0.95) if count else 0.0), _mean_of(count, 0.05)


def _mean_of(count: int, chance: float) -> float:
    """The mean of a Poisson distribution of which at most ``count`` has this chance."""
    low, high = 0.0, 2.0 * count + 10.0
    for _ in range(60):
        mean = (low + high) / 2
        terms = (math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(count + 1))
        low, high = (mean, high) if sum(terms) > chance else (low, mean)
    return low


def known_rate(failures: int, gpu_days: float) -> tuple[float, int]:
    """(failures per GPU-day, failures that were seen): one's own rate where it is better known than the published one.

    That is where its interval is narrower, or apart from the published one's: then the cluster is another kind.
    """
    if not failures or not gpu_days:
        return FAILURES_PER_GPU_DAY, SEEN_FAILURES
    low, high = (end / gpu_days for end in count_interval(failures))
    least, most = (end * FAILURES_PER_GPU_DAY / SEEN_FAILURES for end in count_interval(SEEN_FAILURES))
    own = high - low < most - least or low > most or high < least
    return (failures / gpu_days, failures) if own else (FAILURES_PER_GPU_DAY, SEEN_FAILURES)


def saves(params: Mapping[str, object]) -> bool:
    """Whether a run with these parameters writes checkpoints."""
    return params.get("checkpoint", "none") != "none"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job's costs. Each field is a number or an array."""

    step_s: Any
    gpus: Any
    stall_s: Any
    """that training waits for a checkpoint"""
    slowdown: Any
    """of the steps while it is written, relative to others: 0.1 is a tenth longer"""
    durable_s: Any
    """from the start of a checkpoint until it is whole"""
    restart_s: Any
    """from a failure to the first step: detection, start, restore"""
    failures_per_gpu_day: Any

    @property
    def between_failures_s(self) -> Any:
        """Mean time between failures of the job."""
        return SECONDS_PER_DAY / (self.failures_per_gpu_day * self.gpus)

    @property
    def lag_s(self) -> Any:
        """How long after its stall a checkpoint is not whole yet: a failure then loses the interval before too."""
        return np.maximum(self.durable_s - self.stall_s, 0.0)

    @property
    def checkpoint_s(self) -> Any:
        """What a checkpoint costs: its stall, and what is trained less while it is written."""
        slow = np.maximum(self.slowdown, 0.0)
        return self.stall_s + self.lag_s * slow / (1 + slow)

    @property
    def interval_s(self) -> Any:
        """Training between two checkpoints, in whole steps: Daly's equation 37, at least until the one before is whole.

        >>> job = Job(step_s=1, gpus=1, stall_s=300, slowdown=0, durable_s=300, restart_s=600, failures_per_gpu_day=1)
        >>> float(job.interval_s) / 60
        116.7
        """
        mean, cost = self.between_failures_s, self.checkpoint_s
        share = cost / (2 * mean)
        best = np.sqrt(2 * cost * mean) * (1 + np.sqrt(share) / 3 + share / 9) - cost
        best = np.where(share < 1, best, mean)
        return np.maximum(1, np.round(np.maximum(best, self.lag_s) / self.step_s)) * self.step_s

    @property
    def shares(self) -> tuple[Any, Any, Any, Any]:
        """(training that counts, checkpoints, lost work, restarts): shares of time by Daly's complete cost function.

        A failure costs the restart, which may itself fail, what was trained since the last whole checkpoint, and the
        lag of that.
        """
        mean, interval = self.between_failures_s, self.interval_s
        cycle = interval + self.checkpoint_s
        wall = mean * np.exp((self.restart_s + self.lag_s) / mean) * np.expm1(cycle / mean)
        restarts = -np.expm1(-self.restart_s / mean)
        return interval / wall, self.checkpoint_s / wall, 1 - cycle / wall - restarts, restarts

    def likely(
        self, value: Any, low: Any, high: Any, wall_s: Any = np.inf, seen: Any = SEEN_FAILURES
    ) -> tuple[Any, Any]:
        """Where a value of the training that counts is with a probability of 0.9, in a job of so much time.

        ``low`` and ``high``: by the spread of its steps. Added: the chance of when failures come, whose losses are a
        compound Poisson process, and how well their rate is known from as many as were ``seen``.
        """
        cycle, restart = self.interval_s + self.checkpoint_s, self.restart_s + self.lag_s
        square = restart**2 + restart * cycle + cycle**2 / 3
        lost = self.shares[2] + self.shares[3]
        chance = LIKELY * np.sqrt(square / (self.between_failures_s * wall_s) + lost**2 / seen) / (1 - lost)
        most = value / (1 - lost)  # without a failure
        below, above = (value * np.hypot(end / value - 1, chance) for end in (low, high))
        return np.maximum(value - below, 0.0), np.maximum(np.minimum(value + above, most), high)
