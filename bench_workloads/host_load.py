"""Whether the host had more work than cores while iterations were timed: then the times are of the crowd, too."""

from __future__ import annotations

import os
import statistics
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

STAT = Path("/proc/stat")
"""`procs_running`: tasks of the whole host that run or wait for a core (proc(5)); Linux only"""
PERIOD_S = 0.1
CROWDED = "the host had more work than cores while it was timed"


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

    def results(self) -> dict[str, Any]:
        """The median number of runnable tasks, and a note if that is more than the host's cores. Empty if unknown."""
        if not self._runnable:
            return {}
        runnable, cores = statistics.median(self._runnable), os.cpu_count() or 1
        values: dict[str, Any] = {"host_runnable_tasks": runnable, "host_cores": cores}
        if runnable > cores:
            values["notes"] = [CROWDED]
        return values

    def _sample(self) -> None:
        with suppress(OSError, ValueError, IndexError):
            self._runnable.append(runnable_tasks(STAT.read_text()))
            while not self._over.wait(PERIOD_S):
                self._runnable.append(runnable_tasks(STAT.read_text()))


def runnable_tasks(stat: str) -> int:
    """``procs_running`` of a /proc/stat, less the reader itself. Raises IndexError, ValueError where it has none."""
    return int(stat.split("procs_running ")[1].split()[0]) - 1
