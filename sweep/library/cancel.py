"""Cancel a sweep: the lease's holder cancels the pilots and records it; without a holder, this process does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import SweepError
from sweep.launcher.launcher import Launcher
from sweep.launcher.loop import POLL_S, Loop
from sweep.library.sources import status
from sweep.state.events import CancelRequested
from sweep.store import lease
from sweep.store.journal import write_request
from sweep.store.place import check_own
from sweep.store.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The result of a cancellation."""

    directory: Path
    open_pilots: tuple[str, ...]
    """those that are not known to be gone"""
    nothing: str | None = None
    """why there was nothing to cancel"""


def cancel(directory: Path | str, timeout_s: float = 120.0) -> Cancelled:
    """Stop a sweep: its pilots end their ranks, and every attempt that began is recorded. Waits for the pilots' end.

    Raises SweepError where there is no sweep.
    """
    sweep = status(directory)
    check_own(sweep.directory)
    if lease.holder(sweep.directory) is None and not _open(sweep) and (sweep.sweep_state.cancelled or sweep.at_rest):
        ended = "every run of the sweep has ended"
        why = "the sweep is cancelled already" if sweep.sweep_state.cancelled else ended
        return Cancelled(directory=sweep.directory.path, open_pilots=(), nothing=why)
    try:
        launcher = Launcher(sweep)
    except SweepError:  # a living launcher reads it from the journals, ends its pilots, and exits
        request = CancelRequested(time=time.time()).answering(sweep.sweep_state.latest)
        write_request(sweep.directory, "cancel", [request])
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            sweep.refresh()
            if not _open(sweep):
                break
            time.sleep(POLL_S)
    else:
        Loop(launcher).cancel(timeout_s)
        launcher.close()
    return Cancelled(directory=sweep.directory.path, open_pilots=tuple(_open(sweep)))


def _open(sweep: Sweep) -> list[str]:
    return sorted(pilot.name for pilot in sweep.sweep_state.pilots.values() if pilot.open)
