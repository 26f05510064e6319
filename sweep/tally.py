"""How far a sweep is: runs by state, and what a run takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.outcomes import Outcome
from sweep.plan import PlannedRun
from sweep.state import World

ASSUMED_RUN_S = 60.0
"""what an attempt is taken to last before any ended"""


def counts(world: World, runs: Sequence[PlannedRun], left_out: Mapping[str, str] | None = None) -> Mapping[str, int]:
    """How many runs are where: by outcome of the attempt that counts, `running`, `waiting`.

    ``left_out``: run_id -> the word for those that are not to begin (``sweep.search.live.Search.left_out``).
    """
    found: dict[str, int] = {}
    left_out = left_out or {}
    for planned in runs:
        state = world.runs.get(planned.run_id)
        last = state.last if state is not None else None
        if state is not None and state.ok is not None:
            word = "ok"
        elif state is None or last is None:
            word = left_out.get(planned.run_id, "waiting")
        elif state.next_attempt() is not None:
            word = "waiting"
        elif last.outcome is None:
            word = "running"
        else:
            word = str(last.outcome)
        found[word] = found.get(word, 0) + 1
    return found


def typical_run_s(world: World) -> float:
    """What one attempt takes, by the attempts that ended so far; an assumption where none did."""
    durations = [
        attempt.ended_at - attempt.started_at
        for run in world.runs.values()
        for attempt in run.attempts.values()
        if attempt.ended_at is not None and attempt.started_at is not None and attempt.outcome is not Outcome.LOST
    ]
    return sum(durations) / len(durations) if durations else ASSUMED_RUN_S
