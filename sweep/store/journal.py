"""Append-only journals: one writer each, read from where the last read ended."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from sweep.errors import Mistake, SweepError, log_error
from sweep.files import naming, write_aside
from sweep.state.events import LAST_LINES, Event, EventError, decode, encode
from sweep.store.directory import SweepDir, share, write_once
from sweep.store.place import check_own, sweep_id_of

Decode: TypeAlias = Callable[[bytes], Event]

PIECE_BYTES = 8 << 20
"""bytes of a journal read at once"""
INCOMPLETE_S = 60.0
"""a last line that is incomplete and did not change for this long is reported. An NFS client may show an old size for
60 s (man 5 nfs, acregmax)"""
RESTS_S = 60.0
"""a journal that did not grow for this long is polled rarely: heartbeats come every 10 s to 20 s"""
RESTING_POLL_S = 120.0
"""how often then: with 500 of them, 4 metadata operations a second, and a late line is still found"""
_EVENT_BEGINS = re.compile(rb'\{\s*"event"\s*:')
"""every line begins so; inside a JSON text the quotes would be escaped"""


class Journal:
    """An append-only JSONL file with exactly one writer. A line is one write, then fsync.

    The writer keeps the lines, and writes the file again where somebody removed, replaced or cut it; not where another
    sweep has been made in the place of its own since.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        share(path)
        self._path = path
        self._sweep = SweepDir(path.parent.parent)
        self._sweep_id = sweep_id_of(self._sweep)
        self._size = 0
        self._lines: list[bytes] = []
        """compressed"""
        self._torn = False
        """a part of a line may be at the end: what failed could not be undone either"""

    def append(self, event: Event) -> None:
        """Append one event. Raises OSError where the file system fails; the caller may then append it again."""
        try:
            with naming(self._path):
                self.check()
                line = b"\n" * self._torn + encode(event) + b"\n"
                written = os.write(self._fd, line)
                if written != len(line):  # as a write does that fills the disk
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._fd)
                self._size = os.fstat(self._fd).st_size
        except OSError:
            self._torn = True
            with contextlib.suppress(OSError):  # to the last whole line: part of a line would damage the next one
                if os.fstat(self._fd).st_size > self._size:
                    os.ftruncate(self._fd, self._size)
                self._torn = False
            raise
        self._torn = False
        self._lines.append(zlib.compress(line, 1))

    def check(self) -> None:
        """Write the file again where the one at its path is another, or was cut. Raises OSError where it cannot be, or
        its folder is away, and SweepError where the directory is another sweep's now.
        """
        try:
            own, there = os.fstat(self._fd), self._path.stat()
            if os.path.samestat(own, there) and own.st_size >= self._size:
                return
        except OSError as error:  # stale: another host removed it, and the file server has no such file any more
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            self._path.parent.stat()
        if self._sweep_id and sweep_id_of(self._sweep) not in ("", self._sweep_id):
            fact = f"another sweep is here now: {self._sweep_id}, for which this process works, was removed"
            raise SweepError(Mistake(fact, file=str(self._sweep.path), remedy="the process ends"))
        aside = write_aside(self._path, b"".join(map(zlib.decompress, self._lines)))
        share(aside)
        aside.rename(self._path)
        before, self._fd = self._fd, os.open(self._path, os.O_WRONLY | os.O_APPEND)
        with contextlib.suppress(OSError):
            os.close(before)
        self._size, self._torn = os.fstat(self._fd).st_size, False
        log_error(f"{self._path} was removed or changed by somebody else: all of it is written again")

    def close(self) -> None:
        """Close the descriptor; the file stays."""
        os.close(self._fd)

    def remove_empty(self) -> None:
        """Close it, and remove the file if no event could be written: the caller does not begin."""
        self.close()
        if not self._size:
            with contextlib.suppress(OSError):
                self._path.unlink()


def write_request(directory: SweepDir, kind: str, events: Iterable[Event]) -> None:
    """Write a command's request to its own journal, all of it or nothing. ``kind``: the beginning of its name."""
    check_own(directory)
    lines = b"".join(encode(event) + b"\n" for event in events)
    write_once(directory.journal(f"{kind}-{time.time_ns()}-{os.getpid()}"), lines)


def event_pieces(path: Path, offset: int, decode: Decode = decode) -> Iterator[tuple[list[Event], int]]:
    """The events from `offset` (bytes) on, in pieces so that memory stays small, with the offset after each piece.

    A damaged line is reported on stderr with file and byte; whole events in it are read. A last line that may still
    be completed is left for the next read. If the file was changed before `offset`, all of it is read again. The file
    is opened again each time: an open descriptor may not see another host's appends on NFS.
    """
    with path.open("rb") as file:
        if offset:
            file.seek(offset - 1)
            if file.read(1) not in (b"\n", b"}"):
                log_error(f"{path}: was changed before byte {offset}, up to which it was read: all of it is read again")
                offset = 0
                file.seek(0)
        while lines := file.readlines(PIECE_BYTES):
            events: list[Event] = []
            # Torn: without its line end; or with NUL bytes, which a file on NFS shows where its size arrived before its
            # data. The writer begins no further line before one is stored, so only the last one can be so.
            last = not file.peek(1)
            torn = not lines[-1].endswith(b"\n") or (last and b"\0" in lines[-1])
            tail = lines.pop() if torn else b""
            for line in lines:
                events += _events_of_line(line, path, offset, decode)
                offset += len(line)
            whole, end = whole_events(tail, decode)
            offset += end
            if tail[end:].strip() and time.time() - os.fstat(file.fileno()).st_mtime > INCOMPLETE_S:
                _report_incomplete(path, offset, len(tail) - end)
            yield events + whole, offset
            if tail:
                return


@functools.cache
def _report_incomplete(path: Path, offset: int, size: int) -> None:
    """Report it, once per process."""
    log_error(f"{path}: the last line, at byte {offset}, is incomplete ({size} bytes): its writer was interrupted")


def _events_of_line(line: bytes, path: Path, offset: int, decode: Decode) -> list[Event]:
    """The event of a line, or of a damaged one the whole events in it."""
    if not line.strip():
        return []
    try:
        return [decode(line)]
    except EventError as error:
        events, _ = whole_events(line, decode)
        done = f"is damaged, and {len(events)} whole events in it were read" if events else "is skipped"
        log_error(f"{path}: the line at byte {offset} {done}: {error}")
        return events


def whole_events(text: bytes, decode: Decode = decode) -> tuple[list[Event], int]:
    """The events that are whole in a damaged text, wherever they begin, and where the last one ends (bytes)."""
    characters = text.decode("latin-1")  # a character per byte: only the positions of JSON's syntax matter
    events, end = [], 0
    for begin in (match.start() for match in _EVENT_BEGINS.finditer(text)):
        if begin < end:
            continue
        with contextlib.suppress(ValueError, RecursionError):  # EventError is a ValueError
            _, after = json.JSONDecoder(strict=False).raw_decode(characters, begin)
            events.append(decode(text[begin:after]))
            end = after
    return events, end


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

    def __init__(self, directory: SweepDir, offsets: Mapping[str, int] | None = None, decode: Decode = decode) -> None:
        self._directory = directory
        self._decode = decode
        self.offsets: dict[str, int] = dict(offsets or {})
        """how far each journal was read, bytes by file name"""
        self._missing: set[str] = set()
        self._grew_at: dict[str, float] = {}
        self._not_before: dict[str, float] = {}

    def new_events(self, *, resting: bool = False) -> Sequence[Event]:
        """Events appended since the last read, oldest first. Raises OSError, and then has read nothing.

        A journal that rests, since its writer wrote its last line or nothing for a while, is polled rarely, or now
        with ``resting``.
        """
        now, fresh = time.monotonic(), []
        read: dict[str, tuple[int, bool]] = {}
        paths = self._directory.journals()
        missing = self.offsets.keys() - {path.name for path in paths}
        for name in missing - self._missing:
            log_error(f"{self._directory.path / 'journal' / name} was removed: its writer writes it again, if it lives")
        self._missing = missing
        for path in paths:
            if resting or now >= self._not_before.get(path.name, now):
                offset = self.offsets.get(path.name, 0)
                if path.stat().st_size != offset:
                    events, end = read_events(path, offset, self._decode)
                    read[path.name] = end, bool(events) and isinstance(events[-1], LAST_LINES)
                    fresh += events
                elif now - self._grew_at.setdefault(path.name, now) > RESTS_S:
                    self._not_before[path.name] = now + RESTING_POLL_S
        for name, (end, ended) in read.items():  # only now: after a file system error here all is read again
            self.offsets[name], self._grew_at[name] = end, now
            self._not_before[name] = now + RESTING_POLL_S if ended else now
        return sorted(fresh, key=lambda event: event.order)
