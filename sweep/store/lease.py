"""One launcher at a time: the lease. Its epoch only rises; the highest epoch is the holder's.

Also the process that writes a journal: its identity, and whether it must be assumed alive.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from sweep.errors import Mistake, SweepError, log_error
from sweep.state.events import SessionEnded
from sweep.store.directory import SweepDir, kernel_boot, write_once
from sweep.store.journal import Journal, read_events
from sweep.store.place import check_own

QUIET_S = 180.0
"""a process on another host whose journal did not change for this long is assumed dead. A launcher writes a line before
it waits for the scheduler: for at most 60 s for sbatch, 30 s each for squeue, scontrol and a sacct per 500 jobs"""


ALIVE_S = 20.0
"""longest interval between a holder's lines in its journal: nine in the time after which other hosts assume it dead"""


class LeaseLostError(SweepError):
    """Another process took over."""

    exit_code = 1


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The unique identity of a process: the content of a lease's file."""

    host: str
    pid: int
    boot_id: str
    start: str = ""
    """when it started, by ``start_of``; empty of a version that did not state it"""
    time: float
    """unix seconds, when this was written"""


@dataclass(frozen=True)
class Lease:
    """A launcher's right to submit pilots and to declare attempts lost."""

    directory: SweepDir
    epoch: int

    @property
    def writer(self) -> str:
        """The name of this session's journal."""
        return f"launcher-{self.epoch:04d}"

    def check(self) -> None:
        """Check again, before each submission or write. Raises LeaseLostError where a higher epoch exists.

        A file that was removed is written again.
        """
        if (highest := _highest(self.directory.leases.iterdir())) > self.epoch:
            raise LeaseLostError(f"another launcher took over (epoch {highest})")
        if not (file := self.directory.leases / self.writer).exists():
            self.write()
            log_error(f"{file} was removed: it is written again")

    def write(self) -> None:
        """Write its file, as this process. Raises FileExistsError where another has that epoch."""
        write_once(self.directory.leases / self.writer, msgspec.json.encode(this_process()))

    def release(self) -> None:
        """Release it, where no session followed."""
        journal = Journal(self.directory.journal(self.writer))
        journal.append(SessionEnded(time=time.time()))
        journal.close()


def take(directory: SweepDir, *, takeover: bool = False) -> Lease:
    """Take the lease. Raises SweepError where a living process holds it, unless `takeover`."""
    check_own(directory)
    highest = Lease(directory, _highest(directory.leases.iterdir()))
    if highest.epoch and not takeover and (living := _living(highest)) is not None:
        raise _refusal(highest, living)
    lease = Lease(directory, 1 + max(highest.epoch, _highest(directory.journals())))
    try:
        lease.write()
    except FileExistsError:
        raise _refusal(lease, "another launcher began at the same moment") from None
    return lease


def holder(directory: SweepDir) -> str | None:
    """The launcher that holds the lease, as text, if it must be assumed alive. Does not take the lease."""
    highest = _highest(directory.leases.iterdir())
    return _living(Lease(directory, highest)) if highest else None


def _refusal(lease: Lease, trouble: str) -> SweepError:
    remedy = "watch it with `sweep status --watch`, or replace it with `sweep resume --takeover`"
    fact = f"another launcher holds this sweep: {trouble}"
    return SweepError(Mistake(fact, file=str(lease.directory.path), remedy=remedy))


def _highest(files: Iterable[Path]) -> int:
    names = [path.stem.removeprefix("launcher-") for path in files]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _living(lease: Lease) -> str | None:
    """The lease's holder, as text, if it must be assumed alive."""
    journal, file = lease.directory.journal(lease.writer), lease.directory.leases / lease.writer
    try:
        holder = msgspec.json.decode(file.read_bytes(), type=Process)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        log_error(f"{file}: the lease is damaged ({error}): its holder is assumed alive while its journal grows")
        holder = Process(host="?", pid=0, boot_id="", time=file.stat().st_mtime)
    events, _ = read_events(journal) if journal.exists() else ([], 0)
    if events and isinstance(events[-1], SessionEnded):
        return None
    if holder.host != socket.gethostname():
        quiet_s = time.time() - (journal.stat().st_mtime if journal.exists() else holder.time)
        text = f"process {holder.pid} on {holder.host}, last heartbeat {quiet_s:.0f} s ago"
        return text if quiet_s < QUIET_S else None
    if holder.boot_id != kernel_boot():
        return None
    return f"process {holder.pid} on this host" if living(holder.pid, holder.start) else None


def living(pid: int, start: str) -> psutil.Process | None:
    """The process of that number, if it lives and started then (empty: whenever). A zombie does not live: it has ended
    and only waits to be reaped.
    """
    with contextlib.suppress(psutil.Error, OSError, ValueError):  # a lease may state any number
        process = psutil.Process(pid)
        if start in ("", start_of(pid)) and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def this_process() -> Process:
    """This process, now."""
    return Process(
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=kernel_boot(),
        start=start_of(os.getpid()),
        time=time.time(),
    )


def start_of(pid: int) -> str:
    """When a process started, unaffected by clock changes: in ticks since this boot. Raises OSError."""
    # The second field of /proc/PID/stat is the name, which may hold blanks, parentheses and any bytes.
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return f"{kernel_boot()[:8]}.{fields[19].decode()}"
