"""The leader's addresses, and the network settings of its agents and their ranks."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, MutableMapping

import psutil

from bench_workloads.ports import VARIABLE
from sweep.errors import SweepError
from sweep.pilot.job_spec import JobSpec

_NO_NETWORK = re.compile(
    r"docker|podman|virbr|vnet|veth|br-|lxc|lxd|cni|flannel|cali|tun|tap|ifb|dummy|idrac|bmc|usb", re.IGNORECASE
)
"""interfaces of containers, virtual machines, tunnels and management controllers: each node has the same there"""


def set_variables(spec: JobSpec, environment: MutableMapping[str, str]) -> None:
    """What the site says of the network, for the leader, its agents and their ranks. The user's own values stay."""
    if spec.port_range is not None:
        environment[VARIABLE] = "{}-{}".format(*spec.port_range)
    for name, value in interface_variables(spec.interface).items():
        environment.setdefault(name, value)


def interface_variables(interface: str | None) -> dict[str, str]:
    """By which variables NCCL and gloo learn which network interface to use; empty where any is meant."""
    return {} if interface is None else {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface}


def host_addresses(interface: str | None) -> tuple[str, ...]:
    """This host's IPv4 addresses for other nodes, the best first. Raises SweepError where the interface has none."""
    stats = psutil.net_if_stats()
    bound = {
        name: [address.address for address in addresses if address.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
        if name in stats and stats[name].isup
    }
    if interface is not None and not bound.get(interface):
        known = ", ".join(sorted(name for name, addresses in bound.items() if addresses))
        raise SweepError(f"the site's interface {interface} has no IPv4 address on {socket.gethostname()}: use {known}")
    named: list[str] = []
    with contextlib.suppress(OSError, UnicodeError):  # UnicodeError: a label of over 63 characters
        named = [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return ordered(bound if interface is None else {interface: bound[interface]}, named)


def ordered(bound: Mapping[str, Iterable[str]], named: Iterable[str]) -> tuple[str, ...]:
    """The addresses by which other nodes may reach a host that has these, by interface. Pure.

    `named`: what its name resolves to: first, where bound. Loopback comes last, for agents on the host itself.
    """
    every = [(name, address) for name, addresses in bound.items() for address in addresses]
    loopback = [address for _, address in every if ipaddress.ip_address(address).is_loopback]
    outward = [
        address
        for name, address in every
        if address not in loopback and not _NO_NETWORK.match(name) and not ipaddress.ip_address(address).is_link_local
    ]
    first = [address for address in named if address in outward]
    return tuple(dict.fromkeys([*first, *outward, *loopback]))
