"""The agent's handles on its ranks: a process from a fork server, a log file and a progress pipe for each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sweep.errors import log_error
from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.fork_servers import ForkServer
from sweep.pilot.agent.progress import ProgressPipe, Report


@dataclass
class Rank:
    """One rank of the current attempt, on this node."""

    number: int
    log: Path
    """pid of its process: ranks of one process share it"""
    pid: int | None = None
    status: int | None = None
    """wait status, once it ended"""
    pipe: ProgressPipe | None = None

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
        if os.WIFSIGNALED(self.status):
            return None, os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status), None

    def close_progress(self) -> None:
        """Stop reading its progress."""
        if self.pipe is not None:
            self.pipe.close()

    def tail(self, limit_bytes: int) -> str:
        """The end of its output."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - limit_bytes))
                return file.read().decode(errors="replace")
        except OSError:
            return ""


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
