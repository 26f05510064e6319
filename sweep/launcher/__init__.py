"""The launcher: submits pilots, watches them, tops them up, and sets straight what a dead pilot left.

It may be killed at any moment: what it knows is in the journals, and `sweep resume` begins where it was.
"""

from sweep.launcher.loop import Launcher, executor_of
from sweep.launcher.submission import StuckError, capacity_of, limits_of

__all__ = ["Launcher", "StuckError", "capacity_of", "executor_of", "limits_of"]
