"""Where allocated node time went, by pilot and part: the one definition, of `sweep status` and the report. Pure.

Every node-second between the begin and the end of a pilot's job is in exactly one part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sweep.outcomes import Outcome
from sweep.state.parts import PARTS
from sweep.state.state import Attempt, PilotState, SweepState


def node_time(state: SweepState, now: float) -> dict[str, dict[str, float]]:
    """Pilot -> part of ``PARTS`` -> node-seconds, of the pilots that began; they sum to what was allocated."""
    of_pilot: defaultdict[str, list[Attempt]] = defaultdict(list)
    for run in state.runs.values():
        for attempt in run.attempts.values():
            if attempt.started_at is not None:
                of_pilot[attempt.pilot].append(attempt)
    began = (pilot for pilot in state.pilots.values() if pilot.started_at is not None)
    return {pilot.name: _split(pilot, of_pilot[pilot.name], now) for pilot in began}


def total(by_pilot: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Node-seconds of all pilots by part, in the order of ``PARTS``; without those that are nothing."""
    of_all = {part: sum(parts.get(part, 0.0) for parts in by_pilot.values()) for part in PARTS}
    return {part: seconds for part, seconds in of_all.items() if seconds > 0}


def _split(pilot: PilotState, attempts: list[Attempt], now: float) -> dict[str, float]:
    """One pilot's. Its nodes are sound until its own end, or the last line of one that ended without a word."""
    ready = pilot.started_at or now
    own_end = pilot.last_line_at if pilot.ended is None else pilot.ended_at
    sound = max(ready, now if pilot.running else own_end or ready)
    end = max(sound, pilot.released_at or (pilot.ended_at if pilot.gone is not None else None) or sound)
    nodes = max(pilot.nodes, len(pilot.node_names))
    parts = defaultdict(float, pilot.spent)
    parts["pilot"] += nodes * max(0.0, ready - (ready if pilot.began_at is None else pilot.began_at))
    parts["pilot" if pilot.ended is not None else "lost"] += nodes * (end - sound)
    edges = [(ready, len(pilot.node_names) - nodes, 0)]  # those that never came
    edges += [(min(max(at, ready), sound), -1, 0) for at in pilot.lost_at.values()]
    for attempt in attempts:
        width, low = len(attempt.nodes), min(max(attempt.started_at or ready, ready), sound)
        high = min(max(attempt.ended_at or sound, low), sound)
        edges += [(low, -width, width), (high, width, -width)]
        if attempt.outcome in (None, Outcome.LOST):
            parts["running" if pilot.running else "failed"] += width * (high - low)
    free, busy, at = nodes, 0, ready
    for time, more_free, more_busy in sorted([*edges, (sound, 0, 0)]):
        parts["waiting" if busy else "idle"] += max(0, free) * (time - at)
        parts["lost"] += max(0, nodes - max(0, free) - busy) * (time - at)
        free, busy, at = free + more_free, busy + more_busy, time
    return dict(parts)
