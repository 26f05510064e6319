"""Every line that a journal may hold: one frozen class per kind of event, one encoder, one decoder.

A line is a JSON object: ``event`` names its kind, ``time`` (unix seconds) is when it was written. The decoder rejects
an unknown kind, a missing field and a value of the wrong type. Unknown fields are ignored: a pilot
that runs for days reads what a newer launcher writes.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec

from sweep.outcomes import Outcome

MAX_LINE_BYTES = 67_108_864
"""64 MiB, far above any record (5 kB per rank at most): a longer line is corrupt"""

LATEST = 253_402_300_799
"""the last second of the year 9999: no calendar date has a later one, nor NaN"""

LEADER_ALIVE_S = 10.0
"""interval of a leader's heartbeat in its journal: 60 in the launcher's time-out"""
LEADER_SILENT_S = 25.0
"""a pilot whose leader wrote a line within this time lives, whatever the scheduler says: two heartbeats, and 3 s for
which an NFS client may keep a file's size (man 5 nfs, acregmin)"""

Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""a whole number that a column of any table holds: JSON has longer ones"""

RecordT = TypeVar("RecordT")


class EventError(ValueError):
    """A line is no event that this version knows."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of all events."""

    time: float
    """unix seconds, by the writer's clock"""
    answers: float = 0.0
    """what it comes after, where lines that its writer had read are later by other clocks; else 0"""

    @property
    def order(self) -> float:
        """When it comes, in unix seconds: after all that its writer had read, though clocks differ."""
        return max(self.time, self.answers)

    def answering(self, latest: float) -> Event:
        """The event as one that comes after the latest line that its writer had read."""
        ahead = latest >= self.time
        return msgspec.structs.replace(self, answers=math.nextafter(latest, math.inf)) if ahead else self


class SessionBegan(Event, frozen=True, kw_only=True, tag="session"):
    """A launcher, when it has taken the lease. It ends a cancellation."""

    epoch: Whole = 0
    host: str = ""
    pid: Whole = 0


class SessionEnded(Event, frozen=True, kw_only=True, tag="session_end"):
    """A launcher, as its last line: the lease is free."""


class SessionAlive(Event, frozen=True, kw_only=True, tag="alive"):
    """A launcher, every 20 s in which it wrote nothing else."""


class CancelRequested(Event, frozen=True, kw_only=True, tag="cancel"):
    """`sweep cancel`: no further pilot or run begins until the next session."""


class PilotIntended(Event, frozen=True, kw_only=True, tag="pilot_intent"):
    """The launcher, before it submits a pilot: a job of this token may exist from here on."""

    pilot: str
    token: str
    nodes: Whole
    time_limit_s: Whole
    node_group: str = ""
    """of the site, on which it measures runs; empty on a site without groups"""
    elsewhere: bool = False
    """it excludes nodes on which its retries failed"""
    cluster: str = ""
    """that is asked for it; empty in journals before version 0.2"""


class PilotSubmitted(Event, frozen=True, kw_only=True, tag="pilot_submitted"):
    """The launcher, once the scheduler has accepted a pilot, or its job was found by its token."""

    pilot: str
    job_id: str


class PilotWaits(Event, frozen=True, kw_only=True, tag="pilot_waits"):
    """The launcher, when the scheduler states another reason for which a pilot waits in its queue."""

    pilot: str
    reason: str


class SubmitDelayed(Event, frozen=True, kw_only=True, tag="submit_delayed"):
    """The launcher, when the scheduler accepts no pilot for now."""

    pilot: str
    reason: str


class PilotUnresponsive(Event, frozen=True, kw_only=True, tag="pilot_silent"):
    """The launcher, before it cancels a job whose leader has written nothing for too long."""

    pilot: str
    silent_s: float


class PilotGone(Event, frozen=True, kw_only=True, tag="pilot_gone"):
    """The launcher, when a pilot's job is confirmed gone or was refused, after its last attempts were marked lost."""

    pilot: str
    word: str
    """the scheduler's state of the job, or ENDED, REFUSED, NEVER_SUBMITTED, OF_THE_ORIGINAL, UNRESPONSIVE, GONE"""
    reason: str = ""
    ended_at: float | None = None
    """when its job ended, by the scheduler; None where it does not say"""


class PilotStarted(Event, frozen=True, kw_only=True, tag="pilot_started"):
    """A leader, once its agents are connected."""

    pilot: str
    job_id: str
    nodes: tuple[str, ...]
    began_at: float | None = None
    """when its job began, by the scheduler; None where it does not say"""


class PilotAlive(Event, frozen=True, kw_only=True, tag="pilot_alive"):
    """A leader's heartbeat, every 10 s."""

    pilot: str


class PilotEnded(Event, frozen=True, kw_only=True, tag="pilot_ended"):
    """A leader, as its last line: everything that it did is recorded."""

    pilot: str
    reason: str


class AttemptStarted(Event, frozen=True, kw_only=True, tag="attempt_started"):
    """A leader, after it claimed an attempt and before anything starts on a node."""

    pilot: str
    run_id: str
    attempt: Whole
    nodes: tuple[str, ...]


class RecordFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a record (``sweep.records.record.Record``) that the state reads."""

    run_id: str
    attempt: Whole
    pilot: str
    outcome: Outcome
    message: str | None = None
    node_names: tuple[str, ...] | None = None
    started_at: float | None = None
    ended_at: float | None = None
    tokens_per_second_per_gpu: float | None = None
    peak_memory_bytes: float | None = None
    pp: Whole | None = 1
    ep: Whole | None = 1
    start_s: float | None = None
    first_iteration_s: float | None = None
    measure_s: float | None = None
    step_time_median_s: float | None = None
    step_times_s: tuple[float, ...] | None = None
    warmup_times_s: tuple[float, ...] | None = None
    stopped: str | None = None
    suspect: bool | None = None
    extra_json: str | None = None


class Recorded(Event, Generic[RecordT], frozen=True, kw_only=True, tag="record"):
    """A leader, when an attempt has ended and its nodes are clean; or the launcher, for a lost attempt."""

    record: RecordT
    """all columns when written; readers decode the part that they need"""
    pilot: str | None = None
    """None if written by the launcher"""
    accused: tuple[str, ...] = ()
    """the nodes that the outcome names"""
    slow_node: str | None = None
    """the node of the rank whose own steps took clearly longer than the others'"""


class NodeBad(Event, frozen=True, kw_only=True, tag="node_bad"):
    """A leader, for a node that it could not clean, or `sweep nodes exclude`."""

    node: str
    reason: str
    pilot: str | None = None
    """None if from the user"""


class NodeFit(Event, frozen=True, kw_only=True, tag="node_fit"):
    """A leader, which checked the speed of a node that was slow in runs: they no longer count against it."""

    node: str
    pilot: str


class NodeReleased(Event, frozen=True, kw_only=True, tag="node_released"):
    """`sweep nodes release`: earlier reports on the node no longer count."""

    node: str


class RerunRequested(Event, frozen=True, kw_only=True, tag="rerun"):
    """`sweep rerun`: measure the run once more."""

    run_id: str
    after: Whole
    """number of its latest attempt at that time"""


class TriesRenewed(Event, frozen=True, kw_only=True, tag="tries_renewed"):
    """A launcher that a person started, for runs whose last attempt failed for a reason that was not its own, or had no
    end yet: such failures until then no longer count against them.
    """

    after: dict[str, int]
    """run_id -> number of its latest attempt"""


class Extended(Event, frozen=True, kw_only=True, tag="extend"):
    """After a further plan was written: `sweep launch --add`, or re-measured top configurations."""

    plan: str
    runs: Whole
    argv: tuple[str, ...] = ()


class Tracked(Event, frozen=True, kw_only=True, tag="tracked"):
    """`sweep track`, when an attempt is written to a tracker, or with an empty outcome when it begins to write."""

    destination: str
    run_id: str
    attempt: Whole
    outcome: str


LAST_LINES = (SessionEnded, PilotEnded)
"""nothing follows them in a journal"""

_encoder = msgspec.json.Encoder()


def encode(value: msgspec.Struct, encoded: Callable[[Any], bytes] = _encoder.encode) -> bytes:
    """An event as a line of a journal, without its line end; or another value, by the encoder of its form."""
    try:
        return encoded(value)
    except UnicodeEncodeError:
        # A lone surrogate: Python strings may hold one, as may names of files and processes, and JSON may escape one.
        # No decoder, file or table takes it: it becomes a question mark.
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace")
        return encoded(json.loads(text))


def decoder(record_type: type) -> Callable[[bytes], Event]:
    """A decoder of lines, whose ``Recorded`` events hold records of that type. It raises EventError."""
    kinds = [kind for kind in Event.__subclasses__() if kind is not Recorded]
    fast = msgspec.json.Decoder(reduce(operator.or_, (*kinds, Recorded[record_type])))  # type: ignore[valid-type]

    def decode(line: bytes) -> Event:
        if len(line) > MAX_LINE_BYTES:
            raise EventError(f"{len(line)} bytes are more than any event has ({MAX_LINE_BYTES})")
        try:
            # Also damage in a field that the decoder passes over without a look
            if b"\0" in line:
                raise EventError(f"NUL bytes from its byte {line.index(0)} on")
            if not line.isascii():
                line.decode()
            event: Event = fast.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EventError(str(error)) from None
        if not 0 <= event.time <= event.order <= LATEST:
            raise EventError(f"its time is {event.time} or {event.answers}, not unix seconds")
        return event

    return decode


decode = decoder(RecordFacts)
"""The event of a line, a record with the columns that the state reads. Raises EventError."""
