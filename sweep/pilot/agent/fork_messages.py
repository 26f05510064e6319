"""Messages between an agent and its fork servers: JSON lines on one socket. Standard library only: ranks inherit it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sweep.contract import Place


@dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """Agent: fork one process.

    Descriptors sent with it: the process's log, the progress pipe of each of its ranks and, last, rank 0's listening
    socket if it is among them.
    """

    main: str
    """the workload's "module:function" """
    run: str
    """its canonical JSON"""
    places: tuple[Place, ...]
    """places of the ranks of the process, mostly one"""
    env: Mapping[str, str]

    @classmethod
    def decode(cls, line: bytes) -> ForkRequest:
        """Decode a request from a line."""
        values = json.loads(line)
        return cls(**{**values, "places": tuple(Place(**place) for place in values["places"])})


@dataclass(frozen=True)
class Ready:
    """Fork server, first: its modules are imported."""

    ready: bool = True


@dataclass(frozen=True)
class Refused:
    """Fork server, instead of Ready or Forked."""

    error: str


@dataclass(frozen=True)
class Forked:
    """Fork server, in answer to a request."""

    pid: int


@dataclass(frozen=True)
class Exited:
    """Fork server, whenever a process that it forked ended: its pid and wait status."""

    exited: int
    status: int


Answer = Ready | Refused | Forked | Exited


def encode(message: ForkRequest | Answer) -> bytes:
    """The message as a line."""
    return (json.dumps(dataclasses.asdict(message)) + "\n").encode()


def decode_answer(line: bytes) -> Answer:
    """Decode a fork server's message."""
    values = json.loads(line)
    if "exited" in values:
        return Exited(values["exited"], values["status"])
    if "pid" in values:
        return Forked(values["pid"])
    return Ready() if values.get("ready") else Refused(str(values.get("error")))
