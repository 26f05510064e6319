"""A free port of this host, for the ranks' rendezvous."""

from __future__ import annotations

import errno
import random
import socket

PORTS = range(20_000, 32_768)
"""below Linux's ephemeral ports, so that no outgoing connection takes one in between"""
TRIES = 64


def listen_on_free_port() -> socket.socket:
    """A socket that listens on one of PORTS on all addresses. Raises OSError (EADDRINUSE) where all are in use."""
    for port in random.sample(PORTS, TRIES):
        try:
            return socket.create_server(("", port), backlog=1024)
        except OSError:
            continue
    raise OSError(errno.EADDRINUSE, f"none of {TRIES} ports in {PORTS.start}-{PORTS.stop - 1} is free")
