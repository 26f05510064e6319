"""The agent's handles on its ranks: a process from a fork server, a log file and a progress pipe for each."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sweep.errors import log_error
from sweep.files import end_of
from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.fork_servers import ForkServer
from sweep.pilot.agent.progress import ProgressPipe, Report

KEPT_BYTES = 1 << 20
"""of a rank's output, its end: what an attempt's log has of rank 0. A rank that writes as much between two looks works,
whatever else it reports: no library that waits prints so much"""
LOG_BYTES = 64 * KEPT_BYTES
"""of a rank's output that may lie on its node's disk, and what it writes between two looks"""
_PUNCH_HOLE = 0x03
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE (linux/falloc.h)"""


@dataclass
class Rank:
    """One rank of the current attempt, on this node."""

    number: int
    log: Path
    pid: int | None = None
    """of its process: ranks of one process share it"""
    status: int | None = None
    """wait status, once it ended"""
    pipe: ProgressPipe | None = None
    _seen_bytes: int = 0
    _freed_bytes: int = 0

    @property
    def alive(self) -> bool:
        """Started and not yet ended."""
        return self.pid is not None and self.status is None

    def terminate(self) -> None:
        """SIGTERM to its process group."""
        if self.alive and self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGTERM)

    def exit_code_and_signal(self) -> tuple[int | None, int | None]:
        """How it ended, as (exit code, None) or (None, signal)."""
        if self.status is None:
            return None, None
        code = os.waitstatus_to_exitcode(self.status)
        return (code, None) if code >= 0 else (None, -code)

    def close_progress(self) -> None:
        """Stop reading its progress."""
        if self.pipe is not None:
            self.pipe.close()

    def trim_log(self) -> bool:
        """Free the disk of all but the end of a long output. Whether it wrote KEPT_BYTES since the last look."""
        try:
            size = self.log.stat().st_size
            wrote, self._seen_bytes = size - self._seen_bytes, size
            if size - self._freed_bytes > LOG_BYTES:
                self._freed_bytes = size - KEPT_BYTES
                if not _punch_hole(self.log, self._freed_bytes):
                    end = end_of(self.log, KEPT_BYTES).encode()
                    os.truncate(self.log, 0)  # the rank appends
                    with self.log.open("ab") as file:
                        self._seen_bytes, self._freed_bytes = file.write(end), 0
        except OSError:  # the disk does not answer, or the attempt ended
            return False
        return wrote >= KEPT_BYTES


def _punch_hole(path: Path, end: int) -> bool:
    """Free what the file has before that byte; False where its file system cannot."""
    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
    with path.open("r+b") as file:
        span = ctypes.c_int64(0), ctypes.c_int64(end)
        return fallocate is not None and fallocate(file.fileno(), _PUNCH_HOLE, *span) == 0


def one_per_process(ranks: Iterable[Rank]) -> list[Rank]:
    """The first living rank of each process: it has the main thread and the files that the process writes."""
    first: dict[int | None, Rank] = {}
    for rank in ranks:
        if rank.alive:
            first.setdefault(rank.pid, rank)
    return list(first.values())


OnReports = Callable[[Rank, list[Report]], None]


async def start_ranks(
    fork_server: ForkServer,
    ranks: Sequence[Rank],
    request: ForkRequest,
    listener: socket.socket | None,
    on_reports: OnReports,
    on_exit: Callable[[Rank], None],
) -> None:
    """Fork one process for these ranks (mostly one) with its log, a progress pipe for each and rank 0's listener.

    When the process ends, all of them end with its status.
    """

    def ended(status: int) -> None:
        for rank in ranks:
            rank.status = status
            try:
                _read(rank, on_reports)
            except Exception as error:  # whatever it sent last: its exit must be reported, and the exits of others
                log_error(f"the last reports of rank {rank.number} are lost: {error!r}")
        for rank in ranks:
            on_exit(rank)

    pipes = []
    for rank in ranks:
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        rank.pipe = ProgressPipe(read_fd)
        rank.pipe.watch(partial(_read, rank, on_reports))
        pipes.append(write_fd)
    log_fd = os.open(ranks[0].log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    fds = [log_fd, *pipes] + ([listener.fileno()] if listener is not None else [])
    try:
        pid = await fork_server.fork(request, fds, ended)
        for rank in ranks:
            rank.pid = pid
    finally:
        for fd in (*pipes, log_fd):
            os.close(fd)


def _read(rank: Rank, on_reports: OnReports) -> None:
    if rank.pipe is not None:
        on_reports(rank, rank.pipe.read())
