"""What messages mean for an attempt: no socket, no clock."""

from dataclasses import replace

import pytest

from sweep.contract import Layout, Measurement, Phase, Run
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt_state import FURTHER_FAILURES_S, AttemptResult, AttemptState, diagnosis_of
from sweep.pilot.leader.hang_suspects import innermost, suspects
from sweep.pilot.leader.node_fate import Fate
from sweep.pilot.leader.watchdog import StopReason
from sweep.pilot.messages import (
    Busy,
    Clean,
    Failed,
    Heartbeat,
    Heartbeats,
    Measured,
    RankExited,
    RankFailure,
    RankRemains,
)
from tests.support.pilot_parts import LIMITS

RUN = Run(workload="w", model="m", shape={}, nodes=2, gpus_per_node=1, sequence_length=1, layout=Layout(dp=2))
SHORT_STARTS = replace(LIMITS, start_s=30.0, first_iteration_s=30.0)


def state():
    return AttemptState("r.1", RUN, ["n1", "n2"], SHORT_STARTS, 0.0)


def heartbeat(rank, phase, iteration=None, age_s=0.0):
    heartbeat = Heartbeat(rank=rank, phase=Phase(phase), iteration=iteration, due_s=None, age_s=age_s)
    return Heartbeats(attempt="r.1", heartbeats=(heartbeat,))


def measured(rank):
    return Measured(attempt="r.1", rank=rank, measurement=Measurement(step_times_s=[0.1]))


def exited(rank, code=0, signal=None):
    return RankExited(attempt="r.1", rank=rank, exit_code=code, signal=signal)


def clean(rank, **changes):
    remains = RankRemains(rank=rank, killed=False, tail=f"output of {rank}")
    values = {"attempt": "r.1", "ranks": (remains,), "not_ended": (), "kernel": (), "removed": ()}
    return Clean(**{**values, **changes})


def after(*messages):
    """The state after these, one second apart; and the time of the last."""
    attempt = state()
    attempt.begin(0.0)
    for second, message in enumerate(messages, 1):
        attempt.receive(message, float(second))
    return attempt, float(len(messages))


def test_an_attempt_whose_ranks_all_measured_is_ok_however_they_end():
    attempt, now = after(
        heartbeat(0, "first_iteration"),
        heartbeat(0, "steady", 1),
        measured(0),
        measured(1),
        exited(0),
        exited(1, None, 11),
    )
    assert attempt.over(now)
    attempt.end_ranks(now)
    result = AttemptResult(attempt, diagnosis_of(attempt), attempt.moments.durations_s(10.0))
    assert (result.diagnosis.outcome, result.message) == (Outcome.OK, None)
    assert result.times_s == {
        "total_s": 10.0, "start_s": 1.0, "first_iteration_s": 1.0, "measure_s": 2.0, "teardown_s": 6.0
    }  # fmt: skip


def test_it_goes_on_until_the_others_had_their_time_to_fail_by_themselves():
    attempt, now = after(exited(0, 1))
    assert not attempt.over(now)
    assert attempt.next_check() == now + FURTHER_FAILURES_S
    assert attempt.over(now + FURTHER_FAILURES_S)
    attempt.check(1000.0)
    assert attempt.verdict is None, "the others then time out, as expected"


def test_a_rank_that_measured_and_ended_is_no_failure():
    attempt, now = after(measured(0), exited(0, 1))
    assert not attempt.over(now + FURTHER_FAILURES_S)
    assert not attempt.all_measured


def test_a_missed_heartbeat_is_a_hang_and_work_postpones_it():
    attempt, _ = after()
    assert attempt.next_check() == 30.0
    attempt.receive(Busy(attempt="r.1", ranks=(0, 1)), 20.0)
    attempt.check(30.0)
    assert attempt.verdict is None
    attempt.check(50.0)
    assert attempt.verdict.outcome is Outcome.HANG


def test_the_age_of_a_heartbeat_counts():
    attempt = state()
    attempt.receive(heartbeat(0, "first_iteration", 0, age_s=4.0), 10.0)
    assert attempt.moments.first_iteration == 6.0


def test_messages_of_another_attempt_are_ignored():
    attempt = state()
    for message in (Busy(attempt="r.2", ranks=(7,)), RankExited(attempt="r.0", rank=0, exit_code=1, signal=None)):
        attempt.receive(message, 1.0)
    assert not attempt.ranks[0].exited
    assert attempt.next_check() == 30.0


@pytest.mark.parametrize(
    ("fates", "outcome", "accused"),
    [
        ({}, Outcome.NETWORK, ()),
        ({"n1": Fate.ALIVE, "n2": Fate.UNKNOWN}, Outcome.NETWORK, ()),
        ({"n1": Fate.UNKNOWN, "n2": Fate.RELEASED}, Outcome.PREEMPTED, ()),
        ({"n1": Fate.RELEASED, "n2": Fate.DEAD}, Outcome.NODE_FAIL, ("n2",)),
        ({"n1": Fate.DEAD, "n2": Fate.DEAD}, Outcome.NODE_FAIL, ("n1", "n2")),
    ],
)
def test_a_lost_connection_accuses_the_nodes_that_are_dead_and_no_other(fates, outcome, accused):
    attempt = state()
    attempt.lost("n2", "no message for 45 s")
    attempt.end(StopReason(Outcome.CANCELLED, "cancelled"))
    attempt.lost("n1", "it was closed")
    assert attempt.over(0.0)
    attempt.agents_ended(fates)
    attempt.end_ranks(1.0)
    result = AttemptResult(attempt, diagnosis_of(attempt), {})
    assert (result.diagnosis.outcome, result.accused) == (outcome, accused)
    assert "n2" in result.message


def test_a_failure_is_diagnosed_from_what_is_left_of_it():
    failure = RankFailure(type="KeyError", message="'k'", traceback="KeyError: 'k'")
    attempt, now = after(Failed(attempt="r.1", rank=1, failure=failure), exited(1, 1))
    attempt.end_ranks(now)
    attempt.cleared("n1", clean(0, ranks=(RankRemains(rank=0, killed=True, tail=""),), removed=("nccl-1",)))
    attempt.cleared("n2", clean(1, not_ended=("pid 7",)))
    result = AttemptResult(attempt, diagnosis_of(attempt), {})
    assert result.diagnosis.outcome is Outcome.PYTHON_EXCEPTION
    assert (attempt.ranks[0].killed_by_us, attempt.ranks[1].log_tail) == (True, "output of 1")
    assert (attempt.clean["n1"].removed, attempt.not_ended) == (("nccl-1",), {"n2": ("pid 7",)})


@pytest.mark.parametrize("killed", [False, True])
def test_the_kernels_kill_explains_the_silence_that_follows_it(killed):
    """A rank waits for a process that the OOM killer took, or dies so late that its heartbeat was due before."""
    line = "oom-kill: 1 processes of the memory cgroup /job (its limit is 1 bytes)"
    attempt, now = after(heartbeat(0, "steady", 1), heartbeat(1, "steady", 1))
    attempt.end(StopReason(Outcome.HANG, "no progress for 20 s: rank 1 on n2 stopped", (1,)))
    attempt.end_ranks(now)
    attempt.cleared("n1", clean(0))
    attempt.cleared("n2", clean(1, kernel=(line,) * killed))
    result = AttemptResult(attempt, diagnosis_of(attempt), {})
    if killed:
        assert (result.diagnosis.outcome, result.message, result.accused) == (Outcome.OOM_HOST, line, ())
    else:
        assert result.diagnosis.outcome is Outcome.HANG
        assert (result.message, result.accused) == ("no progress for 20 s: rank 1 on n2 stopped", ("n2",))


@pytest.mark.parametrize("lines", [(), ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",)])
def test_an_xid_names_the_node_that_reported_it(lines):
    """And not one whose GPU only lost its programs with it."""
    attempt, now = after(exited(0, None, 9), exited(1, None, 9))
    attempt.end_ranks(now)
    lost = "NVRM: Xid (PCI:0000:1b:00): 45, pid=7, name=python, Ch 00000008"
    attempt.cleared("n1", clean(0, kernel=(lost,) * len(lines)))
    attempt.cleared("n2", clean(1, kernel=lines))
    result = AttemptResult(attempt, diagnosis_of(attempt), {})
    assert (result.diagnosis.outcome is Outcome.XID_HARDWARE, result.accused == ("n2",)) == (bool(lines), bool(lines))


STACKS = 'Current thread 0x1 (most recent call first):\n  File "/w/{}.py", line 1 in {}\n'


def test_a_hang_names_the_rank_that_is_not_where_the_others_wait():
    run = Run(workload="w", model="m", shape={}, nodes=4, gpus_per_node=1, sequence_length=1, layout=Layout(dp=4))
    attempt = AttemptState("r.1", run, ["n1", "n2", "n3", "n4"], SHORT_STARTS, 0.0)
    attempt.check(100.0)
    for rank in range(4):
        where = ("data", "load") if rank == 2 else ("distributed_c10d", "all_reduce")
        remains = RankRemains(rank=rank, killed=True, tail="", stacks=STACKS.format(*where))
        attempt.cleared(f"n{rank + 1}", clean(rank, ranks=(remains,)))
    attempt.name_suspects()
    assert "rank 2 on n3 in load" in attempt.verdict.text
    attempt.end_ranks(100.0)
    assert AttemptResult(attempt, diagnosis_of(attempt), {}).accused == ("n3",)


def test_while_a_rank_writes_much_neither_it_nor_those_that_wait_for_it_are_late():
    attempt, _ = after(heartbeat(0, "start"), heartbeat(1, "start"))
    for second in range(4, 300, 2):
        attempt.receive(Busy(attempt="r.1", ranks=(1,), writing=True), float(second))
        attempt.known_since(2.0)
        attempt.check(float(second))
    assert attempt.verdict is None
    attempt.check(298.0 + SHORT_STARTS.start_s)
    assert attempt.verdict.outcome is Outcome.HANG, "it no longer writes"


def dump(*frames):
    """faulthandler's text: other threads first, the main one last, innermost frame first."""
    other = 'Thread 0x00007f01 (most recent call first):\n  File "/x/threading.py", line 5 in wait\n\n'
    lines = "".join(f'  File "/x/{file}", line {line} in {name}\n' for name, file, line in frames)
    return other + "Current thread 0x00007f02 (most recent call first):\n" + lines


WAITING = dump(("all_reduce", "distributed_c10d.py", 3000), ("step", "train.py", 40))
ASLEEP = dump(("sleep_for_ever", "train.py", 12), ("step", "train.py", 38))


BACKWARD = dump(("_engine_run_backward", "graph.py", 979), ("backward", "_tensor.py", 630))
LOADING = dump(("load", "data.py", 3))
ASLEEP_AT = "sleep_for_ever (train.py:12) from step (train.py:38)"


@pytest.mark.parametrize(("stacks", "suspected"), [
    ([WAITING, WAITING, ASLEEP, WAITING], {2: ASLEEP_AT}), ([WAITING, WAITING, ""], {2: "no stack"}),
    ([ASLEEP, LOADING], {}), ([WAITING, WAITING], {}), ([], {}),  # without a majority none is named
    ([BACKWARD, ASLEEP], {1: ASLEEP_AT}),  # of two the one outside the collective
    ([WAITING, BACKWARD], {}),  # both wait, each in a collective of its own
])  # fmt: skip
def test_the_rank_outside_the_majority_or_the_collective_is_the_suspect(stacks, suspected):
    assert suspects(dict(enumerate(stacks))) == suspected
    assert innermost(WAITING) == "all_reduce (distributed_c10d.py:3000) from step (train.py:40)"
