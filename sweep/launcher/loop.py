"""The launcher's loop: poll and act, until all is done."""

from __future__ import annotations

import time
from collections.abc import Callable

from sweep.launcher.launcher import Launcher
from sweep.launcher.lost_attempts import mark_late_attempts_lost
from sweep.launcher.submission import Submission
from sweep.launcher.watch import Watch
from sweep.search.remeasure import room
from sweep.state.events import CancelRequested
from sweep.store.extend import extend, repeats_of
from sweep.store.place import Removal
from sweep.store.sweep import Sweep

POLL_S = 0.5
"""how often the journals are polled; the scheduler is polled far less often"""
REFUSED_S = 2.0
"""pause after a step that the file system refused: far below a pilot's time-out (``watch.TIMEOUT_S``), and few
messages"""
HUNG_S = 15.0
"""a step that took this long, or failed, waited for the file system: pilots' heartbeats were delayed as well"""


class Loop:
    """Polls and acts for a launcher. The callback `on_step` may show the sweep to the user after each step."""

    def __init__(self, launcher: Launcher, on_step: Callable[[Sweep], None] = lambda _sweep: None) -> None:
        self._launcher, self._on_step = launcher, on_step
        self._watch = Watch(launcher)
        self._submission = Submission(launcher)
        self._removal = Removal(launcher.directory.path, "launcher")
        self._settled_at = -1
        """how many events of runs were known when no run was to be measured again"""

    def run(self) -> None:
        """Watch and submit until all is done; retries while the file system fails.

        Raises StuckError, LeaseLostError, and SweepError where the sweep directory was removed.
        """
        while not (self._tolerant(self._advance) and self._launcher.done):
            time.sleep(POLL_S)
        while not self._tolerant(self._end, show=False):
            pass

    def _advance(self) -> None:
        """Step; raise StuckError if pilots repeatedly start no attempt and nothing else is open: no submission loop."""
        self.step()
        if self._launcher.done or not self._submission.infeasible():
            return
        mark_late_attempts_lost(self._launcher)  # a run that is claimed but not running looks to pilots like no work
        if widths := self._submission.infeasible():
            raise self._submission.why_stuck(widths)

    def _end(self) -> None:
        self._launcher.lease.check()  # only the holder writes results and figures
        self._watch.cancel_requeued()
        self._launcher.close()

    def step(self) -> None:
        """Poll once and act on it."""
        launcher = self._launcher
        launcher.sweep.refresh_plans()
        began = time.monotonic()
        launcher.refresh()
        if time.monotonic() - began > HUNG_S:
            self._watch.reset_timeouts()
        if self._watch.check():
            self._submission.hurry()
        if launcher.sweep.sweep_state.cancelled:
            self._watch.cancel_all()
        else:
            if launcher.idle and not self._plan_remeasurements():
                self._watch.cancel_all()
            self._submission.top_up()
        launcher.show_alive()

    def _plan_remeasurements(self) -> bool:
        """Extend the sweep by a repeat of each top configuration that has none, where its grid asks for it, so that the
        winner rests on more than one run: up to a share of the runs that the strategy and the budget started.

        False where none is wanted, until more is known.
        """
        launcher, sweep = self._launcher, self._launcher.sweep
        share, events = sweep.grid.remeasure_share, len(sweep.sweep_state.touched)
        if not share or events == self._settled_at:
            return False
        repeats = [planned.run().repeat >= sweep.grid.repeats for planned in sweep.runs]
        began = sweep.sweep_state.runs.keys()
        asked_for = sum(run.run_id in began for run, again in zip(sweep.runs, repeats, strict=True) if not again)
        left = room(share, asked_for, sum(repeats))
        again = sweep.to_remeasure(share)[:left]
        if not again:
            self._settled_at = events
            return False
        launcher.lease.check()
        extend(sweep.directory, sweep.grids[-1], repeats_of(sweep, again))
        sweep.refresh_plans()
        return True

    def cancel(self, timeout_s: float) -> bool:
        """Cancel pilots and wait until they are gone. True if all are."""
        self._launcher.write(CancelRequested(time=time.time()))
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._tolerant(self.step) and self._launcher.done:
                return True
            time.sleep(POLL_S)
        return False

    def _tolerant(self, act: Callable[[], None], *, show: bool = True) -> bool:
        """Act, then call back. False if the file system failed while it acted: then what is known may be out of date.

        Raises SweepError where the sweep directory was removed.
        """
        try:
            act()
        except OSError as error:
            self._removal.check(error)
            self._watch.reset_timeouts()
            time.sleep(REFUSED_S)
            return False
        self._removal.accessed()
        try:
            if show:
                self._on_step(self._launcher.sweep)
        except OSError as error:  # a terminal that is gone, a full disk: the pilots need their launcher all the same
            if isinstance(error, BrokenPipeError):  # of the output, which ended
                raise
        return True
