"""The running attempts: executes each, can stop all, and tracks which ones overlapped in time."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

from sweep.contract import Run
from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_result import AttemptResult
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.watchdog import StartLimits, StopReason
from sweep.plugins import WORKLOAD


class Attempts:
    """Runs the attempts of a pilot."""

    def __init__(self, spec: JobSpec) -> None:
        self.stopping: StopReason | None = None
        """why all of them are being stopped"""
        self._spec = spec
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
        self, name: str, run: Run, links: Sequence[Link], limit_s: float, start_limits: StartLimits | None
    ) -> AttemptResult:
        """Run an attempt. An error fails it alone, and loses its nodes where ranks may be left there."""
        nodes = [link.node for link in links]
        try:
            limits = replace(self._spec.limits, attempt_s=limit_s)
            seed, gpu = self._spec.seed, self._spec.gpu
            runner = AttemptRunner(name, run, WORKLOAD.find(run.workload), links, limits, seed, start_limits, gpu)
            with self.running(name, runner):
                return await runner.conduct()
        except SweepError as error:  # a plug-in that the login node has and this one has not
            return AttemptResult.none(run, nodes, Outcome.IMPORT_ERROR, str(error))
        except Exception:
            for link in links:
                link.clean = False
            text = "the pilot failed: " + traceback.format_exc(limit=-3)
            return AttemptResult.none(run, nodes, Outcome.UNKNOWN, text)
        finally:
            del self._concurrent[name]

    @contextmanager
    def running(self, name: str, runner: AttemptRunner) -> Iterator[None]:
        """While it is conducted, it is stopped with the others."""
        self._runners[name] = runner
        if self.stopping is not None:
            runner.stop(self.stopping, short=True)
        try:
            yield
        finally:
            self._runners.pop(name, None)

    def stop(self, verdict: StopReason) -> None:
        """Stop all, and those that begin from now on: no evidence, short timeouts."""
        self.stopping = verdict
        for runner in self._runners.values():
            runner.stop(verdict, short=True)
