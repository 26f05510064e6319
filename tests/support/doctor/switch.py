"""A network of pretend nodes: `python switch.py NAME SUBNET NODE=DEFECT,NODE=,...`, a switch in user space.

Each node has a network namespace with one interface, a TUN device whose other end this process holds, and so has the
machine itself, for the leader. Packets go from one to the other by their destination, as fast as this process copies
them, equally for all. The kernel here has no netem, so a node's latency and loss are made here, in both directions;
the limit of its rate is the kernel's (tbf), on what it sends.

Prints "ready"; ends with its input, and removes what it made.
"""

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
MTU = 9000
"""jumbo frames, as between nodes of a cluster"""
LATENCY_S = 0.020
LOSS = 0.05
RATE = "200mbit"
"""a tenth of what healthy nodes reach here"""
MACHINE = 254
"""last part of its own address"""
AT_ONCE = 32
"""packets of one port before the others have their turn"""


@dataclass
class Port:
    descriptor: int
    address: bytes
    delay_s: float = 0.0
    loss: float = 0.0
    cut: bool = False
    """from other nodes, not from the machine"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def namespace(name: str, node: str) -> str:
    return f"{name}-{node}"


def plug(name: str, number: int, address: str, inside: str | None) -> int:
    """A TUN device with this address, in a namespace or in this machine's own network."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    made = name if inside is None else f"{name}x{number}"
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", made.encode(), IFF_TUN | IFF_NO_PI))
    where = [] if inside is None else ["-n", inside]
    if inside is not None:
        ip("link", "set", made, "netns", inside, "name", name)
        ip(*where, "link", "set", "lo", "up")
        in_namespace(
            inside, "sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=reno"
        )  # a namespace may not choose Linux' cubic
    ip(*where, "addr", "add", f"{address}/24", "dev", name)
    ip(*where, "link", "set", name, "mtu", str(MTU), "txqueuelen", "2000", "up")
    return descriptor


def in_namespace(inside: str, *words: str) -> None:
    subprocess.run(["nsenter", f"--net=/run/netns/{inside}", *words], check=True, capture_output=True)


def limit_rate(name: str, inside: str, rate: str, queue: str) -> None:
    words = ("dev", name, "root", "tbf", "rate", rate, "burst", "64kb", "latency", queue)
    in_namespace(inside, "tc", "qdisc", "add", *words)


def ports(name: str, subnet: str, defects: dict[str, str]) -> list[Port]:
    found = []
    for number, (node, defect) in enumerate([("", ""), *defects.items()]):
        address = f"{subnet}.{number or MACHINE}"
        inside = namespace(name, node) if node else None
        if inside is not None:
            ip("netns", "add", inside)
        port = Port(plug(name, number, address, inside), bytes(int(part) for part in address.split(".")))
        if defect == "latency":
            port.delay_s = LATENCY_S
        elif defect == "loss":
            port.loss = LOSS
        elif defect == "cut":
            port.cut = True
        elif defect and inside is not None:
            limit_rate(name, inside, *((RATE, "50ms") if defect == "rate" else (defect, "400ms")))
        elif defect:
            raise ValueError(defect)
        found.append(port)
    return found


class Switch:
    def __init__(self, ports: list[Port]) -> None:
        self._by_address = {port.address: port for port in ports}
        self._by_descriptor = {port.descriptor: port for port in ports}
        self._delayed: list[tuple[float, int, int, bytes]] = []
        """when it is due, its number, where to, the packet"""
        self._order, self._chance = itertools.count(), random.Random(0)

    def forward(self) -> None:
        """Until the input ends."""
        poll = select.poll()
        for descriptor in (*self._by_descriptor, sys.stdin.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(self._until_due_ms()):
                if descriptor == sys.stdin.fileno():
                    return
                self._take_from(self._by_descriptor[descriptor])
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                _, _, descriptor, packet = heapq.heappop(self._delayed)
                put(descriptor, packet)

    def _until_due_ms(self) -> float | None:
        return max(0.0, self._delayed[0][0] - time.monotonic()) * 1e3 if self._delayed else None

    def _take_from(self, source: Port) -> None:
        for _ in range(AT_ONCE):
            try:
                packet = os.read(source.descriptor, 65536)
            except BlockingIOError:
                return
            target = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if target is not None and not self._is_lost(source, target):
                self._send(source, target, packet)

    def _is_lost(self, source: Port, target: Port) -> bool:
        between_nodes = MACHINE not in (source.address[3], target.address[3])
        if between_nodes and (source.cut or target.cut):
            return True
        share = source.loss or target.loss
        return share > 0 and self._chance.random() < share

    def _send(self, source: Port, target: Port, packet: bytes) -> None:
        if delay_s := source.delay_s or target.delay_s:
            due = time.monotonic() + delay_s
            heapq.heappush(self._delayed, (due, next(self._order), target.descriptor, packet))
        else:
            put(target.descriptor, packet)


def put(descriptor: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # the receiver's queue is full, or its device is gone: the packet is lost
        os.write(descriptor, packet)


def main(name: str, subnet: str, words: str) -> None:
    defects = dict(one.split("=") for one in words.split(","))
    try:
        found = ports(name, subnet, defects)
        print("ready", flush=True)
        Switch(found).forward()
    finally:
        for node in defects:
            subprocess.run(["ip", "netns", "del", namespace(name, node)], check=False, capture_output=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
