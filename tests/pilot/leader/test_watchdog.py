"""Deadlines as a table: nothing here sees a clock."""

from dataclasses import replace

import pytest

from sweep.contract import Phase
from sweep.outcomes import Outcome
from sweep.pilot.leader.watchdog import Watchdog
from tests.support.pilot_parts import LIMITS

NODES = ("n1", "n1", "n2", "n2")


def steady(ranks=2, iterations=4, step_s=0.1, limits=LIMITS, first_s=1.0):
    """A watchdog whose ranks have all just begun the last of `iterations`; (watchdog, the time of that)."""
    dog = Watchdog(NODES[:ranks], limits, 0.0)
    now = 5.0
    for rank in range(ranks):
        dog.heartbeat(rank, Phase.FIRST_ITERATION, 0, None, now)
    now += first_s
    for iteration in range(1, iterations):
        for rank in range(ranks):
            dog.heartbeat(rank, Phase.STEADY, iteration, None, now)
        now += step_s
    return dog, now - step_s


def test_a_slow_first_iteration_is_not_a_hang_but_a_missing_heartbeat_after_it_is():
    dog, now = steady(first_s=60.0)
    assert dog.verdict(now + 19.9) is None
    assert dog.verdict(now + 20.0).outcome is Outcome.HANG


def test_no_rank_was_late_while_nothing_was_known_of_it():
    dog, now = steady()
    dog.known_since = now + 30.0
    assert dog.verdict(now + 49.9) is None
    assert dog.verdict(now + 50.0).outcome is Outcome.HANG


def test_nor_while_it_began():
    dog = Watchdog(NODES[:1], LIMITS, 0.0)
    dog.busy(0, 299.0)
    dog.known_since = 310.0
    assert dog.verdict(599.0) is None, "a limit after it was seen to work"
    assert dog.next_deadline() == pytest.approx(610.0)


@pytest.mark.parametrize(("step_s", "limit_s"), [(0.1, 20.0), (4.0, 20.0), (10.0, 50.0), (60.0, 300.0)])
def test_the_steady_limit_follows_the_median_iteration(step_s, limit_s):
    dog, now = steady(step_s=step_s)
    assert dog.next_deadline() == pytest.approx(min(now + limit_s, 900))


def test_a_disturbed_iteration_does_not_move_the_limit():
    dog, now = steady(ranks=1, iterations=5)
    dog.heartbeat(0, Phase.STEADY, 5, None, now + 15)
    assert dog.next_deadline() == pytest.approx(now + 15 + 20)


def test_a_rank_may_declare_more_time_but_not_less():
    dog, now = steady()
    dog.heartbeat(0, Phase.STEADY, 4, 100.0, now)
    dog.heartbeat(1, Phase.STEADY, 4, 1.0, now)
    assert dog.limit_s(dog.ranks[0]) == 100.0
    assert dog.limit_s(dog.ranks[1]) == 20.0


def test_the_rank_with_the_least_progress_is_named():
    dog, now = steady(ranks=4)
    for rank in (0, 1, 3):
        dog.heartbeat(rank, Phase.STEADY, 5, None, now + 1)
    verdict = dog.verdict(now + 60)
    assert verdict.ranks == (2,)
    assert "rank 2 on n2 stopped in steady, iteration 3" in verdict.text
    assert "the 3 others wait for it" in verdict.text


def test_an_ended_rank_needs_no_heartbeat():
    dog, now = steady()
    dog.ended(0)
    dog.ended(1)
    assert dog.verdict(now + 100) is None


def test_batched_heartbeats_still_give_the_iteration_time():
    dog = Watchdog(NODES[:1], LIMITS, 0.0)
    dog.heartbeat(0, Phase.FIRST_ITERATION, 0, None, 1.0)
    dog.heartbeat(0, Phase.STEADY, 3, None, 1.2)
    assert dog.next_deadline() == pytest.approx(1.2 + 20)


def test_an_attempt_that_runs_indefinitely_is_ended():
    dog, _ = steady(limits=replace(LIMITS, attempt_s=30))
    dog.heartbeat(0, Phase.STEADY, 400, None, 29.0)
    dog.heartbeat(1, Phase.STEADY, 400, None, 29.0)
    verdict = dog.verdict(30.0)
    assert verdict.outcome is Outcome.TIME_LIMIT
    assert "30 s" in verdict.text


def test_a_slow_start_that_works_gets_twice_the_limit_and_no_more():
    dog = Watchdog(NODES[:1], LIMITS, 0.0)
    dog.begin(0.0)
    for at in range(5, 700, 5):
        dog.busy(0, float(at))
        assert (dog.verdict(float(at)) is None) == (at < 600)
    idle = Watchdog(NODES[:1], LIMITS, 0.0)
    idle.busy(0, 100.0)
    assert idle.verdict(399.0) is None
    assert idle.verdict(400.0).outcome is Outcome.HANG


def test_work_does_not_replace_heartbeats_between_iterations():
    dog, now = steady()
    dog.busy(0, now + 15.0)
    dog.busy(1, now + 15.0)
    assert dog.verdict(now + 20.0).outcome is Outcome.HANG
