"""The leader's links to its nodes: messages that cannot be decoded."""

import asyncio

import pytest

from sweep.pilot.channel import ChannelError
from sweep.pilot.leader.nodes import Link, NodeLost
from tests.support.pilot_parts import (
    Mute,
)


@pytest.mark.parametrize("last", [ChannelError("a frame of 99999999 bytes"), ValueError("unexpected"), None])
def test_a_connection_that_cannot_be_decoded_is_lost(existing, last):
    class Line(Mute):
        async def receive(self):
            if last is not None:
                raise last

    async def scenario():
        link = Link("n1", Line())
        link.inbox = asyncio.Queue()
        await link.read()
        return link, link.inbox.get_nowait()

    link, last_event = asyncio.run(scenario())
    assert last_event == ("n1", NodeLost())
    assert (link.alive, link.gone.is_set(), link.cleared.is_set()) == (False, True, True)
