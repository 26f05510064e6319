"""How much work the host had while iterations were timed: with more than cores, the times are of the crowd, too."""

from __future__ import annotations

import os
import statistics
import threading
from contextlib import suppress
from pathlib import Path

STAT = Path("/proc/stat")
"""`procs_running`: tasks of the whole host that run or wait for a core (proc(5)); Linux only"""
PERIOD_S = 0.1


class HostLoad:
    """The number of runnable tasks of the host while it is entered, sampled from a thread."""

    def __init__(self) -> None:
        self._runnable: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> HostLoad:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def results(self) -> dict[str, float]:
        """The median number of runnable tasks, and of cores; a record notes if the first is more. Empty if unknown."""
        if not self._runnable:
            return {}
        return {"host_runnable_tasks": statistics.median(self._runnable), "host_cores": os.cpu_count() or 1}

    def _sample(self) -> None:
        with suppress(OSError, ValueError, IndexError):
            self._runnable.append(runnable_tasks(STAT.read_text()))
            while not self._over.wait(PERIOD_S):
                self._runnable.append(runnable_tasks(STAT.read_text()))


def runnable_tasks(stat: str) -> int:
    """``procs_running`` of a /proc/stat, less the reader itself. Raises IndexError, ValueError where it has none."""
    return int(stat.split("procs_running ")[1].split()[0]) - 1
