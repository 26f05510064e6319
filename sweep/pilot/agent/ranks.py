"""The agent's hold on its ranks: zygotes to fork them from, a log file and a progress pipe for each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.pilot.agent.processes import signal_group
from sweep.pilot.job import complain

PRELOAD_TIMEOUT_S = 240.0
FORK_TIMEOUT_S = 60.0
"""a fork takes milliseconds; a warm image that is swapped out or stopped may take long"""
READ_BYTES = 1 << 16
READS = 32
"""so many in one go, more than any pipe holds: a rank may write as fast as its agent reads"""
MAX_LINE_BYTES = 8 << 20
"""of a rank's message, far beyond any measurement: written anew for the leader it stays below a frame's limit"""
_TOO_LONG = {
    "kind": "failure",
    "type": "MessageTooLong",
    "message": f"the rank gave a message of over {MAX_LINE_BYTES >> 20} MiB: it is not kept",
}


class ZygoteError(Exception):
    """No warm image could be made, or it is gone."""


class Zygote:
    """A warm image of one (workload, environment). Made by `Zygote.start`."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.pid = process.pid
        self.dead = False
        """no rank can be forked from it any more"""
        self.cold = False
        """its modules could not be imported: each rank does that itself"""
        self._process = process
        self._control = control
        self._unread = b""
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._on_exit: dict[int, Callable[[int], None]] = {}
        self._early: dict[int, int] = {}
        """ends that were told before their fork's answer was taken"""
        asyncio.get_running_loop().add_reader(control, self._read)

    @classmethod
    async def start(cls, preload: Sequence[str], env: Mapping[str, str]) -> Zygote:
        """Exec a zygote and wait until it has imported the modules. Raises ZygoteError with what went wrong."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "sweep.pilot.agent.zygote", str(theirs.fileno()), str(os.getpid()), *preload]
        process = subprocess.Popen(
            command, env={**os.environ, **env}, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        ours.setblocking(False)
        zygote = cls(process, ours)
        try:
            ready = await asyncio.wait_for(zygote._answers.get(), PRELOAD_TIMEOUT_S)
        except asyncio.TimeoutError:
            zygote.close()
            raise ZygoteError(f"importing {', '.join(preload)} took over {PRELOAD_TIMEOUT_S:.0f} s") from None
        if not ready.get("ready"):
            zygote.close()
            raise ZygoteError(str(ready.get("error")))
        return zygote

    async def fork(self, request: Mapping[str, Any], fds: Sequence[int], on_exit: Callable[[int], None]) -> int:
        """Fork one process; its pid. `on_exit` is called with the wait status. Raises ZygoteError."""
        message = (json.dumps(request) + "\n").encode()
        try:
            sent = socket.send_fds(self._control, [message], list(fds))
            if sent < len(message):
                await asyncio.get_running_loop().sock_sendall(self._control, message[sent:])
        except OSError as error:
            raise ZygoteError(f"the warm image is gone: {error}") from error
        try:
            answer = await asyncio.wait_for(self._answers.get(), FORK_TIMEOUT_S)
        except asyncio.TimeoutError:
            self.died()  # its late answer would be taken for another's
            raise ZygoteError(f"the warm image did not fork in {FORK_TIMEOUT_S:.0f} s") from None
        if "pid" not in answer:
            raise ZygoteError(str(answer.get("error")))
        pid = int(answer["pid"])
        if pid in self._early:
            asyncio.get_running_loop().call_soon(on_exit, self._early.pop(pid))
        else:
            self._on_exit[pid] = on_exit
        return pid

    def died(self) -> None:
        """The zygote ended: its ranks have died with it (PDEATHSIG), and nobody can tell how."""
        self.dead = True
        self.close()
        self._answers.put_nowait({"error": "the warm image ended"})
        for on_exit in list(self._on_exit.values()):
            on_exit(signal.SIGKILL)
        self._on_exit.clear()

    def close(self) -> None:
        """Let it end: it does so when its socket closes."""
        with contextlib.suppress(ValueError, OSError):
            asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _read(self) -> None:
        try:
            data = self._control.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.died()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "exited" in message:
                on_exit = self._on_exit.pop(message["exited"], None)
                if on_exit is not None:
                    on_exit(message["status"])
                else:
                    self._early[message["exited"]] = message["status"]
            else:
                self._answers.put_nowait(message)


@dataclass
class Rank:
    """One rank of the present attempt, on this node."""

    number: int
    log: Path
    """of its process: ranks of one process share it"""
    attempt: str
    pid: int | None = None
    status: int | None = None
    """wait status, once it ended"""
    progress_fd: int = -1
    iterates: bool = False
    """its first iteration is done"""
    _unread: bytes = field(default=b"", repr=False)
    _too_long: bool = False
    """the rest of the line that is being read is passed over"""

    @property
    def alive(self) -> bool:
        """Started and not yet ended."""
        return self.pid is not None and self.status is None

    def terminate(self) -> None:
        """SIGTERM to its whole session's group."""
        if self.alive and self.pid is not None:
            signal_group(self.pid, signal.SIGTERM)

    def exit_code_and_signal(self) -> tuple[int | None, int | None]:
        """How it ended, as (exit code, None) or (None, signal)."""
        if self.status is None:
            return None, None
        if os.WIFSIGNALED(self.status):
            return None, os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status), None

    def read_progress(self) -> list[dict[str, Any]]:
        """The messages that stand in its pipe now; a line that is no JSON object is dropped."""
        messages = []
        for _ in range(READS):
            try:
                data = os.read(self.progress_fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.close_progress()
                break
            *lines, self._unread = (self._unread + data).split(b"\n")
            if self._too_long and lines:
                del lines[0]
                self._too_long = False
            messages += [message for line in lines if (message := _message(line)) is not None]
            if self._too_long or len(self._unread) > MAX_LINE_BYTES:
                messages += [] if self._too_long else [dict(_TOO_LONG)]
                self._unread, self._too_long = b"", True
        return messages

    def close_progress(self) -> None:
        """No more progress is read."""
        if self.progress_fd >= 0:
            asyncio.get_running_loop().remove_reader(self.progress_fd)
            os.close(self.progress_fd)
            self.progress_fd = -1

    def tail(self, limit_bytes: int) -> str:
        """The end of its output."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - limit_bytes))
                return file.read().decode(errors="replace")
        except OSError:
            return ""


def _message(line: bytes) -> dict[str, Any] | None:
    """A line as a message; None where it is no JSON object."""
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(_without_surrogates(line))
        if isinstance(message, dict):
            return message
    return None


def _without_surrogates(line: bytes) -> bytes:
    """JSON may escape half a character, as Python text may hold one; files and tables cannot. It becomes visible."""
    if b"\\ud" not in line.lower():
        return line
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def one_per_process(ranks: Iterable[Rank]) -> list[Rank]:
    """The living ranks, of each process the first: it has the main thread, and the files that the process writes."""
    first: dict[int | None, Rank] = {}
    for rank in ranks:
        if rank.alive:
            first.setdefault(rank.pid, rank)
    return list(first.values())


async def start_ranks(
    zygote: Zygote,
    ranks: Sequence[Rank],
    request: Mapping[str, Any],
    listener: socket.socket | None,
    on_progress: Callable[[Rank, list[dict[str, Any]]], None],
    on_exit: Callable[[Rank], None],
) -> None:
    """Fork one process for these ranks (mostly one) with its log, a progress pipe for each and rank 0's listener.

    The end of the process is the end of all of them, each with its status.
    """
    pipes = [_open_pipe(rank, on_progress) for rank in ranks]
    log_fd = os.open(ranks[0].log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def ended(status: int) -> None:
        for rank in ranks:
            rank.status = status
            try:
                if rank.progress_fd >= 0:
                    on_progress(rank, rank.read_progress())
            except Exception as error:  # whatever it said last: that it ended is told, and so are the ends of others
                complain(f"the last words of rank {rank.number} are lost: {error!r}")
        for rank in ranks:
            on_exit(rank)

    fds = [log_fd, *pipes] + ([listener.fileno()] if listener is not None else [])
    try:
        pid = await zygote.fork(request, fds, ended)
        for rank in ranks:
            rank.pid = pid
    finally:
        for fd in (*pipes, log_fd):
            os.close(fd)


def _open_pipe(rank: Rank, on_progress: Callable[[Rank, list[dict[str, Any]]], None]) -> int:
    """The end that the rank writes to; ours is read whenever something stands in it."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    rank.progress_fd = read_fd
    asyncio.get_running_loop().add_reader(read_fd, lambda: on_progress(rank, rank.read_progress()))
    return write_fd
