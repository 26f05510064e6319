"""One launcher at a time: the lease. Its epoch only rises; the highest epoch is the holder's.

Also the process that writes a journal: its identity, and whether it must be assumed alive.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from sweep.errors import Mistake, SweepError, log_error
from sweep.state.events import SessionEnded, TrackingBegan
from sweep.store.directory import SweepDir, boot_id, check_own, write_once
from sweep.store.journal import Journal, read_events

QUIET_S = 180.0
"""a process on another host whose journal did not change for this long is assumed dead. A launcher writes a line before
it waits for the scheduler: for at most 60 s for sbatch, 30 s each for squeue, scontrol and a sacct per 500 jobs"""


class LeaseLostError(SweepError):
    """Another launcher took over."""

    exit_code = 1


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The unique identity of a process: the content of a lease's file."""

    host: str
    pid: int
    boot_id: str
    process_started: float
    """unix seconds"""
    time: float
    """unix seconds, when this was written"""


@dataclass(frozen=True)
class Lease:
    """The right to submit pilots and to declare attempts lost."""

    directory: SweepDir
    epoch: int

    @property
    def writer(self) -> str:
        """The name of this session's journal."""
        return f"launcher-{self.epoch:04d}"

    def check(self) -> None:
        """Check again, before each submission. Raises LeaseLostError where a higher epoch exists."""
        if _highest(self.directory) != self.epoch:
            raise LeaseLostError(f"another launcher took over (epoch {_highest(self.directory)})")

    def release(self) -> None:
        """Release it, where no session followed."""
        journal = Journal(self.directory.journal(self.writer))
        journal.append(SessionEnded(time=time.time()))
        journal.close()


def take(directory: SweepDir, *, takeover: bool = False) -> Lease:
    """Take the lease. Raises SweepError where a living launcher holds it, unless `takeover`."""
    check_own(directory)
    highest = _highest(directory)
    if highest and not takeover and (living := _living(directory, highest)) is not None:
        raise _refusal(directory, living)
    try:
        write_once(directory.launchers / str(highest + 1), msgspec.json.encode(this_process()))
    except FileExistsError:
        raise _refusal(directory, "another launcher began at the same moment") from None
    return Lease(directory, highest + 1)


def holder(directory: SweepDir) -> str | None:
    """The lease's holder, as text, if a launcher must be assumed alive. Does not take the lease."""
    highest = _highest(directory)
    return _living(directory, highest) if highest else None


def _refusal(directory: SweepDir, trouble: str) -> SweepError:
    return SweepError(
        Mistake(
            f"another launcher holds this sweep: {trouble}",
            file=str(directory.path),
            remedy="watch it with `sweep status --watch`, or replace it with `sweep resume --takeover`",
        )
    )


def _highest(directory: SweepDir) -> int:
    return max((int(path.name) for path in directory.launchers.iterdir() if path.name.isdigit()), default=0)


def _living(directory: SweepDir, epoch: int) -> str | None:
    """The lease's holder, as text, if it must be assumed alive."""
    journal, file = directory.journal(Lease(directory, epoch).writer), directory.launchers / str(epoch)
    try:
        holder = msgspec.json.decode(file.read_bytes(), type=Process)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        log_error(f"{file}: the lease is damaged ({error}): its launcher is assumed alive while its journal grows")
        holder = Process(host="?", pid=0, boot_id="", process_started=0.0, time=file.stat().st_mtime)
    return None if _ended(journal) else alive(holder, journal)


def _ended(journal: Path) -> bool:
    if not journal.exists():
        return False
    events, _ = read_events(journal)
    return bool(events) and isinstance(events[-1], SessionEnded)


def this_process() -> Process:
    """This process, now."""
    return Process(
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        process_started=psutil.Process().create_time(),
        time=time.time(),
    )


def alive(process: Process | TrackingBegan, journal: Path) -> str | None:
    """The process that writes the journal, as text, if it must be assumed alive; None where it is dead."""
    if process.host != socket.gethostname():
        quiet_s = time.time() - (journal.stat().st_mtime if journal.exists() else process.time)
        text = f"process {process.pid} on {process.host}, last heartbeat {quiet_s:.0f} s ago"
        return text if quiet_s < QUIET_S else None
    if process.boot_id != boot_id():
        return None
    with contextlib.suppress(psutil.Error):
        if abs(psutil.Process(process.pid).create_time() - process.process_started) < 1.0:
            return f"process {process.pid} on this host"
    return None
