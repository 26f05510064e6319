"""How far a sweep is, as short texts: counts, time to go, cost. Shared by the live view, status and the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sweep.state.tally import Tally

if TYPE_CHECKING:
    from sweep.state.state import World
    from sweep.store.sweep import Sweep


def tally_of(sweep: Sweep) -> Tally:
    """The sums over a sweep's runs."""
    return Tally(sweep.runs, sweep.site.gpus_per_node)


def summary_line(sweep: Sweep, world: World, tally: Tally | None = None) -> str:
    """Counts, pilots, the time to go and what it cost, in one line."""
    tally = (tally or tally_of(sweep)).look(world)
    found = tally.counts(sweep.left_out(world))
    words = ", ".join(f"{number} {word}" for word, number in sorted(found.items(), key=lambda item: -item[1]))
    pilots = [pilot for pilot in world.pilots.values() if pilot.open]
    queued = sum(pilot.started_at is None for pilot in pilots)
    spent = f"{hours_text(tally.gpu_hours(time.time())[0])} GPU-hours"
    return f"{tally.total} runs: {words}; pilots: {len(pilots) - queued} running, {queued} queued; {spent}; " + eta(
        sweep, world, tally
    )


def eta(sweep: Sweep, world: World, tally: Tally | None = None) -> str:
    """How much is left, by what was predicted and what runs took so far, in words."""
    tally = (tally or tally_of(sweep)).look(world)
    left_out = sweep.left_out(world)
    found = tally.counts(left_out)
    if not found.get("waiting") and not found.get("running"):
        return "done"
    at_work = any(pilot.open and pilot.started_at is not None for pilot in world.pilots.values())
    text = f"{span_text(tally.seconds_left(time.time(), left_out))} to go"
    return text if at_work else f"{text} once a pilot runs"


def span_text(seconds: float) -> str:
    """A rough span of time: about 3 h 10 min."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return "about a minute"
    if minutes < 120:
        return f"about {minutes} min"
    hours, rest = divmod(round(minutes / 10) * 10, 60)
    return f"about {hours} h {rest} min" if hours < 48 else f"about {hours / 24:.1f} days"


def hours_text(hours: float) -> str:
    """0.012, 0.48, 7.3, 1,240."""
    if hours >= 100:
        return f"{hours:,.0f}"
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2g}"
