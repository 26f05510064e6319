"""Which pilots to submit now. Pure: what waits and what is open, in; pilots, out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.plan import PlannedRun
from sweep.search import waiting
from sweep.state import World

BARREN_LIMIT = 3
"""so many pilots of one width in a row that began no attempt: the next would not either"""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the site allows."""

    max_pilots: int
    pilot_time_s: float
    run_s: float
    """what one run takes, by what is known"""
    max_runs_per_pilot: int | None = None
    side_by_side: bool = True
    """False: one pilot at a time (a single machine)"""


def pilots_wanted(runs: Sequence[PlannedRun], world: World, capacity: Capacity) -> list[int]:
    """The widths, in nodes, of the pilots to be submitted now; the narrowest first, since they start soonest."""
    if world.cancelled:
        return []
    open_pilots = [pilot for pilot in world.pilots.values() if pilot.open]
    most = capacity.max_pilots if capacity.side_by_side else 1
    room = most - len(open_pilots)
    open_widths = Counter(pilot.nodes for pilot in open_pilots)
    needs = _needs(runs, world, capacity)
    given_up = barren_widths(world)
    wanted: list[int] = []
    # Round by round over the widths, so that no width waits for another's last run.
    for round_number in range(max(needs.values(), default=0)):
        for width in sorted(needs):
            missing = needs[width] - open_widths[width] > round_number
            if missing and width not in given_up and len(wanted) < room:
                wanted.append(width)
    return sorted(wanted)


def _needs(runs: Sequence[PlannedRun], world: World, capacity: Capacity) -> Mapping[int, int]:
    """Width -> how many pilots its waiting runs can use."""
    counts = Counter(choice.planned.nodes for choice in waiting(runs, world))
    by_time = max(1, int(capacity.pilot_time_s // max(capacity.run_s, 1e-9)))
    per_pilot = min(by_time, capacity.max_runs_per_pilot or by_time)
    return {width: math.ceil(count / per_pilot) for width, count in counts.items()}


def nodes_to_avoid(runs: Sequence[PlannedRun], world: World, width: int) -> frozenset[str]:
    """Where a pilot of this width must not land to be of use: the first retry's earlier nodes.

    None as long as a run of the width was never tried: such a pilot has work anywhere.
    """
    first = next((choice for choice in waiting(runs, world) if choice.planned.nodes == width), None)
    return frozenset() if first is None or first.attempt == 1 else world.run(first.planned.run_id).avoid()


def barren_widths(world: World) -> frozenset[int]:
    """Widths whose last pilots ended without having begun an attempt, time after time.

    A pilot that was ordered before the width's latest attempt ended may only have come too late to find work: it does
    not count.
    """
    latest: dict[int, float] = {}
    fruitful = set()
    for run in world.runs.values():
        for attempt in run.attempts.values():
            fruitful.add(attempt.pilot)
            pilot = world.pilots.get(attempt.pilot)
            if pilot is not None:
                latest[pilot.nodes] = max(latest.get(pilot.nodes, 0.0), attempt.ended_at or 0.0)
    barren = Counter(
        pilot.nodes
        for pilot in world.pilots.values()
        if not pilot.open
        and pilot.name not in fruitful
        and pilot.intended_at >= max(world.session_at, latest.get(pilot.nodes, 0.0))
    )
    return frozenset(width for width, count in barren.items() if count >= BARREN_LIMIT)
