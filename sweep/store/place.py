"""Where a sweep is. A copy of its directory names the original's pilots: it is for reading, until it is adopted.

Who may not write to the directory gets a view of it, whose derived files are made elsewhere. A directory counts as
removed once it is missing for longer than a file system's client tries again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import msgspec

from sweep.errors import Mistake, SweepError, log_error
from sweep.store.directory import ARCHIVE, Place, Provenance, SweepDir, write_derived
from sweep.store.sharing import check_owner
from sweep.store.sharing import is_own as may_derive

READABLE = "this copy is for status, best, heatmap, report, explain and logs"


def new_id(name: str) -> str:
    """A sweep's id: the tokens of its pilots begin with it."""
    return f"{name[:40]}-{os.urandom(4).hex()}"


def place_of(directory: SweepDir) -> Place:
    """Where the directory is now."""
    inodes = tuple(path.stat().st_ino for path in (directory.path, directory.path / "journal"))
    return Place(path=str(directory.path.absolute()), inodes=inodes)


def check_own(directory: SweepDir) -> None:
    """Before anything is written that continues a sweep. Raises SweepError where the directory is not the user's alone,
    or is a copy: its runs and pilots belong to the original. Of one that was moved the new place is stated, so that a
    later copy is known.
    """
    check_owner(directory.path)
    here, stated = str(directory.path), directory.stated()
    if (directory.path / ARCHIVE).exists():
        fact, remedy = "is extracted from an archive: for reading only", f"continue the original; {READABLE}"
        raise SweepError(Mistake(fact, file=here, remedy=remedy))
    relation = _relation(directory, stated)
    if relation is Relation.COPY and stated is not None and stated.place is not None:
        remedy = f"continue the original; {READABLE}. If the original is gone: `sweep resume {here} --adopt`"
        raise SweepError(Mistake(f"is a copy of the sweep in {stated.place.path}", file=here, remedy=remedy))
    if relation is Relation.MOVED:
        _state_place(directory)


def is_own(directory: SweepDir) -> bool:
    """Whether the user made it here: not another user, and it is no copy."""
    stated = directory.stated()
    place = None if stated is None else stated.place
    try:
        mine = directory.path.stat().st_uid == os.geteuid() and not (directory.path / ARCHIVE).exists()
        return mine and place is not None and place.inodes == place_of(directory).inodes
    except OSError:
        return False


def adopt(directory: SweepDir) -> None:
    """Make a copy a sweep of its own, by an id of its own: the pilots of the original are not its pilots. Changes
    nothing where it is no copy. Raises SweepError where it is not the user's alone.
    """
    check_owner(directory.path)
    stated = directory.stated()
    if stated is not None and _relation(directory, stated) is Relation.COPY:
        _state_place(directory, new_id(stated.sweep_id.rpartition("-")[0]))


def sweep_id_of(directory: SweepDir) -> str:
    """As the directory states it; empty where it states none. Raises OSError."""
    return stated.sweep_id if (stated := directory.stated()) is not None else ""


class Relation(Enum):
    """What a directory is to the one that its sweep was last continued in."""

    SAME = 0
    MOVED = 1
    COPY = 2


def _relation(directory: SweepDir, stated: Provenance | None) -> Relation:
    """By any path and mount: a file made here appears there too. By several mounts a directory may have several device
    numbers, and a writable snapshot has the inodes of its original.
    """
    if stated is None or stated.place is None:
        return Relation.SAME
    there = Path(stated.place.path)
    with contextlib.suppress(OSError):
        if there.samefile(directory.path):
            return Relation.SAME
    is_sweep = False
    with contextlib.suppress(OSError):
        is_sweep = sweep_id_of(SweepDir(there)) == stated.sweep_id
    if is_sweep:
        with tempfile.NamedTemporaryFile(dir=directory.path, prefix=".place-") as file:
            return Relation.SAME if (there / Path(file.name).name).exists() else Relation.COPY
    return Relation.MOVED if place_of(directory).inodes == stated.place.inodes else Relation.COPY


def _state_place(directory: SweepDir, sweep_id: str | None = None) -> None:
    stated = json.loads(directory.provenance.read_text())
    if sweep_id is not None:
        stated |= {"sweep_id": sweep_id, "copy_of": stated["sweep_id"]}
    stated["place"] = msgspec.to_builtins(place_of(directory))
    write_derived(directory.provenance, json.dumps(stated, indent=1))


_TEMPORARY: dict[Path, tuple[tempfile.TemporaryDirectory[str], SweepDir]] = {}
"""archives and sweeps of others that this process reads -> where; the directories go at its end"""


def temporary(source: Path, make: Callable[[Path], SweepDir]) -> SweepDir:
    """What ``make`` makes of the source in an empty directory, once, for as long as this process lives."""
    path = source.resolve()
    if path not in _TEMPORARY:
        folder = tempfile.TemporaryDirectory(prefix="sweep-view.")
        _TEMPORARY[path] = folder, make(Path(folder.name))
    return _TEMPORARY[path][1]


def is_temporary(directory: SweepDir) -> bool:
    """Whether what is written there is gone with this process."""
    return any(directory == view for _, view in _TEMPORARY.values())


def view_of(directory: SweepDir) -> SweepDir:
    """The sweep itself where this user may write derived files; else links to its files, and space for derived ones."""
    if may_derive(directory.path):
        return directory
    path = directory.path.resolve()

    def linked(folder: Path) -> SweepDir:
        view = folder / path.name
        view.mkdir()
        for entry in path.iterdir():
            (view / entry.name).symlink_to(entry)
        return SweepDir(view)

    return temporary(path, linked)


GONE_S = 600.0
"""how long a sweep directory may be missing before it counts as removed: as long as a file system's client tries (NFS
60 s to 600 s, man 5 nfs, timeo and retrans; Lustre as long)"""


class Removal:
    """Follows the failed accesses of one process, and reports since when the directory cannot be used, and when it can
    again. ``user``: launcher or pilot.
    """

    def __init__(self, directory: Path, user: str) -> None:
        self._directory, self._user = directory, user
        self._failing_since: float | None = None
        self._missing_since: float | None = None

    def check(self, error: OSError) -> None:
        """An access failed. Raises SweepError once the directory counts as removed."""
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            log_error(f"{self._directory} cannot be used since {time.strftime('%H:%M:%S')}, trying again: {error}")
        if not isinstance(error, FileNotFoundError) or os.path.exists(self._directory):  # noqa: PTH110 (never raises)
            self._missing_since = None
            with contextlib.suppress(OSError):
                SweepDir(self._directory).restore_folders()
        elif self._missing_since is None:
            self._missing_since = time.monotonic()
        elif time.monotonic() - self._missing_since > GONE_S:
            fact = f"removed while its {self._user} ran: missing for {GONE_S:.0f} s"
            raise SweepError(Mistake(fact, file=str(self._directory), remedy=f"the {self._user} ends")) from error

    def accessed(self) -> None:
        """An access succeeded."""
        if self._failing_since is not None:
            log_error(f"{self._directory} can be used again, after {time.monotonic() - self._failing_since:.0f} s")
        self._failing_since = self._missing_since = None
