"""Append-only journals: one writer each, read from where the last read ended."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from sweep.errors import log_error
from sweep.files import naming
from sweep.state.events import Event, EventError, decode, encode
from sweep.store.directory import SweepDir, write_once

Decode: TypeAlias = Callable[[bytes], Event]

PIECE_BYTES = 8 << 20
"""bytes of a journal read at once"""


class Journal:
    """An append-only JSONL file with exactly one writer. A line is one write, then fsync."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        self._path = path
        self._size = 0

    def append(self, event: Event) -> None:
        """Append one event. Raises OSError where the file system fails; the journal is then unchanged."""
        line = encode(event) + b"\n"
        try:
            with naming(self._path):
                written = os.write(self._fd, line)
                if written != len(line):  # as a write does that fills the disk
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._fd)
        except OSError:
            # A truncated line would hide all that follows it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Close the descriptor; the file stays."""
        os.close(self._fd)


def write_request(sweep: SweepDir, kind: str, events: Iterable[Event]) -> None:
    """Write a command's request to its own journal, all of it or nothing. ``kind``: the beginning of its name."""
    lines = b"".join(encode(event) + b"\n" for event in events)
    write_once(sweep.journal(f"{kind}-{time.time_ns()}-{os.getpid()}"), lines)


def event_pieces(path: Path, offset: int, decode: Decode = decode) -> Iterator[tuple[list[Event], int]]:
    """The events from `offset` (bytes) on, in pieces so that memory stays small, with the offset after each piece.

    A line that is no event is reported on stderr and skipped. A torn last line is left for the next read. The file
    is opened again each time: an open descriptor may not see another host's appends on NFS.
    """
    with path.open("rb") as file:
        file.seek(offset)
        while lines := file.readlines(PIECE_BYTES):
            events = []
            torn = not lines[-1].endswith(b"\n")
            for line in lines[:-1] if torn else lines:
                try:
                    events += [decode(line)] if line.strip() else []
                except EventError as error:
                    log_error(f"{path}: the line at byte {offset} is skipped: {error}")
                offset += len(line)
            yield events, offset
            if torn:
                return


def read_events(path: Path, offset: int = 0, decode: Decode = decode) -> tuple[list[Event], int]:
    """All events from `offset` (bytes) on, and the offset to continue from: see ``event_pieces``."""
    events: list[Event] = []
    for piece, end in event_pieces(path, offset, decode):
        events += piece
        offset = end
    return events, offset


class JournalReader:
    """Reads all journals of a sweep, each from where the last read ended.

    ``offsets``: bytes by file name that were read. ``decode``: decodes a line
    (``sweep.state.events.decoder``).
    """

    def __init__(self, sweep: SweepDir, offsets: Mapping[str, int] | None = None, decode: Decode = decode) -> None:
        self._sweep = sweep
        self._decode = decode
        self.offsets: dict[str, int] = dict(offsets or {})
        """how far each journal was read, bytes by file name"""

    def new_events(self) -> Sequence[Event]:
        """Events appended since the last read, oldest first. Raises OSError, and then has read nothing."""
        fresh: list[Event] = []
        read: dict[str, int] = {}
        for path in self._sweep.journals():
            offset = self.offsets.get(path.name, 0)
            if path.stat().st_size > offset:
                events, read[path.name] = read_events(path, offset, self._decode)
                fresh += events
        self.offsets.update(read)  # only now: after a file system error here all is read again
        return sorted(fresh, key=lambda event: event.time)
