"""Messages between an agent and its fork servers: JSON lines on one socket. Standard library only: ranks inherit it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sweep.contract import Place, SlowBound


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
        for place in values["places"]:
            place["bound"] = place.get("bound") and SlowBound(*place["bound"])
        return cls(**{**values, "places": tuple(Place(**place) for place in values["places"])})


@dataclass(frozen=True)
class Answer:
    """Fork server: first whether its modules are imported, then whether it forked, and each end of what it forked."""

    pid: int | None = None
    """of a process that it forked"""
    status: int | None = None
    """the wait status of that process, once it ended"""
    error: str | None = None
    """why the modules are not imported, or nothing was forked"""

    @classmethod
    def decode(cls, line: bytes) -> Answer:
        """Decode an answer from a line."""
        return cls(**json.loads(line))


def encode(message: ForkRequest | Answer) -> bytes:
    """The message as a line."""
    return (json.dumps(dataclasses.asdict(message)) + "\n").encode()
