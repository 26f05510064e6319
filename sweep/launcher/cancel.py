"""Cancel a sweep: the lease's holder cancels the pilots and records it; without a holder, this process does."""

from __future__ import annotations

import time

from sweep.errors import SweepError
from sweep.launcher.loop import Launcher, executor_of
from sweep.state.events import CancelRequested
from sweep.state.state import SweepState
from sweep.store import lease
from sweep.store.follow import FollowedState
from sweep.store.journal import write_request
from sweep.store.sweep import Sweep

POLL_S = 0.5
"""how often the journals are polled, as the launcher does"""


def cancel_sweep(sweep: Sweep, timeout_s: float) -> tuple[bool, SweepState]:
    """Stop all pilots and wait for their end. Returns (all are gone, the final state)."""
    try:
        launcher = Launcher(sweep, lease.take(sweep.directory), executor_of(sweep))
    except SweepError:
        return _ask_the_holder(sweep, timeout_s)
    gone = launcher.cancel(timeout_s, lambda _followed: None)
    launcher.close()
    return gone, launcher.sweep_state


def _ask_the_holder(sweep: Sweep, timeout_s: float) -> tuple[bool, SweepState]:
    """A living launcher reads the cancellation from the journals, ends its pilots, and exits."""
    write_request(sweep.directory, "cancel", [CancelRequested(time=time.time())])
    followed = FollowedState(sweep.directory)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        followed.refresh()
        if not any(pilot.open for pilot in followed.sweep_state.pilots.values()):
            return True, followed.sweep_state
        time.sleep(POLL_S)
    return False, followed.sweep_state
