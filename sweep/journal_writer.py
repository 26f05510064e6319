"""The process that writes a journal: what it tells of itself, and whether it must be taken for alive."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from sweep.store import boot_id

QUIET_S = 60.0
"""a process on another host whose journal stood still for so long is taken for dead"""


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
