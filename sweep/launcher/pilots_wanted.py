"""Which pilots to submit now. Pure: waiting runs and open pilots in, wanted pilots out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from sweep.planning.runs import PlannedRun
from sweep.search.search import waiting
from sweep.state.state import PilotState, SweepState

UNPRODUCTIVE_LIMIT = 3
"""after this many pilots of one width in a row that started no attempt, the next would not either"""


WORTH_S = 300.0
"""a width with less work than this for a pilot of its own is left to a wider pilot"""
PATIENCE_S = 120.0
"""how long narrower runs wait for a wider pilot to start before getting their own pilots: four rounds of Slurm's
backfill (bf_interval, 30 s by default)"""
SHARE_S = 1800.0
"""this much work justifies a further pilot, where the site allows one: the sweep ends sooner, and shorter jobs start
sooner"""
ROUND_S = 60
"""Slurm counts time limits in whole minutes (man sbatch, --time)"""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The limits of a site or of one of its node groups, and run times."""

    node_group: str = ""

    max_pilots: int
    pilot_time_s: float
    run_s: float
    """expected duration of one run"""
    attempt_s: float = 0.0
    """the longest that one run may take"""
    max_runs_per_pilot: int | None = None
    side_by_side: bool = True
    """False: one pilot at a time, and one run at a time (a single machine)"""
    now: float = 0.0
    """unix seconds"""


@dataclass(frozen=True)
class Wanted:
    """A pilot to submit."""

    nodes: int
    time_limit_s: int
    node_group: str = ""


def pilots_wanted(runs: Sequence[PlannedRun], sweep_state: SweepState, capacity: Capacity) -> list[Wanted]:
    """The pilots to submit now, narrowest first, since those start soonest. ``runs``: of the capacity's node group."""
    if sweep_state.cancelled:
        return []
    group = capacity.node_group
    open_pilots = [pilot for pilot in sweep_state.pilots.values() if pilot.open and pilot.node_group == group]
    most = capacity.max_pilots if capacity.side_by_side else 1
    room = most - len(open_pilots)
    open_widths = Counter(_width(pilot, sweep_state.excluded_nodes) for pilot in open_pilots)
    given_up = unproductive_widths(sweep_state, group)
    counts = Counter(choice.planned.nodes for choice in waiting(runs, sweep_state))
    for width in given_up:
        counts.pop(width, None)
    served = _left_to_wider(counts, open_pilots, capacity)
    needs = {width: _pilots_for(count, capacity, most // len(served)) for width, count in served.items()}
    wanted: list[int] = []
    # Round by round over the widths, so that no width waits for another's last run.
    for round_number in range(max(needs.values(), default=0)):
        for width in sorted(needs):
            if needs[width] - open_widths[width] > round_number and len(wanted) < room:
                wanted.append(width)
    return [Wanted(width, _time_limit_s(served[width] / needs[width], capacity), group) for width in sorted(wanted)]


def _width(pilot: PilotState, excluded_nodes: Container[str]) -> int:
    """The widest run that a pilot can take: less than requested if it lost nodes or started without some."""
    living = [node for node in pilot.node_names if node not in excluded_nodes]
    return len(living) if pilot.started_at is not None else pilot.nodes


def _left_to_wider(
    counts: Mapping[int, int], open_pilots: Sequence[PilotState], capacity: Capacity
) -> Mapping[int, float]:
    """Width -> number of runs' time for its pilots, including narrower widths with too little work for a pilot.

    A wider pilot packs narrower runs concurrently on its free nodes. One that is still in the queue after a while is
    not waited for, unless there are more widths than pilots at once.
    """
    if capacity.max_runs_per_pilot is not None:
        return dict(counts)
    late = {p.nodes for p in open_pilots if p.started_at is None and capacity.now - p.intended_at > PATIENCE_S}
    punctual = {p.nodes for p in open_pilots} - late
    served: dict[int, float] = {}
    for width in sorted(counts, reverse=True):
        little = not capacity.side_by_side or counts[width] * capacity.run_s < WORTH_S
        host = min((w for w in {*served, *punctual} if w > width and w not in late), default=None)
        if little and host is not None:
            per_pilot = host // width if capacity.side_by_side else 1
            served[host] = served.get(host, 0) + counts[width] / per_pilot
        else:
            served[width] = counts[width]
    while capacity.side_by_side and len(served) > capacity.max_pilots:  # fewer pilots than widths: pack
        narrowest, host = sorted(served)[:2]
        served[host] += served.pop(narrowest) / (host // narrowest)
    return {width: count for width, count in served.items() if width in counts}


def _pilots_for(count: float, capacity: Capacity, share: int) -> int:
    """As many as can do the work in their time, at most this width's share of all pilots, each with enough work."""
    by_time = max(1, int(capacity.pilot_time_s // max(capacity.run_s, 1e-9)))
    needed = math.ceil(count / min(by_time, capacity.max_runs_per_pilot or by_time))
    return max(needed, min(share, int(count * capacity.run_s // SHARE_S)))


def _time_limit_s(count: float, capacity: Capacity) -> int:
    """As short as the work allows, since short jobs start sooner: twice the expected time and one run at its limit."""
    needed = 2 * count * capacity.run_s + capacity.attempt_s + WORTH_S
    return int(min(capacity.pilot_time_s, ROUND_S * math.ceil(needed / ROUND_S)))


def nodes_to_avoid(runs: Sequence[PlannedRun], sweep_state: SweepState, width: int) -> frozenset[str]:
    """Nodes on which a pilot of this width would be useless: the first retry's earlier nodes.

    Empty while a run of the width was never tried: such a pilot has work anywhere.
    """
    first = next((choice for choice in waiting(runs, sweep_state) if choice.planned.nodes == width), None)
    return frozenset() if first is None or first.attempt == 1 else sweep_state.run_state(first.planned.run_id).avoid()


def unproductive_widths(sweep_state: SweepState, node_group: str = "") -> frozenset[int]:
    """Widths whose last pilots of the node group repeatedly ended without starting an attempt.

    A pilot ordered before the width's latest attempt ended may just have started too late to find work: it does
    not count.
    """
    latest: dict[int, float] = {}
    fruitful = set()
    pilots = {name: pilot for name, pilot in sweep_state.pilots.items() if pilot.node_group == node_group}
    for run in sweep_state.runs.values():
        for attempt in run.attempts.values():
            fruitful.add(attempt.pilot)
            pilot = pilots.get(attempt.pilot)
            if pilot is None and attempt.pilot in sweep_state.pilots:
                continue  # of another group
            for width in {len(attempt.nodes), pilot.nodes if pilot is not None else 0}:
                latest[width] = max(latest.get(width, 0.0), attempt.ended_at or 0.0)
    unproductive = Counter(
        pilot.nodes
        for pilot in pilots.values()
        if not pilot.open
        and pilot.job_id is not None  # else it never was a job: the scheduler was full or unreachable
        and pilot.name not in fruitful
        and pilot.intent_order >= max(sweep_state.session_at, latest.get(pilot.nodes, 0.0))
    )
    return frozenset(width for width, count in unproductive.items() if count >= UNPRODUCTIVE_LIMIT)
