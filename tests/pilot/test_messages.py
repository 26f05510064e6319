"""Every message: round trip, and what is rejected."""

import dataclasses
import math
import typing

import msgspec
import pytest

from sweep.contract import Measurement, Phase, Place
from sweep.outcomes import Outcome
from sweep.pilot import messages
from sweep.pilot.messages import (
    AgentMessage,
    Alive,
    Busy,
    Clean,
    Cleared,
    ClearStale,
    Failed,
    Heartbeat,
    Heartbeats,
    Hello,
    Inspect,
    Inspected,
    LeaderMessage,
    Leave,
    Measured,
    Message,
    MessageError,
    NotPrepared,
    Ping,
    Prepare,
    Prepared,
    RankExited,
    RankFailure,
    RankRemains,
    Start,
    Stop,
    Terminated,
    decode_of_agent,
    decode_of_leader,
    encode,
)

PLACE = Place(
    rank=1, world_size=2, local_rank=1, local_world_size=2, node_rank=0, master_addr="n1", master_port=5, seed=7
)  # fmt: skip
MEASUREMENT = Measurement(
    step_times_s=[0.5, 0.25], losses=[1.0, math.inf], effective={"dp": 2, "zero": None}, extra={"notes": ["odd"]}
)  # fmt: skip
OF_LEADER = [
    Prepare(attempt="r.1", preload=("torch",), env={"A": "b"}, first=True, address="10.0.0.1"),
    Start(
        attempt="r.1",
        main="m:f",
        run="{}",
        places=(PLACE,),
        takes_listener=True,
        one_process=False,
        slurm_variables=True,
    ),
    Stop(attempt="r.1", evidence=True, grace_s=8.0, short=False),
    ClearStale(tokens=("sweep-ab-p0001",)),
    Inspect(readers=("m:f",), limit_s=4.0, preload=("torch",), env={"A": "1"}, ranks=8),
    Ping(),
    Leave(),
]
OF_AGENT = [
    Hello(node="n1", index=3, stale_tokens=("sweep-ab-p0001",), not_ended=("pid 7",)),
    Alive(),
    Terminated(),
    Cleared(),
    Inspected(readings='{"m:f": {"value": 1}}'),
    Prepared(attempt="r.1", preloaded=True, master_addr="10.0.0.1", master_port=20_000),
    NotPrepared(attempt="r.1", outcome=Outcome.DISK_FULL, error="no space"),
    Heartbeats(
        attempt="r.1",
        heartbeats=(Heartbeat(rank=1, phase=Phase.STEADY, iteration=3, due_s=None, age_s=0.05),),
    ),
    Busy(attempt="r.1", ranks=(0, 1)),
    Measured(attempt="r.1", rank=1, measurement=MEASUREMENT),
    Failed(attempt="r.1", rank=1, failure=RankFailure(type="E", message="m", traceback="t")),
    RankExited(attempt="r.1", rank=1, exit_code=None, signal=9),
    Clean(
        attempt="r.1",
        ranks=(RankRemains(rank=1, killed=True, tail="end", stacks="File"),),
        not_ended=("pid 7",),
        kernel=("oom-kill:",),
        removed=("nccl-a",),
    ),
]
DECODERS = {id(message): decode_of_leader for message in OF_LEADER} | {
    id(message): decode_of_agent for message in OF_AGENT
}
ALL = [pytest.param(message, id=type(message).__name__) for message in (*OF_LEADER, *OF_AGENT)]


def decoded(message, data):
    return DECODERS[id(message)](data)


def test_every_message_is_tested_here():
    directions = ((LeaderMessage, OF_LEADER), (AgentMessage, OF_AGENT))
    assert all({type(m) for m in given} == set(typing.get_args(union)) for union, given in directions)
    kinds = {kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message)}
    assert kinds - {Message} == {type(message) for message in (*OF_LEADER, *OF_AGENT)}


@pytest.mark.parametrize("message", ALL)
def test_it_arrives_as_it_was_sent(message):
    assert decoded(message, encode(message)) == message


@pytest.mark.parametrize("message", ALL)
def test_it_is_refused_in_the_other_direction(message):
    other = decode_of_agent if DECODERS[id(message)] is decode_of_leader else decode_of_leader
    with pytest.raises(MessageError, match="Invalid value"):
        other(encode(message))


@pytest.mark.parametrize("message", ALL)
def test_an_oversize_one_is_neither_sent_nor_taken(message, monkeypatch):
    data = encode(message)
    monkeypatch.setattr("sweep.pilot.messages.MAX_MESSAGE_BYTES", len(data) - 1)
    for act in (lambda: encode(message), lambda: decoded(message, data)):
        with pytest.raises(MessageError, match="above the limit"):
            act()


@pytest.mark.parametrize("data", [b"", b"\xc1", b"{}", msgspec.msgpack.encode({"kind": "Other"})], ids=range(4))
def test_what_is_no_message_is_refused(data):
    for decode in (decode_of_leader, decode_of_agent):
        with pytest.raises(MessageError):
            decode(data)


def measured(**changes):
    return Measured(attempt="r.1", rank=0, measurement=dataclasses.replace(MEASUREMENT, **changes))


def test_a_nan_loss_arrives():
    (loss,) = decode_of_agent(encode(measured(losses=[math.nan]))).measurement.losses
    assert math.isnan(loss)


def test_a_lone_surrogate_arrives_as_a_question_mark():
    arrived = decode_of_agent(encode(measured(extra={"name": "bad \ud83d name"}, losses=[math.inf])))
    assert arrived == measured(extra={"name": "bad ? name"}, losses=[math.inf])
    clean = Clean(attempt="r.1", ranks=(), not_ended=(), kernel=(), removed=("nccl-\udcff",))
    assert decode_of_agent(encode(clean)).removed == ("nccl-?",)


@pytest.mark.parametrize("odd", [2**64, -(2**63) - 1, object()])
def test_a_value_that_has_no_bytes_is_not_sent(odd):
    with pytest.raises(MessageError, match="Measured cannot be sent"):
        encode(measured(extra={"odd": odd}))
