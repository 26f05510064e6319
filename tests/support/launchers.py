"""A launcher in the test's own process."""

from __future__ import annotations

from sweep.launcher.launcher import Launcher
from sweep.store.sweep import Sweep


def launcher_of(existing: Sweep) -> Launcher:
    """One that takes the lease."""
    return Launcher(existing)
