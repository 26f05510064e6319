"""A clock that stops while its process is stopped."""

import pytest

from sweep.pilot.clock import LATE_S, TICK_S, PausingClock


def read(*times):
    """The clock's time at each of these times, and the clock."""
    real = iter(times)
    clock = PausingClock(lambda: next(real))
    return [clock.now() for _ in times[1:]], clock


@pytest.mark.parametrize("times", [(101.0, 103.5, 104.0), (100.0 + LATE_S,)])
def test_while_it_is_read_regularly_or_by_a_busy_process_it_is_a_clock(times):
    found, clock = read(100.0, *times)
    assert (found, clock.paused_s, clock.runs_since) == ([*times], 0.0, float("-inf"))


@pytest.mark.parametrize("seconds", [30.0, 75.0])
def test_time_in_which_no_process_could_read_it_does_not_count(seconds):
    times, clock = read(0.0, 1.0, 1.0 + seconds, 2.0 + seconds)
    assert times == [1.0, 1.0 + TICK_S, 2.0 + TICK_S]
    assert (clock.paused_s, clock.runs_since) == (seconds - TICK_S, 1.0 + TICK_S)
