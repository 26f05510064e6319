"""The posterior of the step times of all candidates, by the fit to those that were measured. Pure.

The fit looks at measured runs alone. What it says of the candidates of one number of nodes, which are a part, is
computed when they are asked for, as a search does of one number at a time. What all observations say of one part does
not depend on the other parts' candidates, only on those that were observed: so a part that is not asked for costs
nothing, and one that is asked for late is what it had been early, but for rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sweep.physics.prediction import Layouts
from sweep.search.gaussian import Floats, GaussianPosterior, Ints, Observation, Observed
from sweep.search.layout_kernel import ORDERS, LayoutKernel
from sweep.search.scales import USUAL, Scales
from sweep.search.step_time_model import Fit, MeasuredTimes, linearised

MOST_ANCHORS = 256
"""a fit uses this many of the latest measurements; the factors keep what earlier ones taught"""
MOST_STORED = 512
"""covariances of so many measured runs are stored: those of a fit, and of all that condition it until the next"""


class StepTimes:
    """The logarithm of each candidate's seconds."""

    def __init__(
        self,
        layouts: Layouts,
        sizes: Ints,
        kernel: LayoutKernel,
        expected: Scales = USUAL,
        freedom: float = math.inf,
    ) -> None:
        """``sizes``: number of each candidate's number of nodes; ``expected``: scales before anything is measured, and
        ``freedom``: how many runs they count as (``Fit``).
        """
        self._expected, self._freedom = expected, freedom
        self._layouts, self._sizes, self._kernel = layouts, sizes, kernel
        self._parts = Parts(sizes)
        self._sides = [(layouts.take(rows), Covariances(kernel, rows)) for rows in self._parts.rows]

    def unmeasured(self) -> Fitted:
        """The fit to nothing."""
        usual = replace(self._expected, by_size=(1.0,) * (int(self._sizes.max(initial=0)) + 1))
        return self._to(Fit.prior(self._layouts, usual, self._freedom), np.empty(0, dtype=np.int64), np.empty(0))

    def fitted(self, indices: Ints, log_times: Floats, last: Fitted) -> Fitted:
        """The factors and scales that fit the measurements best, from those of the ``last`` fit, to fewer of them."""
        found = self._to(last.fit, indices[-MOST_ANCHORS:], log_times[-MOST_ANCHORS:])
        seen = found.seen
        fit, extra = seen.disturbances(found.fit)
        fit = seen.factors(fit, extra)
        fit = seen.scaled(fit, extra)
        return replace(found, fit=seen.factors(fit, extra), extra=extra)

    def posterior(self, fitted: Fitted) -> PosteriorInParts:
        """Of all candidates, given the measurements that were fitted."""
        return PosteriorInParts(self._parts, self._sides, self._kernel, fitted)

    def _to(self, fit: Fit, measured: Ints, log_times: Floats) -> Fitted:
        within = self._kernel.columns(measured, measured)
        seen = MeasuredTimes(self._layouts.take(measured), self._sizes[measured], log_times, within)
        return Fitted(fit, measured, seen, np.zeros(len(measured)))


@dataclass(frozen=True)
class Fitted:
    """A fit, and the runs that it is to."""

    fit: Fit
    measured: Ints
    seen: MeasuredTimes
    extra: Floats
    """additional variance of the noise of each measurement, by how likely it was disturbed"""

    @cached_property
    def errors(self) -> tuple[Floats, Floats]:
        """Of the log times, and the inverse of their covariance."""
        return self.seen.errors(self.fit)


class Covariances:
    """Of some candidates with measured ones, by order of the effect. The latest that were asked for are stored."""

    def __init__(self, kernel: LayoutKernel, rows: Ints) -> None:
        self._rows, self._kernel = rows, kernel
        self._places: dict[int, int] = {}
        self._stored: Floats = np.empty((ORDERS, MOST_STORED, len(rows)))  # the system provides what is written to

    def of(self, indices: Ints) -> Floats:
        """(orders, indices, candidates)."""
        asked = indices.tolist()
        missing = [index for index in dict.fromkeys(asked) if index not in self._places]
        if missing and len(self._places) + len(missing) > MOST_STORED:
            self._places, missing = {}, list(dict.fromkeys(asked))
        if missing:
            used, size = len(self._places), len(self._places) + len(missing)
            self._stored[:, used:size] = self._kernel.columns(np.array(missing, dtype=np.int64), self._rows)
            self._places.update(zip(missing, range(used, size), strict=True))
        places = [self._places[index] for index in asked]
        first, last = places[0], places[-1]
        if places == list(range(first, last + 1)):
            return self._stored[:, first : last + 1]  # no copy
        found: Floats = self._stored[:, places]
        return found


class Parts:
    """Which candidates are in which part."""

    def __init__(self, of: Ints) -> None:
        """``of``: number of each candidate's part, from 0."""
        self.of = of
        self.rows = [np.flatnonzero(of == part) for part in range(int(of.max(initial=-1)) + 1)]
        self.places = np.zeros(len(of), dtype=np.int64)
        """of each candidate among those of its part"""
        for rows in self.rows:
            self.places[rows] = np.arange(len(rows))

    def split(self, rows: Ints) -> list[tuple[int, Ints]]:
        """(part, which of the rows are in it)."""
        of = self.of[rows]
        return [(part, np.flatnonzero(of == part)) for part in np.flatnonzero(np.bincount(of)).tolist()]


class PosteriorInParts:
    """Mean and covariance of each candidate's logarithm of seconds. Mutable: ``observe`` conditions it."""

    def __init__(
        self, parts: Parts, sides: list[tuple[Layouts, Covariances]], kernel: LayoutKernel, fitted: Fitted
    ) -> None:
        """Conditioned on the runs that were ``fitted``."""
        self._parts, self._sides, self._kernel, self._fitted = parts, sides, kernel, fitted
        self._scales = fitted.fit.scales
        # The scale of tested values says little of the others, which keep the prior's.
        self._more = math.sqrt(max(fitted.fit.expected.single**2 - self._scales.single**2, 0.0))
        mean, self._shared = linearised(fitted.seen.layouts, fitted.fit)
        """slopes of the fitted runs, by everything uncertain that they share with anything"""
        covariance = fitted.seen.covariance(self._shared, self._scales, fitted.extra)
        self._observed = Observed.of(covariance, fitted.seen.log_times - mean)
        self._further: list[tuple[int, Observation]] = []
        self._posteriors: dict[int, GaussianPosterior] = {}
        self._linear: dict[int, tuple[Floats, Floats]] = {}

    def moments(self, rows: Ints) -> tuple[Floats, Floats]:
        """Mean and variance of some candidates."""
        mean, variance = np.empty(len(rows)), np.empty(len(rows))
        for part, at in self._parts.split(rows):
            posterior, places = self._of(part), self._parts.places[rows[at]]
            mean[at], variance[at] = posterior.mean[places], posterior.variance[places]
        return mean, variance

    def covariance(self, rows: Ints) -> Floats:
        """Among some candidates."""
        explained = np.empty((len(self._fitted.measured) + len(self._further), len(rows)))
        for part, at in self._parts.split(rows):
            explained[:, at] = self._of(part).explained(self._parts.places[rows[at]])
        sizes, linear = self._parts.of[rows], self._slopes(rows)
        found: Floats = linear @ linear.T
        found += self._scales.residual(self._kernel.columns(rows, rows), sizes[:, None], sizes)
        return np.asarray(found - explained.T @ explained)

    def observe(self, index: int, value: float, noise: float) -> None:
        """Condition on candidate ``index`` having ``value``, with Gaussian error of variance ``noise``."""
        part, place = int(self._parts.of[index]), int(self._parts.places[index])
        self._further.append((index, self._of(part).observation(place, value, noise)))

    def _of(self, part: int) -> GaussianPosterior:
        first = self._fitted.measured
        if part not in self._posteriors:
            mean, linear = self._linearised(part)
            variance = np.einsum("ij,ij->i", linear, linear)
            variance += self._scales.residual(self._kernel.variances[:, None], part, part)
            posterior = GaussianPosterior(mean, variance, room=len(first) + len(self._further) + 1)
            if len(first):
                posterior.learn_first(self._between(first, part), self._observed)
            self._posteriors[part] = posterior
        posterior = self._posteriors[part]
        if further := self._further[posterior.observations - len(first) :]:
            indices = np.array([index for index, _ in further], dtype=np.int64)
            for covariance, (_, seen) in zip(self._between(indices, part), further, strict=True):
                posterior.learn(covariance, seen)
        return posterior

    def _between(self, observed: Ints, part: int) -> Floats:
        """(observed, a part's candidates): covariances before any run conditions them."""
        slopes = self._shared if observed is self._fitted.measured else self._slopes(observed)
        linear = self._linearised(part)[1][:, : slopes.shape[1]]  # no measured run has what is untested
        found: Floats = slopes @ linear.T
        orders = self._sides[part][1].of(observed)
        found += self._scales.residual(orders, self._parts.of[observed][:, None], part)
        return found

    def _slopes(self, rows: Ints) -> Floats:
        """Of some candidates by everything uncertain, in its spreads."""
        split = self._parts.split(rows)
        found = np.empty((len(rows), self._linearised(split[0][0])[1].shape[1]))
        for part, at in split:
            found[at] = self._linearised(part)[1][self._parts.places[rows[at]]]
        return found

    def _linearised(self, part: int) -> tuple[Floats, Floats]:
        """Means of a part's candidates, and their slopes."""
        if part not in self._linear:
            mean, linear = linearised(self._sides[part][0], self._fitted.fit)
            untested = self._more * self._kernel.untested(self._fitted.measured, self._parts.rows[part])
            self._linear[part] = mean, np.concatenate([linear, untested], axis=1)
        return self._linear[part]
