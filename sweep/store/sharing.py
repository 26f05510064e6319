"""Who may write to a sweep directory. Only its owner continues it, and only where no one else could have changed it:
its site has shell lines that run as the user who submits the pilots, and its plan has what they import.

The directories above are not looked at: that others may write there is usual on clusters. A user who replaces the whole
directory owns what takes its place.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sweep.errors import Mistake, SweepError

DEPTH = 3
"""pilots/<name>/<file>"""
MANY = ("claims", "logs")
"""folders with a file per attempt, which nothing runs, imports or follows: only the folders are looked at. No other
user can put, rename or link a file into a folder that only its owner can write to."""
ROOT = 0
"""may do everything anyway: what it left in a user's directory is no other user's"""


def check_owner(path: Path) -> None:
    """Raises SweepError where a directory is another user's, or others can or could change what is in it. In one that
    they cannot enter, the mode of a file says nothing: it may be that of a default ACL of a directory above.
    """
    check_mine(path)
    owner = path.stat().st_uid
    entries = [(path, path.stat()), *_below(path, DEPTH)]
    strange = [
        f"{entry} belongs to {user(status.st_uid)}" for entry, status in entries if status.st_uid not in (owner, ROOT)
    ]
    here, closed = path.resolve(), not path.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    writable = [
        f"{entry} has mode {stat.S_IMODE(status.st_mode):04o}"
        for entry, status in entries
        if _others_write(status) and not (closed and here in entry.resolve().parents)
    ]
    mistakes = []
    if writable:
        remedy = f"look at what is there, grid.yaml and site.yaml above all; then `chmod -R go-w {path}`"
        mistakes.append(Mistake(_fact("others can change this sweep", writable), file=str(path), remedy=remedy))
    if strange:
        remedy = "look at what is there; then remove it, or let root `chown` it to you"
        mistakes.append(Mistake(_fact("others have written to this sweep", strange), file=str(path), remedy=remedy))
    if mistakes:
        raise SweepError(mistakes)


def check_mine(path: Path) -> None:
    """Raises SweepError where a directory is another user's.

    root is another user too: it would run a user's shell lines as root, and leave files that the user cannot read.
    """
    owner, me = path.stat().st_uid, os.geteuid()
    if not _is_mine(path):
        fact = f"belongs to {user(owner)}, and you are {user(me)}: only its owner continues, changes or ends a sweep"
        way = f"run it as {user(owner)}" if me == ROOT else f"ask {user(owner)}"
        remedy = f"{way}, or measure in a directory of your own; commands that only read work here"
        raise SweepError(Mistake(fact, file=str(path), remedy=remedy))


def is_own(path: Path) -> bool:
    """Whether derived files may be written to a sweep directory: by its owner, who can then read them."""
    return os.access(path, os.W_OK | os.X_OK) and _is_mine(path)


def user(uid: int) -> str:
    """The name of a user; the number where this machine knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def group_id(name: str) -> int:
    """The number of a group that this process's user is in. Raises SweepError."""
    mine = {os.getegid(), *os.getgroups()}
    remedy = "its members may read the sweep's directory: name a group that `id` lists"
    try:
        group = grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        fact = f"this machine has no group {name[:60]!r}"
        raise SweepError(Mistake(fact, path="group (of the site)", remedy=remedy)) from None
    if group not in mine and os.geteuid() != ROOT:
        fact = f"{user(os.geteuid())} is not in the group {name!r}"
        raise SweepError(Mistake(fact, path="group (of the site)", remedy=remedy))
    return group


def _is_mine(path: Path) -> bool:
    """Some network file systems map users, as NFS does root: then a file that this process makes has that owner."""
    owner = path.stat().st_uid
    if owner != os.geteuid():
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=path) as file:
            return os.fstat(file.fileno()).st_uid == owner
    return owner == os.geteuid()


def _others_write(status: os.stat_result) -> bool:
    """Not a link, whose mode says nothing, nor a device."""
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return kind and bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _below(path: Path, depth: int) -> Iterator[tuple[Path, os.stat_result]]:
    """What is in a directory, to that depth, but for the files of attempts; of a link, itself and what it leads to.
    Files may vanish meanwhile.
    """
    with os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_symlink():
                    yield Path(entry.path), entry.stat(follow_symlinks=False)
                status = entry.stat()
                yield Path(entry.path), status
                if depth > 1 and stat.S_ISDIR(status.st_mode) and entry.name not in MANY:
                    yield from _below(Path(entry.path), depth - 1)


def _fact(fact: str, places: list[str]) -> str:
    more = f", and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{fact}: {places[0]}{more}"
