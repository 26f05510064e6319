"""A clock that stops while its process is stopped."""

import pytest

from sweep.pilot.clock import LATE_S, TICK_S, PausingClock


def read(*times):
    """The clock's time at each of these times."""
    real = iter(times)
    clock = PausingClock(lambda: next(real))
    return [clock.now() for _ in times[1:]], clock.paused_s


def test_while_it_is_read_regularly_it_is_a_clock():
    assert read(100.0, 101.0, 103.5, 104.0) == ([101.0, 103.5, 104.0], 0.0)


def test_a_busy_process_was_not_stopped():
    assert read(0.0, LATE_S)[1] == 0.0


@pytest.mark.parametrize("seconds", [30.0, 75.0])
def test_time_in_which_no_process_could_read_it_does_not_count(seconds):
    times, paused_s = read(0.0, 1.0, 1.0 + seconds, 2.0 + seconds)
    assert times == [1.0, 1.0 + TICK_S, 2.0 + TICK_S]
    assert paused_s == seconds - TICK_S


def test_the_end_of_the_last_pause_is_known():
    real = iter([0.0, 1.0, 31.0, 32.0])
    clock = PausingClock(lambda: next(real))
    assert clock.runs_since == float("-inf")
    clock.now(), clock.now(), clock.now()
    assert clock.runs_since == 1.0 + TICK_S
