"""What agents and ranks tell the leader, and whether it can be read."""

from __future__ import annotations

from typing import Any

from sweep.contract import Phase

PHASES = frozenset(str(phase) for phase in Phase)
LARGEST = 2**53
"""an integer beyond it is no iteration, and cannot be reckoned with as a time"""


def is_beat(phase: Any, iteration: Any, due_s: Any) -> bool:
    """Whether a beat can be read: a workload of someone else may say anything."""
    return isinstance(phase, str) and phase in PHASES and _number(iteration) and _number(due_s)


def _number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < LARGEST
    return value is None or isinstance(value, float)
