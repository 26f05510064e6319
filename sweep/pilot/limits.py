"""Limits on the time between heartbeats and on attempts: part of a pilot's job spec, for the leader's watchdog."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Longest time between heartbeats per phase, and the longest attempt, in seconds."""

    start_s: float
    first_iteration_s: float
    steady_s: float
    """floor of the steady limit"""
    steady_factor: float = 5.0
    """the steady limit is this many median iterations, where that is above the floor"""
    finish_s: float = 15.0
    """teardown after the measurement, which is kept whatever happens: it costs the next run this long at most"""
    attempt_s: float
