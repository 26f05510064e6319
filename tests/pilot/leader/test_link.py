"""The leader's links to its nodes: connections that are lost, and agents that come back."""

import asyncio

import pytest

from sweep.pilot.channel import ChannelError
from sweep.pilot.clock import PausingClock
from sweep.pilot.leader import link as link_module
from sweep.pilot.leader.link import Link, NodeLost
from sweep.pilot.leader.nodes import Nodes
from sweep.pilot.messages import Alive, Hello, Terminated
from sweep.pilot.timeouts import QUIET_S, SILENCE_S
from tests.support.pilot_parts import Mute, Open, Time


class Line(Mute):
    """A connection on which these arrive; an exception is raised. Then it ends."""

    def __init__(self, *incoming):
        super().__init__()
        self._incoming = list(incoming)

    async def receive(self):
        if not self._incoming:
            return None
        message = self._incoming.pop(0)
        if isinstance(message, Exception):
            raise message
        return message


@pytest.mark.parametrize(
    ("last", "how"),
    [(ChannelError("a frame of 99999999 bytes"), "99999999"), (ValueError("unexpected"), "unexpected"), (None, "clos")],
)
def test_a_connection_that_ends_or_cannot_be_decoded_is_lost_and_its_agent_dead_unless_it_comes_back(
    monkeypatch, last, how
):
    monkeypatch.setattr(link_module, "RETURN_S", 0.05)

    async def scenario():
        link = Link("n1", Line(*[] if last is None else [last]))
        link.inbox = asyncio.Queue()
        await link.read()
        gone_at_once = link.gone.is_set()
        await asyncio.wait_for(link.gone.wait(), 5)
        return link, link.inbox.get_nowait(), gone_at_once

    link, (node, event), gone_at_once = asyncio.run(scenario())
    assert (node, type(event), how in event.how) == ("n1", NodeLost, True)
    assert (link.alive, gone_at_once, link.gone.is_set(), link.cleared.is_set()) == (False, False, True, True)


def test_an_agent_that_comes_back_in_time_is_not_dead_and_what_it_could_not_end_is_known(monkeypatch):
    monkeypatch.setattr(link_module, "RETURN_S", 1.0)

    async def scenario():
        nodes = Nodes(2, PausingClock())
        nodes.join(Line(), Hello(node="n1", index=0, stale_tokens=()))
        nodes.join(Line(), Hello(node="n2", index=1, stale_tokens=()))
        await asyncio.sleep(0.01)
        lost = [link.alive for link in nodes.links]
        for index, left in enumerate([(), ("pid 7",)]):
            back = Hello(node=f"n{index + 1}", index=index, stale_tokens=(), not_ended=left)
            nodes.join(Open(), back)
        await asyncio.sleep(1.2)
        links = nodes.links
        nodes.close()
        return lost, [(link.node, link.alive, link.clean, link.gone.is_set(), len(link.lost_at)) for link in links]

    lost, links = asyncio.run(scenario())
    assert lost == [False, False]
    assert links == [("n1", True, True, False, 1), ("n2", True, False, False, 1)]


def test_a_new_connection_of_an_agent_ends_the_attempt_on_the_old_one():
    async def scenario():
        link = Link("n1", Mute())
        link.inbox = asyncio.Queue()
        link.take_back(Mute(), Hello(node="n1", index=0, stale_tokens=()))
        return link.alive, link.inbox.get_nowait()

    alive, (_, event) = asyncio.run(scenario())
    assert alive
    assert isinstance(event, NodeLost)


def test_silence_loses_the_connection_and_its_agent_is_not_taken_for_dead():
    async def scenario():
        time = Time()
        link = Link("n1", Mute(), clock=time.clock)
        time.passes(QUIET_S + 1)
        link.check()
        quiet = link.quiet, link.alive
        time.passes(SILENCE_S - QUIET_S)
        link.check()
        return quiet, link

    quiet, link = asyncio.run(scenario())
    assert quiet == (True, True)
    assert (link.alive, link.quiet, link.resolved.is_set(), link.gone.is_set()) == (False, False, True, False)


@pytest.mark.parametrize(("silent_s", "since"), [(QUIET_S - 1, 0.0), (QUIET_S + 1, QUIET_S + 1)])
def test_what_happens_on_a_node_is_known_without_a_gap_since_its_agent_is_back(silent_s, since):
    async def scenario():
        time = Time()
        link = Link("n1", Line(Alive(), Alive()), clock=time.clock)
        time.passes(silent_s)
        await link.read()
        return link.known_since

    assert asyncio.run(scenario()) == since


def test_and_since_this_process_runs_again():
    time = Time()
    link = Link("n1", Mute(), clock=time.clock)
    time.at += 30.0
    assert time.clock.now() == link.known_since == 1.0


def test_a_heartbeat_ends_the_silence():
    async def scenario():
        time = Time()
        link = Link("n1", Line(Alive(), ValueError("end")), clock=time.clock)
        time.passes(SILENCE_S - 1)
        reading = link.read()
        await reading
        return link.lost_at

    assert asyncio.run(scenario()) == [SILENCE_S - 1], "lost by its end, not by its silence"


def test_a_terminated_agent_is_reported_for_the_whole_pilot():
    async def scenario():
        nodes = Nodes(1, PausingClock())
        nodes.join(Line(Terminated()), Hello(node="n1", index=0, stale_tokens=()))
        await asyncio.wait_for(nodes.terminated.wait(), 5)
        return True

    assert asyncio.run(scenario())
