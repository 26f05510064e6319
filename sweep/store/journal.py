"""Append-only journals: one writer each, read from where the last look ended."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.store.directory import SweepDir


class Journal:
    """An append-only JSONL file with exactly one writer. A line is one write, then fsync."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        self._size = 0

    def append(self, event: Mapping[str, Any]) -> None:
        """Add one event. Raises OSError where the file system refuses; the journal then is as it was before."""
        line = (json.dumps(dict(event), separators=(",", ":"), allow_nan=True) + "\n").encode()
        try:
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(f"short write: {written} of {len(line)} bytes")
            os.fsync(self._fd)
        except OSError:
            # A line cut in the middle would hide all that follows it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Close the descriptor; the file stays."""
        os.close(self._fd)


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The events from `offset` (bytes) on, and the offset to go on from. A torn last line is left for the next look.

    The file is opened anew each time: a held descriptor need not see another host's appends on NFS.
    """
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    events = [json.loads(line) for line in data[:end].splitlines() if line.strip()]
    return events, offset + end


class JournalReader:
    """Reads all journals of a sweep, each from where it was left. ``offsets``: bytes by file name that are known."""

    def __init__(self, sweep: SweepDir, offsets: Mapping[str, int] | None = None) -> None:
        self._sweep = sweep
        self.offsets: dict[str, int] = dict(offsets or {})
        """how far each journal was read, bytes by file name"""

    def new_events(self) -> Sequence[dict[str, Any]]:
        """What was appended since the last look, oldest first. Raises OSError, and then has read nothing."""
        fresh: list[dict[str, Any]] = []
        read: dict[str, int] = {}
        for path in self._sweep.journals():
            offset = self.offsets.get(path.name, 0)
            if path.stat().st_size > offset:
                events, read[path.name] = read_events(path, offset)
                fresh += events
        self.offsets.update(read)  # only now: what a failing file system cut off here is read again
        return sorted(fresh, key=lambda event: float(event["time"]))
