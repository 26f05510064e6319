"""The heartbeat buffer: which heartbeats are stored."""

from sweep.contract import Phase
from sweep.pilot.agent.heartbeats import EARLY_ITERATIONS, HeartbeatBuffer
from sweep.pilot.agent.progress import RankHeartbeat


def steady(iteration):
    return RankHeartbeat(phase=Phase.STEADY, iteration=iteration)


def test_the_first_are_all_stored_and_of_later_ones_the_last():
    buffer = HeartbeatBuffer()
    for iteration in range(20):
        buffer.add(0, steady(iteration), float(iteration))
    assert [heartbeat.iteration for heartbeat in buffer.take(20.0)] == [19]
    for iteration in range(EARLY_ITERATIONS + 1):
        buffer.add(1, steady(iteration), 0.0)
    assert [heartbeat.iteration for heartbeat in buffer.take(0.0)] == list(range(EARLY_ITERATIONS + 1))


def test_they_are_taken_once_with_their_age():
    buffer = HeartbeatBuffer()
    assert not buffer
    buffer.add(3, RankHeartbeat(phase=Phase.START, due_s=60.0), 10.0)
    assert buffer
    (taken,) = buffer.take(10.5)
    assert (taken.rank, taken.phase, taken.due_s, taken.age_s) == (3, Phase.START, 60.0, 0.5)
    assert not buffer
    assert buffer.take(11.0) == ()


def test_a_rank_iterates_once_its_first_iteration_is_done():
    buffer = HeartbeatBuffer()
    for phase, iterates in [(Phase.START, False), (Phase.FIRST_ITERATION, False), (Phase.STEADY, True)]:
        buffer.add(0, RankHeartbeat(phase=phase), 0.0)
        assert buffer.iterates(0) is iterates
    assert not buffer.iterates(1)
