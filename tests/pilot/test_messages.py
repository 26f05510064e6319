"""What is sent in which direction, what is rejected, and values that MessagePack does not have."""

import dataclasses
import math

import pytest

from sweep.contract import Measurement
from sweep.pilot.messages import ChannelError, Clean, Measured, Stop, decode_of_agent, decode_of_leader, encode

MEASUREMENT = Measurement(
    step_times_s=[0.5, 0.25], losses=[1.0, math.inf], effective={"dp": 2, "zero": None}, extra={"notes": ["odd"]}
)  # fmt: skip
OF_LEADER = Stop(attempt="r.1", evidence=True, grace_s=8.0, short=False)
OF_AGENT = Measured(attempt="r.1", rank=1, measurement=MEASUREMENT)
DIRECTIONS = [(OF_LEADER, decode_of_leader, decode_of_agent), (OF_AGENT, decode_of_agent, decode_of_leader)]


@pytest.mark.parametrize(("message", "decode", "of_the_other"), DIRECTIONS)
def test_a_message_arrives_as_it_was_sent_and_is_refused_in_the_other_direction(message, decode, of_the_other):
    assert decode(encode(message)) == message
    with pytest.raises(ChannelError, match="Invalid value"):
        of_the_other(encode(message))


def test_an_oversize_one_is_not_sent(monkeypatch):
    monkeypatch.setattr("sweep.pilot.messages.MAX_MESSAGE_BYTES", len(encode(OF_AGENT)) - 1)
    with pytest.raises(ChannelError, match="above the limit"):
        encode(OF_AGENT)


def measured(**changes):
    return Measured(attempt="r.1", rank=0, measurement=dataclasses.replace(MEASUREMENT, **changes))


def test_a_lone_surrogate_arrives_as_a_question_mark():
    arrived = decode_of_agent(encode(measured(extra={"name": "bad \ud83d name"}, losses=[math.inf])))
    assert arrived == measured(extra={"name": "bad ? name"}, losses=[math.inf])
    clean = Clean(attempt="r.1", ranks=(), not_ended=(), kernel=(), removed=("nccl-\udcff",))
    assert decode_of_agent(encode(clean)).removed == ("nccl-?",)


@pytest.mark.parametrize("odd", [2**64, -(2**63) - 1, object()])
def test_a_value_that_has_no_bytes_is_not_sent(odd):
    with pytest.raises(ChannelError, match="Measured cannot be sent"):
        encode(measured(extra={"odd": odd}))
