"""Remaining time of a pilot's job, and time limit of its next run. Pure; times are unix seconds."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.pilot.job_spec import JobSpec
from sweep.planning.runs import ASSUMED_RUN_S

UNKNOWN_RUN = 2.0
"""before any run was measured in this pilot, the next may take this many times the assumed duration"""
MARGIN_S = 45.0
"""reserved before the end of the job, for a full teardown: GRACE_S and CLEAN_S, whose last seconds may be in Slurm's
KillWait"""
LATELY = 20
"""number of latest attempts from which the next one's duration is estimated"""


class PilotTime:
    """The time of one pilot."""

    def __init__(self, spec: JobSpec, environment: Mapping[str, str], now: float) -> None:
        self._spec = spec
        end = environment.get("SLURM_JOB_END_TIME", "")  # Slurm states it from 22.05 on; else the limit counts from now
        began = environment.get("SLURM_JOB_START_TIME", "")
        self.began_at = float(began) if began.isdigit() else None
        """of its job, unix seconds; None where the scheduler does not say"""
        self._ends_at = min(float(end) if end.isdigit() else float("inf"), now + spec.time_limit_s)
        self._durations: list[float] = []

    def took(self, seconds: float) -> None:
        """Note an attempt's duration, from its choice to its record."""
        self._durations.append(seconds)

    def left_s(self, now: float) -> float:
        """Time left for runs."""
        return self._ends_at - now - min(MARGIN_S, 0.1 * self._spec.time_limit_s)

    def next_run_s(self) -> float:
        """Estimate for the next run: somewhat more than the longest recent one."""
        if self._durations:
            return 1.5 * max(self._durations[-LATELY:])
        return min(UNKNOWN_RUN * ASSUMED_RUN_S, self._spec.limits.attempt_s, 0.5 * self._spec.time_limit_s)
