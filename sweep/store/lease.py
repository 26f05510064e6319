"""One launcher at a time: the lease. Its epoch only rises; the highest epoch is the holder's.

And the process that writes a journal: what it tells of itself, and whether it must be taken for alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sweep.errors import Mistake, SweepError
from sweep.store.directory import SweepDir, boot_id, write_once
from sweep.store.journal import Journal, read_events

QUIET_S = 60.0
"""a process on another host whose journal stood still for so long is taken for dead"""


class LeaseLostError(Exception):
    """Another launcher took over."""


@dataclass(frozen=True)
class Lease:
    """The right to submit pilots and to declare attempts lost."""

    sweep: SweepDir
    epoch: int

    @property
    def writer(self) -> str:
        """The name of this session's journal."""
        return f"launcher-{self.epoch:04d}"

    def check(self) -> None:
        """Look again, before each submission. Raises LeaseLostError where a higher epoch stands."""
        if _highest(self.sweep) != self.epoch:
            raise LeaseLostError(f"another launcher took over (epoch {_highest(self.sweep)})")

    def release(self) -> None:
        """Give it back, where no session followed."""
        journal = Journal(self.sweep.journal(self.writer))
        journal.append({"event": "session_end", "time": time.time()})
        journal.close()


def take(sweep: SweepDir, *, takeover: bool = False) -> Lease:
    """Take the lease. Raises SweepError where a living launcher holds it, unless `takeover`."""
    highest = _highest(sweep)
    if highest and not takeover:
        holder = json.loads((sweep.launchers / str(highest)).read_text())
        trouble = _lives(sweep, highest, holder)
        if trouble is not None:
            raise _refusal(sweep, trouble)
    me = {**this_process(), "time": time.time()}
    try:
        write_once(sweep.launchers / str(highest + 1), json.dumps(me))
    except FileExistsError:
        raise _refusal(sweep, "another launcher began at the same moment") from None
    return Lease(sweep, highest + 1)


def holder(sweep: SweepDir) -> str | None:
    """Who holds the lease, in words, where a launcher must be taken for alive. Takes nothing."""
    highest = _highest(sweep)
    if not highest:
        return None
    return _lives(sweep, highest, json.loads((sweep.launchers / str(highest)).read_text()))


def _refusal(sweep: SweepDir, trouble: str) -> SweepError:
    return SweepError(
        Mistake(
            f"another launcher holds this sweep: {trouble}",
            file=str(sweep.path),
            remedy="watch it with `sweep status --watch`, or take its place with `sweep resume --takeover`",
        )
    )


def _highest(sweep: SweepDir) -> int:
    return max((int(path.name) for path in sweep.launchers.iterdir() if path.name.isdigit()), default=0)


def _lives(sweep: SweepDir, epoch: int, holder: dict[str, Any]) -> str | None:
    """Who holds the lease, in words, if it must be taken for alive."""
    journal = sweep.journal(Lease(sweep, epoch).writer)
    return None if _ended(journal) else alive(holder, journal)


def _ended(journal: Path) -> bool:
    if not journal.exists():
        return False
    events, _ = read_events(journal)
    return bool(events) and events[-1]["event"] == "session_end"


def this_process() -> dict[str, Any]:
    """What tells this process from every other: host, boot, pid and when it began."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot_id": boot_id(),
        "process_started": psutil.Process().create_time(),
    }


def alive(told: Mapping[str, Any], journal: Path) -> str | None:
    """Which process it is, in words, where it must be taken for alive; None where it is dead.

    ``told``: what it told of itself, and the ``time`` at which it did.
    """
    if told["host"] != socket.gethostname():
        quiet_s = time.time() - (journal.stat().st_mtime if journal.exists() else told["time"])
        return f"process {told['pid']} on {told['host']}, heard {quiet_s:.0f} s ago" if quiet_s < QUIET_S else None
    if told["boot_id"] != boot_id():
        return None
    with contextlib.suppress(psutil.Error):
        if abs(psutil.Process(told["pid"]).create_time() - told["process_started"]) < 1.0:
            return f"process {told['pid']} on this host"
    return None
