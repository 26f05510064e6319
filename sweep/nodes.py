"""What a user says of nodes: leave this one out, pardon that one. A line in a journal of its own, like all else."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from sweep.store import Journal, SweepDir

ADDED = "left out by the user"


def leave_out(sweep: SweepDir, nodes: Sequence[str], reason: str) -> None:
    """Later pilots and runs keep off these nodes."""
    _write(sweep, [{"event": "node_bad", "node": node, "reason": f"{ADDED}: {reason}"} for node in nodes])


def pardon(sweep: SweepDir, nodes: Sequence[str]) -> None:
    """What was said of these nodes until now counts no more."""
    _write(sweep, [{"event": "node_pardoned", "node": node} for node in nodes])


def _write(sweep: SweepDir, events: Sequence[dict[str, str]]) -> None:
    journal = Journal(sweep.journal(f"nodes-{time.time_ns()}-{os.getpid()}"))
    for event in events:
        journal.append({**event, "time": time.time()})
    journal.close()
