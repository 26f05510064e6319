"""A sweep's progress as short texts: counts, time left, cost. Shared by the live view, status and other commands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweep.store.follow import FollowedSweep


def summary_line(followed: FollowedSweep) -> str:
    """Counts, pilots, time left and cost, in one line."""
    tally = followed.tally
    found = tally.counts(followed.left_out())
    words = ", ".join(f"{number} {word}" for word, number in sorted(found.items(), key=lambda item: -item[1]))
    pilots = [pilot for pilot in followed.sweep_state.pilots.values() if pilot.open]
    queued = sum(pilot.started_at is None for pilot in pilots)
    spent = f"{hours_text(tally.gpu_hours(time.time())[0])} GPU-hours"
    counted = f"{tally.total} runs: {words}; pilots: {len(pilots) - queued} running, {queued} queued"
    return f"{counted}; {spent}; {eta(followed)}"


def plural(number: int, thing: str) -> str:
    """1 run, 2 runs."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def eta(followed: FollowedSweep) -> str:
    """The time left as text, from predictions and the runs' durations so far."""
    tally, left_out = followed.tally, followed.left_out()
    found = tally.counts(left_out)
    if not found.get("waiting") and not found.get("running"):
        return "done"
    running = any(pilot.open and pilot.started_at is not None for pilot in followed.sweep_state.pilots.values())
    text = f"{span_text(tally.seconds_left(time.time(), left_out))} to go"
    return text if running else f"{text} once a pilot runs"


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
