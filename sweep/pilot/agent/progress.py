"""What ranks write to their progress pipes, decoded. Input from third-party workloads is bounded in size."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from sweep.contract import Measurement, Phase
from sweep.pilot.messages import RankFailure

READ_BYTES = 1 << 16
READS = 32
"""read limit per call, more than any pipe holds: a rank may write as fast as its agent reads"""
MAX_LINE_BYTES = 8 << 20
"""far beyond any measurement: a message to the leader stays below its limit"""
TOO_LONG = RankFailure(
    type="MessageTooLong",
    message=f"the rank sent a message of over {MAX_LINE_BYTES >> 20} MiB: it is discarded",
)
WHOLE_NUMBERS = ("peak_allocated_bytes", "peak_reserved_bytes", "parameters")
FIELDS = frozenset(field.name for field in dataclasses.fields(Measurement))


class RankHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's heartbeat, as `Progress.heartbeat` writes it."""

    phase: Phase
    iteration: Annotated[int, msgspec.Meta(gt=-(2**53), lt=2**53)] | None = None
    due_s: float | None = None


Report = RankHeartbeat | Measurement | RankFailure


class ProgressPipe:
    """The agent's end of a rank's pipe, which does not block."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unread = b""
        self._skipping = False
        """the rest of a line that is too long is skipped"""

    def watch(self, on_readable: Callable[[], None]) -> None:
        """Have the running loop call this whenever there is data to read."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.fd, on_readable)

    def read(self) -> list[Report]:
        """The reports that can be read now. At the end of the pipe it is closed (`fd` is -1)."""
        reports: list[Report] = []
        for _ in range(READS):
            if self.fd < 0:
                break
            try:
                data = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.close()
            reports += self._take(data)
        return reports

    def close(self) -> None:
        """Stop reading and close the pipe."""
        if self.fd < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self.fd)
        os.close(self.fd)
        self.fd = -1

    def _take(self, data: bytes) -> list[Report]:
        *lines, self._unread = (self._unread + data).split(b"\n")
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        reports = [report for line in lines if (report := report_in(line)) is not None]
        if not self._skipping and len(self._unread) > MAX_LINE_BYTES:
            self._skipping = True
            reports.append(TOO_LONG)
        if self._skipping:
            self._unread = b""
        return reports


def report_in(line: bytes) -> Report | None:
    """The report in a line; None where it is none. A malformed measurement is a failure of its rank.

    Python's own parser: it accepts NaN, which a loss may be, and lone surrogates, which a message may quote.
    """
    with contextlib.suppress(ValueError, RecursionError):
        values = json.loads(line)
        kind = values.get("kind") if isinstance(values, dict) else None
        if kind == "beat":
            return msgspec.convert({**values, "iteration": _whole(values.get("iteration"))}, RankHeartbeat)
        if kind == "measurement":
            return _measurement(values)
        if kind == "failure":
            return failure(values.get("type"), values.get("message"), values.get("traceback"))
    return None


def failure(kind: Any, message: Any, traceback: Any = None) -> RankFailure:
    """A failure as texts of bounded length, whatever types it was given in."""
    return RankFailure(
        type=str(kind or "Exception")[:200],
        message=str(message or "")[:4000],
        traceback=str(traceback or "")[-16_000:],
    )


def _measurement(values: Mapping[str, Any]) -> Measurement | RankFailure:
    given = {name: value for name, value in values.items() if name != "kind"}
    given |= {name: _whole(given[name]) for name in WHOLE_NUMBERS if name in given}  # converted from GiB
    unknown = sorted(given.keys() - FIELDS)
    try:
        if unknown:
            raise msgspec.ValidationError(f"{', '.join(unknown)} is not part of a measurement")
        return msgspec.convert(given, Measurement)
    except msgspec.ValidationError as error:
        return failure("TypeError", f"the measurement cannot be read: {error}")


def _whole(value: Any) -> Any:
    """The nearest whole number of a fraction; anything else as it is."""
    return round(value) if isinstance(value, float) and math.isfinite(value) else value
