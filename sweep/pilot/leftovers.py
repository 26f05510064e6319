"""What an attempt may leave on a node besides processes: files in /dev/shm, temporary files.

Only files of this user, of the kinds that NCCL, torch and Python's multiprocessing make, begun during the attempt, and
held by nobody.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_OURS = re.compile(r"nccl-|torch_|sem\.|psm_|pymp-")
TEMPORARY_PREFIX = "sweep-tmp."
TEMPORARY_LINK = "tmp"


def remove_shared_memory(since: float, directory: Path = SHARED_MEMORY) -> list[str]:
    """Remove what was left since `since` (unix seconds); the names. A file that a process holds is left alone."""
    candidates = [path for path in _files(directory) if _begun_by_us(path, since)]
    if not candidates:
        return []
    held = _held(directory)
    removed = []
    for path in candidates:
        if str(path) not in held:
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return removed


def _files(directory: Path) -> Iterable[Path]:
    with contextlib.suppress(OSError):
        return [path for path in directory.iterdir() if _OURS.match(path.name)]
    return []


def _begun_by_us(path: Path, since: float) -> bool:
    with contextlib.suppress(OSError):
        stat = path.lstat()
        return stat.st_uid == os.getuid() and min(stat.st_ctime, stat.st_mtime) >= since
    return False


def _held(directory: Path) -> set[str]:
    """Files of the directory that a process of this user maps or has open."""
    held = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real != os.getuid():
                continue
            maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
            held |= {line.split(maxsplit=5)[5] for line in maps.splitlines() if str(directory) in line}
            for fd in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    held.add(str(fd.readlink()))
    return held


def make_temporary(scratch: Path) -> Path:
    """A short-named directory for TMPDIR (sockets' paths are bounded), known by a link in the pilot's scratch."""
    made = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=scratch.parent))
    (scratch / TEMPORARY_LINK).symlink_to(made)
    return made


def empty(directory: Path) -> None:
    """Remove what is in a directory, and not the directory."""
    with contextlib.suppress(OSError):
        for entry in directory.iterdir():
            with contextlib.suppress(OSError):
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def remove_scratch(scratch: Path) -> None:
    """Remove a pilot's scratch directory and the temporary one that it links to."""
    with contextlib.suppress(OSError):
        temporary = (scratch / TEMPORARY_LINK).readlink()
        if temporary.parent == scratch.parent and temporary.name.startswith(TEMPORARY_PREFIX):
            shutil.rmtree(temporary)
    with contextlib.suppress(OSError):
        shutil.rmtree(scratch)
