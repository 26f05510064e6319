"""Counts the files and directories created under a folder, through the kernel's inotify.

Renames and links count as well: each is an operation of the metadata server.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path

_CREATE, _MOVED_TO, _DIRECTORY, _OVERFLOW = 0x100, 0x80, 0x40000000, 0x4000
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Creations:
    """``with Creations(folder) as seen: ...``; then ``seen.count`` names were created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.count = 0
        self.overflowed = False
        """the kernel dropped events: the count is too low"""
        self._watched: dict[int, Path] = {}
        self._listed: set[Path] = set()
        """counted before their event was read"""

    def __enter__(self) -> Creations:
        self._fd = _libc.inotify_init1(os.O_CLOEXEC)
        self._watch(self._folder, new=False)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        last = self._folder / ".end-of-count"
        last.touch()
        self._thread.join(timeout=10)
        last.unlink()
        os.close(self._fd)

    def _watch(self, folder: Path, *, new: bool) -> None:
        number = _libc.inotify_add_watch(self._fd, os.fsencode(folder), _CREATE | _MOVED_TO)
        if number < 0:
            return  # gone already
        self._watched[number] = folder
        for path in folder.iterdir():  # created before the watch: its events may be reported, or not
            if new and path not in self._listed:
                self._listed.add(path)
                self._count(path)
            elif path.is_dir():
                self._watch(path, new=False)

    def _note(self, path: Path) -> None:
        if path in self._listed:
            self._listed.discard(path)
        else:
            self._count(path)

    def _count(self, path: Path) -> None:
        self.count += 1
        if path.is_dir() and not path.is_symlink():
            self._watch(path, new=True)

    def _follow(self) -> None:
        while True:
            data = os.read(self._fd, 1 << 16)
            while data:
                number, mask, _, length = _HEAD.unpack_from(data)
                name = data[_HEAD.size : _HEAD.size + length].rstrip(b"\0")
                data = data[_HEAD.size + length :]
                self.overflowed |= bool(mask & _OVERFLOW)
                path = self._watched.get(number, self._folder) / os.fsdecode(name)
                if path == self._folder / ".end-of-count":
                    return
                self._note(path)
