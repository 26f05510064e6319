"""A free port of this host, for the leader or the ranks' rendezvous: of the site's `port_range`, where it has one."""

from __future__ import annotations

import errno
import os
import random
import socket

PORTS = range(20_000, 32_768)
"""below Linux's ephemeral ports, so that no outgoing connection takes one in between"""
TRIES = 64
BACKLOG = 1024
"""the agents of all nodes, or the ranks of an attempt, connect at once"""
_TAKEN = (errno.EADDRINUSE, errno.EACCES)
"""another port may be free, or not privileged"""
VARIABLE = "SWEEP_PORT_RANGE"
"""environment variable of a pilot's processes: the first and the last port that the site's firewalls let through"""


def allowed() -> range:
    """The ports that may be used: those of VARIABLE, else PORTS."""
    first, dash, last = os.environ.get(VARIABLE, "").partition("-")
    return range(int(first), int(last) + 1) if dash else PORTS


def listen_on_free_port(address: str = "") -> socket.socket:
    """A socket that listens on an allowed port on this address of the host, by default on all. Raises OSError,
    with EADDRINUSE where all are in use; with another number for what no other port mends, such as the address.
    """
    ports = allowed()
    tries = min(TRIES, len(ports))
    for port in random.sample(ports, tries):
        try:
            return socket.create_server((address, port), backlog=BACKLOG)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    raise OSError(errno.EADDRINUSE, f"none of {tries} ports in {ports.start}-{ports.stop - 1} is free")
