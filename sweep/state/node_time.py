"""Where allocated node time went, by pilot and part: the one definition, of `sweep status` and the report. Pure.

Every node-second between the begin and the end of a pilot's job is in exactly one part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

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
    starts = np.clip([attempt.started_at or ready for attempt in attempts], ready, sound)
    ends = np.clip([attempt.ended_at or sound for attempt in attempts], starts, sound)
    widths = np.array([len(attempt.nodes) for attempt in attempts], dtype=np.int64)
    without = np.array([attempt.outcome in (None, Outcome.LOST) for attempt in attempts], dtype=np.int64)
    parts["running" if pilot.running else "failed"] += float((widths * without) @ (ends - starts))
    lost = np.clip([*pilot.lost_at.values()], ready, sound)
    times = np.concatenate([lost, starts, ends, [ready, sound]])
    more_busy = np.concatenate([np.zeros(len(lost)), widths, -widths, [0, 0]])
    more_free = -more_busy
    more_free[: len(lost)], more_free[-2] = -1, len(pilot.node_names) - nodes  # those that never came
    order = np.argsort(times, kind="stable")
    spans = np.diff(times[order], prepend=ready)
    free, busy = (each[order].cumsum() - each[order] for each in (more_free, more_busy))
    free = np.maximum(free + nodes, 0)
    for part, share in (("waiting", free * (busy > 0)), ("idle", free * (busy <= 0)), ("lost", nodes - free - busy)):
        parts[part] += float(np.maximum(share, 0) @ spans)
    return dict(parts)
