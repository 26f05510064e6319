"""Sessions of a launcher in the test's own process."""

from __future__ import annotations

from sweep.launcher.loop import executor_of
from sweep.launcher.session import Session
from sweep.store import lease
from sweep.store.sweep import Sweep


def session_of(existing: Sweep) -> Session:
    """The session of a launcher that takes the lease."""
    return Session(existing, lease.take(existing.directory), executor_of(existing))
