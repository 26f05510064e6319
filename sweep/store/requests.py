"""Users' requests to a sweep: measure runs again, exclude nodes, clear them. Lines in journals of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sweep.state.events import NodeBad, NodeReleased, RerunRequested
from sweep.state.state import RunState
from sweep.store.directory import SweepDir
from sweep.store.journal import write_request

ADDED = "by the user"


def reason_not_rerunnable(state: RunState | None) -> str | None:
    """Why a further attempt of the run need not or cannot be requested, as text; None where it can."""
    if state is None or state.last is None:
        return "has not begun: there is nothing to measure again"
    if state.last.outcome is None:
        return f"is being measured now (attempt {state.last.number})"
    if (number := state.next_attempt()) is not None:
        return f"already has a further attempt requested (attempt {number})"
    return None


def ask(directory: SweepDir, wanted: Sequence[tuple[str, int]]) -> None:
    """Request one further attempt of each run. ``wanted``: its run_id, and the number of its latest attempt.

    A running launcher and pilots read the lines; else the next `sweep resume` does.
    """
    now = time.time()
    write_request(
        directory, "rerun", [RerunRequested(time=now, run_id=run_id, after=after) for run_id, after in wanted]
    )


def exclude_nodes(directory: SweepDir, nodes: Sequence[str], reason: str) -> None:
    """Later pilots and runs avoid these nodes."""
    write_request(
        directory, "nodes", [NodeBad(time=time.time(), node=node, reason=f"{ADDED}: {reason}") for node in nodes]
    )


def release_nodes(directory: SweepDir, nodes: Sequence[str]) -> None:
    """Earlier reports on these nodes no longer count."""
    write_request(directory, "nodes", [NodeReleased(time=time.time(), node=node) for node in nodes])
