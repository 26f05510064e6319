"""What may be measured again, and the wish for it: a line per run in a journal of its own, like all else."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from sweep.state.state import RunState
from sweep.store import Journal, SweepDir


def hindrance(state: RunState | None) -> str | None:
    """Why a further attempt of the run need not or cannot be asked for, in words; None where it can."""
    if state is None or state.last is None:
        return "has not begun: there is nothing to measure again"
    if state.last.outcome is None:
        return f"is being measured now (attempt {state.last.number})"
    if (number := state.next_attempt()) is not None:
        return f"is to have a further attempt already (attempt {number})"
    return None


def ask(sweep: SweepDir, wanted: Sequence[tuple[str, int]]) -> None:
    """Ask for one further attempt of each run. ``wanted``: its run_id, and the number of its latest attempt.

    A launcher and pilots that live see the lines; else the next `sweep resume` does.
    """
    journal = Journal(sweep.journal(f"rerun-{time.time_ns()}-{os.getpid()}"))
    for run_id, after in wanted:
        journal.append({"event": "rerun", "time": time.time(), "run_id": run_id, "after": after})
    journal.close()
