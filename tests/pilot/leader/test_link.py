"""The leader's links to its nodes: connections that are lost, and agents that come back."""

import asyncio

import pytest

from sweep.pilot.clock import PausingClock
from sweep.pilot.leader import link as link_module
from sweep.pilot.leader.link import Link, NodeLost
from sweep.pilot.leader.nodes import Nodes
from sweep.pilot.messages import Alive, ChannelError, Hello, Terminated
from sweep.pilot.timeouts import QUIET_S, SILENCE_S
from tests.support.pilot_parts import Mute, Open, Scripted, Time


@pytest.mark.parametrize(
    ("last", "how"),
    [(ChannelError("a frame of 99999999 bytes"), "99999999"), (ValueError("unexpected"), "unexpected"), (None, "clos")],
)
async def test_a_connection_that_ends_or_cannot_be_decoded_is_lost_and_its_agent_dead_unless_it_comes_back(
    monkeypatch, last, how
):
    monkeypatch.setattr(link_module, "RETURN_S", 0.05)
    link = Link("n1", Scripted(*[] if last is None else [last]))
    link.inbox = asyncio.Queue()
    await link.read()
    assert not link.gone.is_set(), "it may come back"
    await asyncio.wait_for(link.gone.wait(), 5)
    node, event = link.inbox.get_nowait()
    assert (node, type(event), how in event.how) == ("n1", NodeLost, True)
    assert (link.alive, link.cleared.is_set()) == (False, True)


async def test_an_agent_that_comes_back_in_time_is_not_dead_and_what_it_could_not_end_is_known(monkeypatch):
    monkeypatch.setattr(link_module, "RETURN_S", 1.0)
    nodes = Nodes(2, PausingClock())
    for index in range(2):
        nodes.join(Scripted(), Hello(node=f"n{index + 1}", index=index, stale_tokens=()))
    await asyncio.sleep(0.01)
    assert [link.alive for link in nodes.links] == [False, False]
    for index, left in enumerate([(), ("pid 7",)]):
        nodes.join(Open(), Hello(node=f"n{index + 1}", index=index, stale_tokens=(), not_ended=left))
    await asyncio.sleep(1.2)
    links = [(link.node, link.alive, link.clean, link.gone.is_set(), len(link.lost_at)) for link in nodes.links]
    assert links == [("n1", True, True, False, 1), ("n2", True, False, False, 1)]
    nodes.close()


async def test_a_new_connection_of_an_agent_ends_the_attempt_on_the_old_one():
    link = Link("n1", Mute())
    link.inbox = asyncio.Queue()
    link.take_back(Mute(), Hello(node="n1", index=0, stale_tokens=()))
    assert link.alive
    assert isinstance(link.inbox.get_nowait()[1], NodeLost)


async def test_silence_loses_the_connection_and_its_agent_is_not_taken_for_dead():
    time = Time()
    link = Link("n1", Mute(), clock=time.clock)
    time.passes(QUIET_S + 1)
    link.check()
    assert (link.quiet, link.alive) == (True, True)
    time.passes(SILENCE_S - QUIET_S)
    link.check()
    assert (link.alive, link.quiet, link.resolved.is_set(), link.gone.is_set()) == (False, False, True, False)


@pytest.mark.parametrize(("silent_s", "since"), [(QUIET_S - 1, 0.0), (QUIET_S + 1, QUIET_S + 1)])
async def test_what_happens_on_a_node_is_known_without_a_gap_since_its_agent_is_back(silent_s, since):
    time = Time()
    link = Link("n1", Scripted(Alive(), Alive()), clock=time.clock)
    time.passes(silent_s)
    await link.read()
    assert link.known_since == since


def test_and_since_this_process_runs_again():
    time = Time()
    link = Link("n1", Mute(), clock=time.clock)
    time.at += 30.0
    assert time.clock.now() == link.known_since == 1.0


async def test_a_heartbeat_ends_the_silence():
    time = Time()
    link = Link("n1", Scripted(Alive(), ValueError("end")), clock=time.clock)
    time.passes(SILENCE_S - 1)
    await link.read()
    assert link.lost_at == [SILENCE_S - 1], "lost by its end, not by its silence"


async def test_a_terminated_agent_is_reported_for_the_whole_pilot():
    nodes = Nodes(1, PausingClock())
    nodes.join(Scripted(Terminated()), Hello(node="n1", index=0, stale_tokens=()))
    await asyncio.wait_for(nodes.terminated.wait(), 5)
