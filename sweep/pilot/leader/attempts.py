"""The running attempts: executes each, can stop all, and tracks which ones overlapped in time."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Sequence, Set
from dataclasses import replace

from sweep.contract import Run, SlowBound
from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_state import AttemptResult, AttemptState, diagnosis_of
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.watchdog import StopReason
from sweep.plugins import WORKLOAD


class Attempts:
    """Runs the attempts of a pilot."""

    def __init__(self, spec: JobSpec) -> None:
        self.stopping: StopReason | None = None
        """why all of them are being stopped"""
        self._spec = spec
        self._workload = functools.cache(WORKLOAD.find)  # those of other packages: every package is asked
        self._runners: dict[str, AttemptRunner] = {}
        self._concurrent: dict[str, set[str]] = {}
        """running attempt -> those that overlapped it in time"""

    def begin(self, name: str) -> Set[str]:
        """The attempts that overlap this one: a set that later attempts are added to."""
        for others in self._concurrent.values():
            others.add(name)
        self._concurrent[name] = set(self._concurrent)
        return self._concurrent[name]

    async def conduct(
        self,
        name: str,
        run: Run,
        links: Sequence[Link],
        limit_s: float,
        bound: SlowBound | None = None,
    ) -> AttemptResult:
        """Run an attempt. An error fails it alone, and loses its nodes where ranks may be left there."""
        clock, limits = links[0].clock, replace(self._spec.limits, attempt_s=limit_s)
        unmeasured = AttemptState(name, run, [link.node for link in links], limits, clock.now())
        try:
            runner = AttemptRunner(
                name, run, self._workload(run.workload), links, limits, self._spec.seed, self._spec.gpu, bound,
                self._spec.checkpoint_dir, self._spec.compiled_dir,
            )  # fmt: skip
            return await self.follow(name, runner)
        except SweepError as error:  # a plug-in that the login node has and this one has not
            unmeasured.end(StopReason(Outcome.IMPORT_ERROR, str(error)))
        except Exception:
            for link in links:
                link.clean = False
            unmeasured.end(StopReason(Outcome.UNKNOWN, "the pilot failed: " + traceback.format_exc(limit=-3)))
        finally:
            del self._concurrent[name]
        return AttemptResult(unmeasured, diagnosis_of(unmeasured), unmeasured.moments.durations_s(clock.now()))

    async def follow(self, name: str, runner: AttemptRunner) -> AttemptResult:
        """The result of an attempt that is stopped with the others."""
        self._runners[name] = runner
        if self.stopping is not None:
            runner.stop(self.stopping, short=True)
        try:
            return await runner.conduct()
        finally:
            del self._runners[name]

    def stop(self, verdict: StopReason) -> None:
        """Stop all, and those that begin from now on: no evidence, short timeouts."""
        self.stopping = verdict
        for runner in self._runners.values():
            runner.stop(verdict, short=True)
