"""The posterior of all candidates after a number of ends: their rates, and their chances to succeed. Pure.

A function of the ends in their order. Between refits each end conditions the Gaussian posterior at once; the refits, at
fixed numbers of measurements, each find factors and scales from those of the one before.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from sweep.outcomes import Outcome
from sweep.search.candidates import Candidates
from sweep.search.gaussian import Floats, Ints
from sweep.search.memory_model import Peaks
from sweep.search.step_time_model import FREEDOM, Fit, disturbance_variance
from sweep.search.step_times import MOST_ANCHORS, PosteriorInParts, StepTimes

REFIT_GROWTH, REFIT_EVERY = 1.25, 200
"""times are refitted when their number, or that of repeats among them, has grown by this factor, or by this many"""
OTHER_FAILURES = 0.1
"""prior probability that a run fails for another reason than memory"""
PRIOR_WEIGHT, BASE_WEIGHT = 2.0, 50.0
"""runs that the share of failures of the whole sweep counts as for one run, and OTHER_FAILURES for that share"""
ENDS_AT_ONCE = 128
"""whose similarity to all others is computed at once"""
LENGTH = 2.0
"""doublings (of tp, pp, …) over which a failure is informative"""


class End(NamedTuple):
    """How a run ended."""

    outcome: Outcome
    log_rate: float | None
    peak_memory_bytes: float | None


class Errors(NamedTuple):
    """By how much longer (log) measured runs took than expected before any was, and how these errors vary together."""

    fits: int
    """how often times were fitted"""
    runs: Sequence[int]
    late: Floats
    inverse: Floats
    """of their covariance"""


class Posterior:
    """Mutable: ``learn`` adds ends, in their order."""

    def __init__(self, candidates: Candidates) -> None:
        _one_thread()
        self._of = candidates.duplicates
        """of each candidate: its configuration, of which all that follows is"""
        candidates = candidates.take(np.unique(self._of, return_index=True)[1])
        self._candidates = candidates
        freedom = FREEDOM if candidates.by_size else math.inf
        self._times = StepTimes(candidates.layouts, candidates.sizes, candidates.kernel, candidates.scales, freedom)
        self._fitted = self._times.unmeasured()
        self._log_seconds = self._times.posterior(self._fitted)
        self._measured: list[int] = []
        self._runs: list[int] = []
        """of each measurement, the candidate"""
        self._log_times: list[float] = []
        self._different: set[int] = set()
        self._repeats: list[int] = []
        """the number among all of each measurement of a configuration that had one: these show the noise"""
        self._refitted = self._taught = self.refits = 0
        self._peaks = None if candidates.peaks is None else Peaks(candidates.peaks, candidates.kernel)
        self._features, places = np.unique(candidates.features, axis=0, return_inverse=True)
        self._places: Ints = places.ravel()
        """of each configuration among the different features"""
        self._failed, self._tried = np.zeros(len(self._features)), np.zeros(len(self._features))
        """per features, the weights of similar runs that failed for other reasons than memory, and of all tried"""
        self._ended: dict[int, tuple[float, float]] = {}
        """features -> the weights of what ended with them, all and failed, that the two above lack"""
        self._all_failed = self._all_tried = 0.0

    def learn(self, ends: Sequence[tuple[int, End]]) -> None:
        """Further ends, in their order."""
        for candidate, end in ends:
            index = int(self._of[candidate])
            worked, memory = float(end.outcome is Outcome.OK), 0.0
            if self._peaks is not None:
                memory = self._learn_memory(self._peaks, index, end)
            weight = 1.0 - memory
            place = int(self._places[index])
            tried, failed = self._ended.get(place, (0.0, 0.0))
            self._ended[place] = (tried + weight, failed + weight * (1 - worked))
            self._all_tried += weight
            self._all_failed += weight * (1 - worked)
            if end.log_rate is not None:
                self._measured.append(index)
                if index in self._different:
                    self._repeats.append(len(self._measured))
                self._different.add(index)
                self._runs.append(candidate)
                self._log_times.append(float(self._candidates.log_tokens_per_gpu[index]) - end.log_rate)
        last = self._refitted
        while (following := self._refit_after(last)) <= len(self._measured):
            last, self.refits = following, self.refits + 1
            mine = np.array(self._measured[:last], dtype=np.int64)
            self._fitted = self._times.fitted(mine, np.array(self._log_times[:last]), self._fitted)
        if last != self._refitted:
            self._log_seconds = self._times.posterior(self._fitted)
            self._taught = self._refitted = last

    def _refit_after(self, last: int) -> int:
        """The number of measurements at which times are fitted again, after a fit to ``last`` of them."""
        following = int(bisect_right(self._repeats, last) * REFIT_GROWTH)
        return min(int(last * REFIT_GROWTH) + 1, last + REFIT_EVERY, *self._repeats[following : following + 1])

    @property
    def fit(self) -> Fit:
        """The latest."""
        return self._fitted.fit

    def errors(self) -> Errors:
        """Of the measurements of the latest fit."""
        return Errors(self.refits, self._runs[: self._refitted][-MOST_ANCHORS:], *self._fitted.errors)

    def log_rates(self, rows: Ints) -> Floats:
        """Mean of the logarithm of tokens/s/GPU."""
        rows = self._of[rows]
        found: Floats = self._candidates.log_tokens_per_gpu[rows] - self._observed().moments(rows)[0]
        return found

    def spreads(self, rows: Ints) -> Floats:
        """Standard deviation of the same, without the noise of a measurement."""
        return np.asarray(np.sqrt(np.maximum(self._observed().moments(self._of[rows])[1], 0.0)))

    def covariance(self, rows: Ints) -> Floats:
        """Of the logarithms of rates without noise, among some candidates."""
        return self._observed().covariance(self._of[rows])

    def success(self, rows: Ints) -> Floats:
        """Probability that a run works."""
        rows = self._of[rows]
        found = 1 - self._others(rows)
        return found if self._peaks is None else found * self._peaks.fits(rows)

    def _observed(self) -> PosteriorInParts:
        """The posterior of the times, conditioned on what was measured since the last refit."""
        for place in range(self._taught, len(self._measured)):
            index, value = self._measured[place], self._log_times[place]
            mean, variance = self._log_seconds.moments(np.array([index]))
            slower, known = np.array([value]) - mean, variance + self.fit.scales.noise**2
            extra = float(disturbance_variance(slower, known, self.fit.disturbed, self.fit.freedom + place)[0])
            self._log_seconds.observe(index, value, self.fit.scales.noise**2 + extra)
        self._taught = len(self._measured)
        return self._log_seconds

    def _learn_memory(self, peaks: Peaks, index: int, end: End) -> float:
        """Returns the probability that the run ran out of memory."""
        if end.outcome is Outcome.OOM_CUDA:
            peaks.failed(index, 0.0)
            return 1.0
        if end.outcome is Outcome.UNKNOWN:  # it may have been an out-of-memory that nothing stated
            return peaks.failed(index, float(self._others(np.array([index]))[0]))
        if end.outcome is Outcome.OK and end.peak_memory_bytes:
            peaks.measured(index, float(np.log(end.peak_memory_bytes / self._candidates.memory_limit_bytes)))
        elif end.outcome is Outcome.OK:
            peaks.fitted(index)
        return 0.0

    def _others(self, rows: Ints) -> Floats:
        """Probability of a failure other than of memory, by similar runs that were tried."""
        # Count what ended for all similar runs.
        ended, squares = list(self._ended.items()), (self._features**2).sum(axis=1)
        for first in range(0, len(ended), ENDS_AT_ONCE):
            those, weights = map(np.array, zip(*ended[first : first + ENDS_AT_ONCE], strict=True))
            apart = squares[those, None] + squares - 2 * self._features[those] @ self._features.T
            self._tried, self._failed = (self._tried, self._failed) + weights.T @ np.exp(apart / (-2 * LENGTH**2))
        self._ended.clear()
        base = (BASE_WEIGHT * OTHER_FAILURES + self._all_failed) / (BASE_WEIGHT + self._all_tried)
        places = self._places[rows]
        found: Floats = (PRIOR_WEIGHT * base + self._failed[places]) / (PRIOR_WEIGHT + self._tried[places])
        return found


@functools.cache
def _one_thread() -> None:
    """Keep numpy's matrix products to one thread, in this process and from now on.

    A leader shares its node with the ranks that it measures. With a thread per core, on cores that others use, a
    product of 128 x 128 takes 100 times as long: threads wait for each other (`benchmarks/choose_speed.py`).
    """
    threadpool_limits(1, user_api="blas")
