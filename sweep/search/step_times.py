"""The posterior of the step times of all candidates, by the fit to those that were measured. Pure.

The fit looks at measured runs alone; then it conditions all candidates on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sweep.physics.prediction import Layouts
from sweep.search.gaussian import Floats, GaussianPosterior, Ints
from sweep.search.layout_kernel import ORDERS, LayoutKernel
from sweep.search.scales import Scales
from sweep.search.step_time_model import Fit, MeasuredTimes, linearised

MOST_ANCHORS = 256
"""a fit uses this many of the latest measurements; the factors keep what earlier ones taught"""
MOST_STORED = 512
"""columns of so many measured runs are stored: of a fit, and of all that condition it until the next"""
AT_ONCE = 16
"""columns are made: each takes a number per candidate and axis meanwhile"""


class StepTimes:
    """The logarithm of each candidate's seconds."""

    def __init__(self, layouts: Layouts, sizes: Ints, kernel: LayoutKernel) -> None:
        """``sizes``: number of each candidate's number of nodes."""
        self._layouts, self._sizes, self._kernel = layouts, sizes, kernel
        self._columns = Columns(kernel)

    def unmeasured(self) -> Fitted:
        """The fit to nothing."""
        usual = Scales(by_size=(1.0,) * (int(self._sizes.max(initial=0)) + 1))
        return self._to(Fit.prior(self._layouts, usual), np.empty(0, dtype=np.int64), np.empty(0))

    def fitted(self, indices: Ints, log_times: Floats, last: Fitted) -> Fitted:
        """The factors and scales that fit the measurements best, from those of the ``last`` fit, to fewer of them."""
        found = self._to(last.fit, indices[-MOST_ANCHORS:], log_times[-MOST_ANCHORS:])
        seen = found.seen
        fit, extra = seen.disturbances(found.fit)
        fit = seen.factors(fit, extra)
        fit = seen.scaled(fit, extra)
        return replace(found, fit=seen.factors(fit, extra), extra=extra)

    def posterior(self, fitted: Fitted) -> LogSeconds:
        """Of all candidates, given the measurements that were fitted."""
        mean, linear = linearised(self._layouts, fitted.fit)
        # The scale of tested values says little of the others, which keep the prior's.
        more = math.sqrt(max(Scales().single ** 2 - fitted.fit.scales.single**2, 0.0))
        untested = more * self._kernel.untested(fitted.measured, np.arange(len(self._sizes)))
        return LogSeconds(mean, np.concatenate([linear, untested], axis=1), self._sizes, self._columns, fitted)

    def _to(self, fit: Fit, measured: Ints, log_times: Floats) -> Fitted:
        within = self._kernel.within(measured)
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


class LogSeconds:
    """Mean and covariance of the candidates' times, as logarithms. Mutable: ``observe`` conditions it."""

    def __init__(self, mean: Floats, linear: Floats, sizes: Ints, columns: Columns, to: Fitted) -> None:
        """``mean``, ``linear``: of all candidates by the fit, as ``linearised`` has them."""
        self._linear, self._sizes, self._columns, self._scales = linear, sizes, columns, to.fit.scales
        variance = np.einsum("ij,ij->i", linear, linear)
        variance += self._scales.residual(columns.kernel.variances[:, None], sizes, sizes)
        self._posterior = GaussianPosterior(mean, variance, self._column, room=MOST_STORED)
        if len(to.measured):
            covariance = to.seen.covariance(linear[to.measured], self._scales, to.extra)
            errors = to.seen.log_times - mean[to.measured]
            self._posterior.observe_first(self._shared(to.measured), covariance, errors)

    def moments(self, rows: Ints) -> tuple[Floats, Floats]:
        """Mean and variance of some candidates."""
        return self._posterior.mean[rows], self._posterior.variance[rows]

    def covariance(self, rows: Ints) -> Floats:
        """Among some candidates."""
        explained, linear, sizes = self._posterior.explained(rows), self._linear[rows], self._sizes[rows]
        found: Floats = linear @ linear.T
        found += self._scales.residual(self._columns.kernel.within(rows), sizes[:, None], sizes)
        found -= explained.T @ explained
        return found

    def observe(self, index: int, value: float, noise: float) -> None:
        """Condition on candidate ``index`` having ``value``, with Gaussian error of variance ``noise``."""
        self._posterior.observe(index, value, noise)

    def _column(self, index: int) -> Floats:
        found: Floats = self._shared(np.array([index]))[0]
        return found

    def _shared(self, indices: Ints) -> Floats:
        """(indices, candidates): covariances before anything is observed."""
        found: Floats = self._linear[indices] @ self._linear.T
        found += self._scales.residual(self._columns.of(indices), self._sizes[indices][:, None], self._sizes)
        return found


class Columns:
    """Covariances of all candidates with measured ones, by order of the effect. The latest are stored."""

    def __init__(self, kernel: LayoutKernel) -> None:
        self.kernel = kernel
        self._everyone = np.arange(kernel.size)
        self._places: dict[int, int] = {}
        self._stored: Floats = np.empty((ORDERS, MOST_STORED, kernel.size))  # the system provides what is written to

    def of(self, indices: Ints) -> Floats:
        """(orders, indices, candidates)."""
        asked = indices.tolist()
        missing = [index for index in dict.fromkeys(asked) if index not in self._places]
        if missing and len(self._places) + len(missing) > MOST_STORED:
            self._places, missing = {}, list(dict.fromkeys(asked))
        for start in range(0, len(missing), AT_ONCE):
            some, used = missing[start : start + AT_ONCE], len(self._places)
            self._stored[:, used : used + len(some)] = self.kernel.columns(np.array(some), self._everyone)
            self._places.update(zip(some, range(used, used + len(some)), strict=True))
        first = self._places[asked[0]]
        places = [self._places[index] for index in asked]
        if places == list(range(first, first + len(asked))):
            return self._stored[:, first : first + len(asked)]  # no copy
        found: Floats = self._stored[:, places]
        return found
