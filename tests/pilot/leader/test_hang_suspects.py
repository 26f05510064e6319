"""Of ranks that stopped in the same iteration, the one whose stack differs is named."""

from sweep.pilot.leader.hang_suspects import innermost, suspects


def dump(*frames):
    """faulthandler's text: other threads first, the main one last, innermost frame first."""
    other = 'Thread 0x00007f01 (most recent call first):\n  File "/x/threading.py", line 5 in wait\n\n'
    lines = "".join(f'  File "/x/{file}", line {line} in {name}\n' for name, file, line in frames)
    return other + "Current thread 0x00007f02 (most recent call first):\n" + lines


WAITING = dump(("all_reduce", "distributed_c10d.py", 3000), ("step", "train.py", 40))
ASLEEP = dump(("sleep_for_ever", "train.py", 12), ("step", "train.py", 38))


def test_the_rank_outside_the_majority_is_named_also_without_a_stack():
    found = "sleep_for_ever (train.py:12) from step (train.py:38)"
    assert suspects({0: WAITING, 1: WAITING, 2: ASLEEP, 3: WAITING}) == {2: found}
    assert suspects({0: WAITING, 1: WAITING, 2: ""}) == {2: "no stack"}
    assert innermost(WAITING) == "all_reduce (distributed_c10d.py:3000) from step (train.py:40)"


def test_without_a_majority_no_rank_is_named():
    assert suspects({0: ASLEEP, 1: dump(("load", "data.py", 3))}) == {}
    assert suspects({0: WAITING, 1: WAITING}) == {}
    assert suspects({}) == {}


def test_of_two_ranks_the_one_outside_the_collective_is_the_suspect():
    backward = dump(("_engine_run_backward", "graph.py", 979), ("backward", "_tensor.py", 630))
    assert suspects({0: backward, 1: ASLEEP}) == {1: "sleep_for_ever (train.py:12) from step (train.py:38)"}
    assert suspects({0: WAITING, 1: backward}) == {}, "both wait, each in a collective of its own"
    other = dump(("load", "data.py", 3))
    assert suspects({0: ASLEEP, 1: other}) == {}, "no rank waits: none is named"
