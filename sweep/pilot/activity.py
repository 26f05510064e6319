"""Whether a rank that has not begun its iterations works: its and its children's CPU time and IO advance."""

from __future__ import annotations

import contextlib
import time

import psutil

LOOK_S = 5.0
WORK_SHARE = 0.1
"""of one core: below it, waiting loops and pings of libraries"""
WORK_BYTES = 1 << 20


class Activity:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float, int]] = {}

    def busy(self, pid: int) -> bool:
        """Did the rank, or a compiler or loader that it started, work since the last look? False at the first."""
        now, before = _work(pid), self._seen.get(pid)
        self._seen[pid] = now
        if before is None:
            return False
        elapsed_s, cpu_s, size = (a - b for a, b in zip(now, before, strict=True))
        return cpu_s >= WORK_SHARE * elapsed_s or size >= WORK_BYTES


def _work(pid: int) -> tuple[float, float, int]:
    """(now, CPU seconds, bytes read and written) of the process and its living descendants."""
    seconds, size = 0.0, 0
    with contextlib.suppress(psutil.Error):
        rank = psutil.Process(pid)
        for process in (rank, *rank.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
                counters = process.io_counters()
                size += counters.read_bytes + counters.write_bytes
    return time.monotonic(), seconds, size
