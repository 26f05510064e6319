"""How the drivers of one attempt share their trainers' parsed output: rank 0 listens, and forwards all of it.

Most trainers print on one rank only, and every rank has to give a measurement. The socket is the open one that rank 0
inherited, so the trainer itself needs another port: rank 0 picks it and sends it first. Before that each rank sends the
attempt's token: the port is open to all users of the cluster. What a stranger sends is compared, never parsed.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import selectors
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench_workloads.ports import listen_on_free_port
from sweep.contract import Place

_READ = 1 << 16
CONNECT_S = 120.0
MOST_UNPROVED = 64
"""connections without the token: for a further one the oldest is closed. A rank sends its token at once, and connects
again where it was closed"""

Message = Mapping[str, Any]


@dataclass(eq=False)
class _Line:
    """One connection and its partially received message."""

    connection: socket.socket
    unread: bytes = b""
    proved: bool = True
    """the rank at the other side sent the attempt's token"""

    def receive(self) -> list[Message] | None:
        """Complete messages; None once the other side is gone. Anything but a JSON object is dropped."""
        if not (data := self._read(_READ)):
            return None
        *lines, self.unread = (self.unread + data).split(b"\n")
        found: list[Message] = []
        for line in lines:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    found.append(message)
        return found

    def prove(self, token: bytes) -> bool:
        """Read what is there of the token; False for any other bytes, and once the other side is gone."""
        data = self._read(len(token) - len(self.unread))
        self.unread += data
        if data and len(self.unread) < len(token):
            return True
        self.proved = hmac.compare_digest(self.unread, token)
        self.unread = b""
        return self.proved

    def _read(self, most: int) -> bytes:
        try:
            return self.connection.recv(most)
        except OSError:
            return b""


class Exchange:
    """One rank's end, rank 0's the hub: readable descriptors, which it registers with the driver's loop."""

    def __init__(self, place: Place, selector: selectors.BaseSelector) -> None:
        """Open the hub, or connect to it and learn the port. Raises OSError."""
        self.selector, self.hub = selector, place.rank == 0
        self.joined = 0
        """other ranks that have connected to the hub so far"""
        self._proof = f"{place.token}\n".encode()
        """what a rank sends first"""
        self._listener: socket.socket | None = None
        self._lines: list[_Line] = []
        self._history: list[bytes] = []
        self.port = self._open(place) if self.hub else self._connect(place)
        """the port for the trainer's own rank 0"""

    def _open(self, place: Place) -> int:
        if place.master_listen_fd is not None:
            self._listener = socket.socket(fileno=os.dup(place.master_listen_fd))
        elif place.world_size > 1:
            self._listener = socket.create_server((place.master_addr, place.master_port))
        with listen_on_free_port() as free:
            port: int = free.getsockname()[1]
        self._history.append(_encoded({"port": port}))
        if self._listener is not None:
            self._listener.setblocking(False)
            self.selector.register(self._listener, selectors.EVENT_READ, self)
        return port

    def _connect(self, place: Place) -> int:
        deadline = time.monotonic() + CONNECT_S
        while True:
            try:
                connection = socket.create_connection((place.master_addr, place.master_port), timeout=CONNECT_S)
                connection.sendall(self._proof)
                port = _first(connection)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        connection.setblocking(True)
        self._lines.append(_Line(connection))
        self.selector.register(connection, selectors.EVENT_READ, self)
        return port

    def send(self, message: Message) -> None:
        """Send to all other ranks."""
        self._pass_on(_encoded(message), None)

    def receive(self, ready: object) -> list[Message]:
        """The messages on a ready descriptor; the hub forwards them to the others."""
        if ready is self._listener:
            self._accept()
            return []
        line = next((line for line in self._lines if line.connection is ready), None)
        if line is None:
            return []
        if not line.proved:
            # A rank sends the token first; any other process is disconnected.
            if not line.prove(self._proof):
                self._drop(line)
            elif line.proved:
                self.joined += 1
                self._write(line, b"".join(self._history))
            if not line.proved or not select.select([line.connection], [], [], 0)[0]:
                return []  # else read on: this may be the last look
        messages = line.receive()
        if messages is None:
            self._drop(line)
            return []
        if self.hub:
            for message in messages:
                self._pass_on(_encoded(message), line)
        return messages

    def close(self) -> None:
        """Disconnect."""
        for line in list(self._lines):
            self._drop(line)
        if self._listener is not None:
            self.selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    @property
    def connected(self) -> bool:
        """Whether a message may still arrive."""
        return bool(self._lines) or self._listener is not None

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(True)
            connection.settimeout(10.0)
            unproved = [line for line in self._lines if not line.proved]
            if len(unproved) >= MOST_UNPROVED:
                self._drop(unproved[0])
            self._lines.append(_Line(connection, proved=False))
            self.selector.register(connection, selectors.EVENT_READ, self)

    def _pass_on(self, data: bytes, source: _Line | None) -> None:
        if self.hub:
            self._history.append(data)
        for line in list(self._lines):
            if line is not source and line.proved:
                self._write(line, data)

    def _write(self, line: _Line, data: bytes) -> None:
        try:
            line.connection.sendall(data)
        except OSError:
            self._drop(line)

    def _drop(self, line: _Line) -> None:
        if line in self._lines:
            self._lines.remove(line)
            self.selector.unregister(line.connection)
            line.connection.close()


def _first(connection: socket.socket) -> int:
    """The port, which the hub's first message says. Reads no further: what follows must make the socket readable."""
    first = b""
    while not first.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece:
            raise ConnectionError("rank 0 closed the connection")
        first += piece
    try:
        return int(json.loads(first)["port"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError(f"rank 0 sent no port: {first[:80]!r}") from error


def _encoded(message: Message) -> bytes:
    return (json.dumps(message, separators=(",", ":")) + "\n").encode()
