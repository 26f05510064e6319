"""What a pilot runs next. Pure: the plan, the world, the free nodes and the time left, in; a choice, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sweep.plan.runs import PlannedRun
from sweep.state import World

if TYPE_CHECKING:
    from sweep.search.live import Search


@dataclass(frozen=True)
class Choice:
    """A run and the number of the attempt to be claimed."""

    planned: PlannedRun
    attempt: int
    nodes: tuple[str, ...] = ()
    """the free nodes to run on; none where it only waits"""


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
    *,
    search: Search,
    names: Sequence[str],
    same_nodes: bool = False,
) -> Choice | None:
    """The attempt that a pilot should claim now, of the widest run that fits; or None where nothing does.

    ``free_nodes``: how many the run may have. ``expected_s``: what one run takes here, by what was measured so far. A
    run that could not end before the pilot's wall time is left for another pilot. ``taken``: claims seen to be
    another's, not in the journals yet. ``search``: what follows the sweep and gives the order. ``names``: the free
    nodes. ``same_nodes``: there are no others, so a retry may go where the run failed.
    """
    if world.cancelled or seconds_left < expected_s:
        return None
    for place, attempt in search.choices(world, free_nodes, taken):
        choice = Choice(runs[place], attempt)
        nodes = _fit(choice, world, names, same_nodes)
        if len(nodes) >= choice.planned.nodes:
            return replace(choice, nodes=nodes[: choice.planned.nodes])
    return None


def _fit(choice: Choice, world: World, names: Sequence[str], same_nodes: bool) -> tuple[str, ...]:
    """The free nodes on which the run did not fail in a way that a node may cause; with the others last where there
    are no more nodes than these.
    """
    if choice.attempt == 1:
        return tuple(names)
    avoid = world.state_of(choice.planned.run_id).avoid()
    good = [name for name in names if name not in avoid]
    return tuple(good + [name for name in names if name in avoid] * same_nodes)
