"""The leader's addresses, port and variables: what other nodes can reach, and what the site says."""

import asyncio
import contextlib
import errno
import os
import random
import socket

import psutil
import pytest

from bench_workloads.ports import PORTS, allowed, listen_on_free_port
from sweep.errors import SweepError
from sweep.pilot.clock import PausingClock
from sweep.pilot.leader.link import one_machine
from sweep.pilot.leader.network import host_addresses, ordered, set_variables
from sweep.pilot.leader.nodes import Nodes
from sweep.pilot.messages import Hello
from tests.support.pilot_parts import Mute, spec

BOUND = {
    "lo": ["127.0.0.1"],
    "docker0": ["172.17.0.1"],
    "virbr0": ["192.168.122.1"],
    "idrac": ["169.254.1.2"],
    "enp3s0": ["10.0.0.7"],
    "ib0": ["10.1.0.7", "169.254.9.9"],
}


@pytest.mark.parametrize(
    ("bound", "named", "addresses"),
    [
        (BOUND, ["10.1.0.7"], ("10.1.0.7", "10.0.0.7", "127.0.0.1")),
        (BOUND, ["172.17.0.1"], ("10.0.0.7", "10.1.0.7", "127.0.0.1")),
        (BOUND, ["127.0.1.1"], ("10.0.0.7", "10.1.0.7", "127.0.0.1")),
        ({"lo": ["127.0.0.1"]}, ["127.0.0.1"], ("127.0.0.1",)),
        ({"ib0": ["10.1.0.7"]}, ["10.0.0.7"], ("10.1.0.7",)),
    ],
)
def test_addresses_that_every_node_has_are_left_out(bound, named, addresses):
    assert ordered(bound, named) == addresses


def test_the_sites_interface_is_the_only_one_and_must_exist():
    assert host_addresses("lo") == ("127.0.0.1",)
    with pytest.raises(SweepError, match=r"interface nothere0 has no IPv4 address .*lo"):
        host_addresses("nothere0")
    assert host_addresses(None)[-1] == "127.0.0.1"
    assert set(host_addresses(None)) <= {a.address for found in psutil.net_if_addrs().values() for a in found}


def test_the_sites_interface_and_ports_reach_the_ranks_unless_the_user_sets_them():
    environment = {"GLOO_SOCKET_IFNAME": "eth7"}
    set_variables(spec(interface="ib0", port_range=(40000, 40099)), environment)
    assert environment == {
        "GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "ib0", "SWEEP_PORT_RANGE": "40000-40099"
    }  # fmt: skip
    plain = {}
    set_variables(spec(), plain)
    assert plain == {}


def eight_free_ports():
    """The first and the last of eight ports in a row that nothing on this machine uses, and that no client is given."""
    for first in random.sample(range(10_000, PORTS.start, 8), 100):
        ports = (first, first + 7)
        try:
            with contextlib.ExitStack() as stack:
                for port in range(first, first + 8):
                    stack.enter_context(socket.create_server(("", port)))
        except OSError:
            continue
        return ports
    raise AssertionError("no eight free ports in a row")


def test_leader_and_ranks_listen_within_the_port_range(monkeypatch):
    assert allowed() == PORTS
    first, last = ports = eight_free_ports()
    environment = dict(os.environ)
    set_variables(spec(port_range=ports), environment)
    monkeypatch.setenv("SWEEP_PORT_RANGE", environment["SWEEP_PORT_RANGE"])
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(listen_on_free_port()) for _ in range(8)]
        assert sorted(each.getsockname()[1] for each in sockets) == list(range(first, last + 1))
        with pytest.raises(OSError, match=f"none of 8 ports in {first}-{last}"):
            listen_on_free_port()
    with pytest.raises(OSError, match="assign requested address") as refused:
        listen_on_free_port("192.0.2.1")
    assert refused.value.errno == errno.EADDRNOTAVAIL, "of no interface here: no other port helps"


class End(Mute):
    """A leader's end of a connection of an agent."""

    def __init__(self, local, peer):
        super().__init__()
        self.local_address, self.peer_address = local, peer

    async def receive(self):
        await asyncio.sleep(10)


def joined(*ends, boots=("", "", "", "")):
    """The nodes of these connections: (the leader's address, the agent's)."""
    nodes = Nodes(len(ends), PausingClock())
    for index, end in enumerate(ends):
        nodes.join(End(*end), Hello(node=f"n{index}", index=index, stale_tokens=(), boot=boots[index]))
    return nodes


async def test_rank_0_on_the_leaders_node_is_reached_as_the_leader_is():
    """The agent there came by the host's first address; most others could not."""
    near, far = "10.0.0.7", "10.1.0.7"
    nodes = joined((near, near), (far, "10.1.0.8"), (far, "10.1.0.9"), (near, "10.0.0.9"))
    assert [link.on_this_host for link in nodes.links] == [True, False, False, False]
    assert nodes.links[0].leaders_address() == far
    nodes.close()


@pytest.mark.parametrize(("ends", "boots", "one"), [
    ([("10.0.0.7", "10.0.0.7"), ("10.0.0.7", "10.0.0.7")], ["", ""], True),
    ([("10.0.0.7", "10.0.0.8"), ("10.0.0.7", "10.0.0.9")], ["a", "a"], True),  # containers with addresses of their own
    ([("10.0.0.7", "10.0.0.8"), ("10.0.0.7", "10.0.0.9")], ["a", "b"], False),
    ([("10.0.0.7", "10.0.0.8"), ("10.0.0.7", "10.0.0.9")], ["", ""], False),
    ([("10.0.0.7", "10.0.0.7")], ["a"], False),  # one node: it slows down no other
])  # fmt: skip
async def test_several_nodes_on_one_machine_are_known_by_its_kernel(ends, boots, one):
    nodes = joined(*ends, boots=boots)
    assert one_machine(nodes.links) is one
    nodes.close()
