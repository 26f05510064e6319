"""What a pilot's leader and its agents send each other: a class per message, one encoder, a decoder per direction.

The decoders accept only what is defined here: an unknown kind or field and a value of another type are rejected
where they arrive. MessagePack, not JSON: it has NaN, which a loss may be, and no code, which a pickle would have.
Both sides belong to one pilot, so to one version: no older form is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from sweep.contract import Measurement, Phase, Place
from sweep.inputs.topology import Spot
from sweep.outcomes import Outcome
from sweep.state import events

MAX_MESSAGE_BYTES = 64 << 20


class ChannelError(Exception):
    """The peer is not part of this pilot or breaks the protocol, or a message cannot be sent."""


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a message."""


class Message(Value, frozen=True, tag_field="kind", tag=True):
    """Base of all messages; the field `kind` names the class."""


# --- from the leader to an agent


class Prepare(Message, frozen=True, kw_only=True):
    """Leader, to each node of an attempt, first: have a fork server and a scratch directory."""

    attempt: str
    preload: tuple[str, ...]
    """modules that the fork server imports"""
    env: Mapping[str, str]
    """the run's environment variables"""
    first: bool
    """the node of rank 0, which opens the listening socket"""
    address: str | None = None
    """by which other nodes reach this one; None: the agent's own end of this connection"""
    ranks: int = 1
    """of the attempt on this node"""


class Start(Message, frozen=True, kw_only=True):
    """Leader, once every node of the attempt is prepared: start its ranks."""

    attempt: str
    main: str
    """the workload's "module:function" """
    run: str
    """its canonical JSON"""
    places: tuple[Place, ...]
    """of this node's ranks; the agent adds what only it knows"""
    takes_listener: bool
    one_process: bool
    """the ranks are threads of one process"""
    slurm_variables: bool = False
    """each rank gets the variables of a task of srun"""


class Stop(Message, frozen=True, kw_only=True):
    """Leader, at the end of an attempt, however it came: end what still runs, clear the node, answer Clean."""

    attempt: str
    evidence: bool
    """gather stacks before the kill"""
    grace_s: float
    """between SIGTERM and SIGKILL"""
    short: bool
    """the scheduler is ending the job: no wait for the GPUs"""


class ClearStale(Message, frozen=True, kw_only=True):
    """Leader, once, before its first attempt: clear what pilots with these tokens, whose jobs are gone, left."""

    tokens: tuple[str, ...]


class Inspect(Message, frozen=True, kw_only=True):
    """Leader, once per node: read what these readers read, and meanwhile have a fork server for the first run."""

    readers: tuple[str, ...]
    """"module:function" of each"""
    limit_s: float
    """a reader that takes longer is unreadable"""
    preload: tuple[str, ...]
    """modules that the fork server imports"""
    env: Mapping[str, str]
    """the run's environment variables"""
    ranks: int
    """of that run on this node"""


class Ping(Message, frozen=True):
    """Leader, every few seconds: its heartbeat. An agent that misses it ends its ranks and connects again."""


class Leave(Message, frozen=True):
    """Leader, at the end of the pilot: the agent may go."""


# --- from an agent to the leader


class Hello(Message, frozen=True, kw_only=True):
    """Agent, first on each connection: which node it is. It runs no attempt: that of a lost connection it ended."""

    node: str
    index: int
    """the node's number in the job"""
    spot: Spot | None = None
    """where the node is, by Slurm's topology; None: not known"""
    boot: str = ""
    """of the kernel that it runs on, equal on nodes that are one machine; empty: unknown"""
    stale_tokens: tuple[str, ...]
    """of other pilots of this sweep that have processes or files on the node"""
    not_ended: tuple[str, ...] = ()
    """processes of an ended attempt that could not be ended: no attempt can go to this node"""


class Alive(Message, frozen=True):
    """Agent, every few seconds: its heartbeat. Without it, missing heartbeats of ranks show nothing about them."""


class Terminated(Message, frozen=True):
    """Agent, when it got SIGTERM, before anything else: the scheduler ends the job (it may signal the steps only)."""


class Cleared(Message, frozen=True):
    """Agent, when it has handled ClearStale, as far as possible."""


class Inspected(Message, frozen=True, kw_only=True):
    """Agent, when all readers of Inspect have returned or are late."""

    readings: str
    """JSON: reader -> value or error, seconds"""


class Prepared(Message, frozen=True, kw_only=True):
    """Agent, when it has handled Prepare."""

    attempt: str
    master_addr: str | None = None
    """where rank 0 listens: first node only"""
    master_port: int | None = None


class NotPrepared(Message, frozen=True, kw_only=True):
    """Agent, when it failed to handle Prepare, or to start a rank."""

    attempt: str
    outcome: Outcome
    error: str


class Heartbeat(Value, frozen=True, kw_only=True, array_like=True):
    """A rank's heartbeat."""

    rank: int
    phase: Phase
    iteration: int | None
    due_s: float | None
    age_s: float
    """time between the agent's reading it and sending this message"""


class Heartbeats(Message, frozen=True, kw_only=True):
    """Agent, a moment after a rank's first heartbeat since the last such message, with all that came in between."""

    attempt: str
    heartbeats: tuple[Heartbeat, ...]


class Busy(Message, frozen=True, kw_only=True):
    """Agent, every few seconds: of the ranks that do not iterate yet, those that used the CPU or IO since the last; or
    those that write much output.
    """

    attempt: str
    ranks: tuple[int, ...]
    writing: bool = False


class Measured(Message, frozen=True, kw_only=True):
    """Agent, when a rank sent its measurement."""

    attempt: str
    rank: int
    measurement: Measurement


class RankFailure(Value, frozen=True, kw_only=True):
    """An exception, as texts of bounded length."""

    type: str
    message: str
    traceback: str = ""


class Failed(Message, frozen=True, kw_only=True):
    """Agent, when a rank reported its failure, or could not be started, or sent a malformed report."""

    attempt: str
    rank: int
    failure: RankFailure


class RankExited(Message, frozen=True, kw_only=True):
    """Agent, when the process of a rank ended: by an exit code or a signal, or for an unknown reason."""

    attempt: str
    rank: int
    exit_code: int | None
    signal: int | None


class RankRemains(Value, frozen=True, kw_only=True):
    """Output and stacks of a rank of an attempt that was stopped."""

    rank: int
    killed: bool
    """it still ran when Stop arrived"""
    tail: str
    """the end of its output"""
    stacks: str = ""
    """what it was doing before the kill"""


class Clean(Message, frozen=True, kw_only=True):
    """Agent, when it has handled Stop."""

    attempt: str
    ranks: tuple[RankRemains, ...]
    not_ended: tuple[str, ...]
    """processes that could not be ended: no further attempt can go to this node"""
    kernel: tuple[str, ...]
    """lines of the kernel's log about the attempt, and of NVML's events"""
    sources: tuple[str, ...] = ()
    """which of them could be read on this node"""
    removed: tuple[str, ...]
    """files of the attempt that were removed from /dev/shm"""


LeaderMessage = Prepare | Start | Stop | ClearStale | Inspect | Ping | Leave
OfAttempt = Prepared | NotPrepared | Heartbeats | Busy | Measured | Failed | RankExited | Clean
AgentMessage = Hello | Alive | Terminated | Cleared | Inspected | OfAttempt

_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """The message as bytes. Raises ChannelError where it is too large or holds what MessagePack cannot encode."""
    try:
        data = events.encode(message, _encoder.encode)
    except (OverflowError, RecursionError, TypeError) as error:  # an integer of over 64 bits; too deep; no value
        raise ChannelError(f"{type(message).__name__} cannot be sent: {error}") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise ChannelError(f"{type(message).__name__} of {len(data)} bytes is above the limit of {MAX_MESSAGE_BYTES}")
    return data


Incoming = TypeVar("Incoming")


def _decode(decoder: msgspec.msgpack.Decoder[Incoming], data: bytes) -> Incoming:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ChannelError(f"not a known message: {error}") from error


decode_of_leader: Callable[[bytes], LeaderMessage] = partial(_decode, msgspec.msgpack.Decoder(LeaderMessage))
"""Decodes what an agent received. Raises ChannelError where it is no message of a leader."""
decode_of_agent: Callable[[bytes], AgentMessage] = partial(_decode, msgspec.msgpack.Decoder(AgentMessage))
"""Decodes what a leader received. Raises ChannelError where it is no message of an agent."""
