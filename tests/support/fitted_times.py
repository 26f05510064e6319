"""The step-time model fitted to some runs, as a search fits it that refits twice."""

from sweep.search.candidates import Candidates
from sweep.search.gaussian import Floats, Ints
from sweep.search.step_time_model import Fit
from sweep.search.step_times import PosteriorInParts, StepTimes


def fitted_to(c: Candidates, rows: Ints, log_times: Floats) -> tuple[Fit, PosteriorInParts]:
    """The fit, and the posterior given it."""
    times = StepTimes(c.layouts, c.sizes, c.kernel)
    found = times.unmeasured()
    for _ in range(2):
        found = times.fitted(rows, log_times, found)
    return found.fit, times.posterior(found)
