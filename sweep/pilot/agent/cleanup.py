"""The end of an attempt on one node: SIGTERM, a bounded wait, SIGKILL to every descendant, a check that none is left.

Never by name: only processes that descend from this agent or carry this pilot's and node's marks, in the environment or
in their limits. These are this attempt's only.

Also files that an attempt may leak in /dev/shm, and temporary ones: only files of this user, of the
kinds that NCCL, torch and Python's multiprocessing make, created during the attempt and not in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence, Set
from pathlib import Path

import psutil

from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK, carrying, descendants, describe
from sweep.pilot.agent.ranks import Rank
from sweep.store.directory import kernel_boot

KILL_WAIT_S = 8.0
"""a process that outlives SIGKILL for so long hangs in the kernel (state D): its node is not clean. With evidence (2 s)
and GPU_WAIT_S it fits into the leader's CLEAN_S"""
POLL_S = 0.02
"""how often the processes are looked for"""


SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_LEAKED = re.compile(r"nccl-|torch_|sem\.|psm_|pymp-")
TEMPORARY_PREFIX = "sweep-tmp."
TEMPORARY_LINK = "tmp"


async def clear(
    ranks: Sequence[Rank],
    spare: Sequence[int],
    grace_s: float,
    reap: Callable[[], None],
    before: Set[tuple[int, int]] = frozenset(),
) -> list[str]:
    """Kill every process of the attempt except `spare` (fork servers) and those ``before`` it. Returns the survivors,
    as text.
    """
    for rank in ranks:
        rank.terminate()
    deadline, pause_s = time.monotonic() + grace_s, POLL_S / 16
    while any(rank.alive for rank in ranks) and time.monotonic() < deadline:
        await asyncio.sleep(pause_s)
        pause_s = min(POLL_S, 2 * pause_s)
    token, node = os.environ.get(PILOT_MARK, ""), os.environ.get(NODE_MARK, "")
    left = await kill(lambda: descendants(spare, before), reap)
    if not left and token and node:  # what is no longer a descendant
        left = await kill(lambda: [p for p in carrying([token], node, before) if p.pid not in spare], reap)
    return left


async def kill(find: Callable[[], list[psutil.Process]], reap: Callable[[], None] = lambda: None) -> list[str]:
    """SIGKILL to what `find` finds, until it finds nothing or the time is up. Returns the survivors, as text."""
    deadline = time.monotonic() + KILL_WAIT_S
    while True:
        reap()
        left = find()
        if not left or time.monotonic() > deadline:
            return [describe(process) for process in left]
        for process in left:
            with contextlib.suppress(psutil.Error):  # it has ended
                process.send_signal(signal.SIGKILL)
        await asyncio.sleep(POLL_S)


def remove_shared_memory(since: float, directory: Path = SHARED_MEMORY) -> list[str]:
    """Remove files leaked since `since` (unix seconds); returns their names. Skips files in use."""
    candidates: list[Path] = []
    with contextlib.suppress(OSError):
        candidates = [path for path in directory.iterdir() if _LEAKED.match(path.name) and _created_by_us(path, since)]
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


def _created_by_us(path: Path, since: float) -> bool:
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


def make_temporary(scratch: Path) -> tuple[Path, int]:
    """A short-named directory for TMPDIR (sockets' paths are bounded), found by a link in the pilot's scratch.

    Also a descriptor that locks it, until it is closed or this process ends in any way. Removes those whose agent was
    killed, and whose scratch is gone, so that no later pilot finds them by the link.
    """
    prefix = f"{TEMPORARY_PREFIX}{zlib.crc32(kernel_boot().encode()):08x}."
    if kernel_boot():
        _remove_unlocked(scratch.parent, prefix)
    while True:  # until no other agent removed it before it was locked: each removes once, at its start
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=scratch.parent))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # a file system without locks: no other agent can lock it either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if made.exists():
                break
            os.close(descriptor)
    (scratch / TEMPORARY_LINK).symlink_to(made)
    return made, descriptor


def _remove_unlocked(parent: Path, prefix: str) -> None:
    """Remove temporary directories that no agent of this kernel holds. On a shared file system other nodes' locks may
    not be seen, so the prefix names the kernel's boot.
    """
    for path in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
            finally:
                os.close(descriptor)


def empty(directory: Path) -> None:
    """Remove the contents of a directory, not the directory itself."""
    with contextlib.suppress(OSError):
        for entry in directory.iterdir():
            with contextlib.suppress(OSError):
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def remove_scratch(scratch: Path) -> None:
    """Remove a pilot's scratch directory and the temporary one that it links to; another agent may do the same."""
    with contextlib.suppress(OSError):
        temporary = (scratch / TEMPORARY_LINK).readlink()
        if temporary.parent == scratch.parent and temporary.name.startswith(TEMPORARY_PREFIX):
            shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


def remove_stale_scratch(parent: Path, owner: str) -> None:
    """Remove this user's scratch directories of a pilot, or of one of its nodes, that has ended."""
    for path in parent.glob(f"{owner}.*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.getuid():
                remove_scratch(path)
