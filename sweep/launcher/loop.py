"""The launcher's loop: poll and act, until all is done."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable

from sweep.executors.executor import Executor
from sweep.launcher.finalists import plan_finalists
from sweep.launcher.lost_attempts import mark_late_attempts_lost
from sweep.launcher.session import Session
from sweep.launcher.submission import Submission
from sweep.launcher.watch import Watch
from sweep.plugins import find_executor
from sweep.state.events import CancelRequested
from sweep.state.state import SweepState
from sweep.store.follow import FollowedSweep
from sweep.store.lease import Lease
from sweep.store.removal import Removal
from sweep.store.sweep import Sweep

POLL_S = 0.5
"""how often the journals are polled; the scheduler is polled far less often"""
REFUSED_S = 2.0
"""pause after a step that the file system refused: far below a pilot's time-out (``watch.TIMEOUT_S``), and few
messages"""
HUNG_S = 15.0
"""a step that took this long, or failed, waited for the file system: pilots' heartbeats were delayed as well"""


def executor_of(sweep: Sweep) -> Executor:
    """The executor that a sweep was started with."""
    executor: Executor = find_executor(sweep.executor)(sweep.site, sweep.directory.path)
    return executor


class Launcher:
    """The loop of a session. The callback `on_step` may show the sweep to the user after each step."""

    def __init__(self, sweep: Sweep, lease: Lease, executor: Executor) -> None:
        self._session = Session(sweep, lease, executor)
        self._watch = Watch(self._session)
        self._submission = Submission(self._session)
        self._removal = Removal(sweep.directory.path, "launcher")

    @property
    def followed(self) -> FollowedSweep:
        """The sweep as known to this session."""
        return self._session.followed

    @property
    def sweep_state(self) -> SweepState:
        """What is known of the sweep."""
        return self._session.sweep_state

    @property
    def done(self) -> bool:
        """No run waits (or may start) and no pilot is open."""
        return self._session.done

    def run(self, on_step: Callable[[FollowedSweep], None]) -> None:
        """Watch and submit until all is done; retries while the file system fails.

        Raises StuckError, LeaseLostError, and SweepError where the sweep directory was removed.
        """
        while not (self._tolerant_step(on_step) and self.done):
            self._check_stuck()
            time.sleep(POLL_S)
        self._session.lease.check()  # only the holder writes results and figures
        self._watch.cancel_requeued()
        self.close()

    def step(self) -> None:
        """Poll once and act on it."""
        session = self._session
        session.followed.refresh_plans()
        began = time.monotonic()
        session.refresh()
        if time.monotonic() - began > HUNG_S:
            self._watch.reset_timeouts()
        self._watch.check()
        if self.sweep_state.cancelled:
            self._watch.cancel_all()
        else:
            if session.done:
                plan_finalists(session)
            self._submission.top_up()
        session.show_alive()

    def cancel(self, timeout_s: float, on_step: Callable[[FollowedSweep], None]) -> bool:
        """Cancel pilots and wait until they are gone. True if all are."""
        self._session.write(CancelRequested(time=time.time()))
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._tolerant_step(on_step) and self.done:
                return True
            time.sleep(POLL_S)
        return False

    def close(self) -> None:
        """End the session and free the lease."""
        self._session.close()

    def _tolerant_step(self, on_step: Callable[[FollowedSweep], None]) -> bool:
        """One step and its callback. False if the file system failed: then what is known may be out of date.

        Raises SweepError where the sweep directory was removed.
        """
        try:
            self.step()
        except OSError as error:
            self._removal.check(error)
            self._watch.reset_timeouts()
            print(f"cannot access the sweep directory, trying again: {error}", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(REFUSED_S)
            return False
        self._removal.accessed()
        on_step(self.followed)
        return True

    def _check_stuck(self) -> None:
        """Raise StuckError if pilots repeatedly start no attempt and nothing else is open: no submission loop."""
        if not self._submission.infeasible():
            return
        mark_late_attempts_lost(self._session)  # a run that is claimed but not running looks to pilots like no work
        if widths := self._submission.infeasible():
            raise self._submission.why_stuck(widths)


def give_back() -> None:
    """Return freed memory to the system: allocators retain a large plan's memory, and a launcher runs for days.

    Measured for a plan of 5,000 runs: 205 MiB before, 129 MiB after. No effect where the C library is not glibc.
    """
    gc.collect()
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
