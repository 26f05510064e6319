"""What a pilot runs next. Pure: the plan, the world, the free nodes and the time left, in; a choice, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.plan import PlannedRun
from sweep.state import World


@dataclass(frozen=True)
class Choice:
    """A run and the number of the attempt to be claimed."""

    planned: PlannedRun
    attempt: int


def waiting(runs: Sequence[PlannedRun], world: World) -> list[Choice]:
    """All attempts that may be claimed now, in the plan's order; those never tried come first."""
    choices = []
    for planned in runs:
        state = world.runs.get(planned.run_id)
        attempt = 1 if state is None else state.next_attempt()
        if attempt is not None:
            choices.append(Choice(planned, attempt))
    return sorted(choices, key=lambda choice: choice.attempt > 1)


def choose(
    runs: Sequence[PlannedRun],
    world: World,
    free_nodes: int,
    seconds_left: float,
    expected_s: float,
    taken: frozenset[tuple[str, int]] = frozenset(),
) -> Choice | None:
    """The attempt that a pilot should claim now, or None where nothing fits.

    ``expected_s``: what one run takes here, by what was measured so far. A run that could not end before the pilot's
    wall time is left for another pilot. ``taken``: claims seen to be another's, not in the journals yet.
    """
    if world.cancelled or seconds_left < expected_s:
        return None
    for choice in waiting(runs, world):
        key = (choice.planned.run_id, choice.attempt)
        if choice.planned.nodes == free_nodes and key not in taken:
            return choice
    return None
