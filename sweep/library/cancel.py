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
from sweep.store.follow import FollowedSweep
from sweep.store.journal import write_request


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
    followed = status(directory)
    sweep = followed.sweep
    if (why := _nothing_to_cancel(followed)) is not None:
        return Cancelled(directory=sweep.directory.path, open_pilots=(), nothing=why)
    try:
        launcher = Launcher(sweep)
    except SweepError:
        _ask_the_holder(followed, timeout_s)
    else:
        Loop(launcher).cancel(timeout_s)
        launcher.close()
        followed = launcher
    return Cancelled(directory=sweep.directory.path, open_pilots=tuple(_open(followed)))


def _nothing_to_cancel(followed: FollowedSweep) -> str | None:
    """Why a cancellation would change nothing; None where something runs, waits, or a launcher lives."""
    if lease.holder(followed.sweep.directory) is not None or _open(followed):
        return None
    if followed.sweep_state.cancelled:
        return "the sweep is cancelled already"
    return "every run of the sweep has ended" if followed.at_rest else None


def _ask_the_holder(followed: FollowedSweep, timeout_s: float) -> None:
    """A living launcher reads the cancellation from the journals, ends its pilots, and exits."""
    write_request(followed.sweep.directory, "cancel", [CancelRequested(time=time.time())])
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        followed.refresh()
        if not _open(followed):
            return
        time.sleep(POLL_S)


def _open(followed: FollowedSweep) -> list[str]:
    return sorted(pilot.name for pilot in followed.sweep_state.pilots.values() if pilot.open)
