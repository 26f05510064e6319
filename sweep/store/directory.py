"""The sweep directory: every path in it, and the few ways to create a file there.

A file is written once, or only appended to by its one writer. There are no file locks and no database:
neither is safe on every cluster file system. A file may be read by those who may read its directory: by the user alone,
unless the site's ``umask`` or ``group`` says otherwise. Others may never write to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sweep.errors import Mistake, SweepError, log_error
from sweep.files import remove_empty, write_aside

PROVENANCE = "provenance.json"
ARCHIVE = "archive.json"
ARCHIVE_SUFFIX = ".tar.zst"
"""in a directory that was extracted from an archive"""
UNKNOWN_PILOT = "unknown"
"""the holder of a claim that cannot be read; no pilot has this name"""
FOLDERS = ("journal", "claims", "leases", "pilots", "logs")
_EXTENSION = re.compile(r"plan-\d.*\.parquet")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sweep was last continued."""

    path: str
    inodes: tuple[int, ...]
    """of the directory and of its journals': the same on every host's mount and after a rename, others in a copy"""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `provenance.json` by which a sweep continues."""

    executor: str
    sweep_id: str
    copy_of: str = ""
    directory: str = ""
    """that of `sweep launch`"""
    place: Place | None = None
    """None: made by a version that did not state it"""


@dataclass(frozen=True)
class SweepDir:
    """Owns every path of one sweep."""

    path: Path

    @property
    def provenance(self) -> Path:
        """Versions, commit, command line, executor. Written last on creation: a directory without it is not a sweep."""
        return self.path / PROVENANCE

    def launched_from(self) -> Path | None:
        """The directory that relative paths of the grid are relative to: that of `sweep launch`, after a resume too.
        None where it does not exist, or is not stated.
        """
        stated = self.stated()
        return Path(stated.directory) if stated and stated.directory and Path(stated.directory).is_dir() else None

    def stated(self) -> Provenance | None:
        """None of a sweep to be, or where it cannot be decoded: opening the sweep says so. Raises OSError."""
        try:
            return msgspec.json.decode(self.provenance.read_bytes(), type=Provenance)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    @property
    def grid(self) -> Path:
        """The user's grid as read, with the overrides in effect."""
        return self.path / "grid.yaml"

    @property
    def site(self) -> Path:
        """The site in effect."""
        return self.path / "site.yaml"

    @property
    def plan(self) -> Path:
        """Every candidate, runs and rejected ones, of the grid that the sweep was started with."""
        return self.path / "plan.parquet"

    def plans(self) -> list[Path]:
        """The plan and its extensions, in order. Raises OSError where the directory cannot be listed."""
        return [self.plan, *sorted(path for path in self.path.iterdir() if _EXTENSION.fullmatch(path.name))]

    def extension(self, number: int) -> tuple[Path, Path]:
        """The grid and the plan that extend the sweep as its second, third, …"""
        return self.path / f"grid-{number:04d}.yaml", self.path / f"plan-{number:04d}.parquet"

    @staticmethod
    def grid_of(plan: Path) -> Path:
        """The grid that a plan was made from."""
        return plan.with_name(plan.stem.replace("plan", "grid", 1) + ".yaml")

    @property
    def snapshot(self) -> Path:
        """Derived: the state rebuilt from the journals up to some time (``sweep.store.snapshot``)."""
        return self.path / "snapshot.msgpack"

    @property
    def results(self) -> Path:
        """Derived: one row per attempt."""
        return self.path / "results.parquet"

    def inputs(self) -> list[Path]:
        """The files that state what was asked for, and how."""
        texts = [self.grid, self.site, *sorted(self.path.glob("grid-[0-9]*.yaml")), self.provenance]
        return [path for path in texts if path.exists()]

    def journals(self) -> list[Path]:
        """All journals, in a stable order. Directories are none, whatever their name. Raises OSError where their folder
        cannot be listed.
        """
        with os.scandir(self.path / "journal") as entries:
            names = [one.name for one in entries if one.name.endswith(".jsonl") and not one.is_dir()]
        return [self.path / "journal" / name for name in sorted(names)]

    def journal(self, writer: str) -> Path:
        """The journal of one session or one pilot."""
        return self._named("journal", f"{writer}.jsonl")

    def claim(self, run_id: str, attempt: int) -> Path:
        """The right to run that attempt."""
        return self._named("claims", f"{run_id}.{attempt}")

    @property
    def claims(self) -> Path:
        """The directory of claims."""
        return self.path / "claims"

    @property
    def leases(self) -> Path:
        """The leases: one file per session, named as its journal is."""
        return self.path / "leases"

    def pilot(self, name: str) -> Path:
        """The directory of one pilot: script, submitit's files, its output."""
        return self._named("pilots", name)

    def log(self, run_id: str, attempt: int) -> Path:
        """The stored output of one attempt."""
        return self._named("logs", f"{run_id}.{attempt}.log")

    def _named(self, folder: str, name: str) -> Path:
        """Raises SweepError for a name that leads out of the folder: a journal or a plan may be somebody else's."""
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise SweepError(Mistake(f"{name[:80]!r} is no name of a file in {folder}", file=str(self.path)))
        return self.path / folder / name

    def restore_folders(self) -> None:
        """Make the folders of a sweep again that were removed while it runs: its writers fill them again."""
        for folder in (self.path / name for name in FOLDERS):
            if self.provenance.exists() and not folder.exists():
                make_directory(folder)
                log_error(f"{folder} was removed while the sweep ran: it is made again")

    def create_skeleton(self, mode: int = 0o700, group: int | None = None) -> list[Path]:
        """Create the directories, private to the user unless the mode allows more. Returns those that did not exist,
        the deepest first.
        """
        wanted = [*reversed(self.path.parents), *(self.path / name for name in ("", *FOLDERS))]
        made: list[Path] = []
        try:
            for directory in wanted:
                if not directory.exists():
                    make_directory(directory, mode, group)
                    made.insert(0, directory)
        except OSError:
            remove_empty(made)
            raise
        return made


def find_sweep(given: Path | None) -> SweepDir:
    """The user's sweep: the given directory, or the newest under the working directory.

    Raises SweepError where there is none.
    """
    if given is None:
        root = Path.cwd()
        sweeps = [p for pattern in ("", "*/", "*/*/") for p in root.glob(pattern + PROVENANCE)]
        if not sweeps:
            remedy = "name one: `sweep … DIR`"
            raise SweepError(Mistake("no sweep under the working directory", file=str(root), remedy=remedy))
        return SweepDir(max(sweeps, key=lambda p: p.stat().st_mtime).parent)
    if not given.exists():
        raise SweepError(Mistake("no such directory", file=str(given), remedy="`sweep launch GRID` makes one"))
    if not given.is_dir():
        remedy = "name the directory that `sweep launch` made"
        raise SweepError(Mistake("is a file, not a sweep directory", file=str(given), remedy=remedy))
    if not (given / PROVENANCE).is_file():
        remedy = f"it has no {PROVENANCE}; name a directory that `sweep launch` made"
        raise SweepError(Mistake("not a sweep directory", file=str(given), remedy=remedy))
    return SweepDir(given)


def make_directory(path: Path, mode: int | None = None, group: int | None = None) -> None:
    """Create a directory with that mode and group, whatever the process's umask; or with its parent's mode."""
    path.mkdir(exist_ok=True)
    if group is not None:
        os.chown(path, -1, group)
    path.chmod(path.parent.stat().st_mode & 0o2777 if mode is None else mode)  # setgid: files have the group as well


def share(path: Path) -> None:
    """Let those read a file who may read its directory."""
    mode = path.parent.stat().st_mode & 0o666
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def write_once(path: Path, data: bytes | str) -> None:
    """Write a file that is never rewritten: temporary file, fsync, then link to its name.

    Raises FileExistsError where the name is taken: its content is not changed.
    """
    aside = write_aside(path, data)
    share(aside)
    try:
        os.link(aside, path)
    except OSError:  # link(2) is atomic on NFS, but its reply may be lost: a link count of 2 proves success
        if aside.stat().st_nlink != 2:
            raise
    finally:
        aside.unlink(missing_ok=True)


def write_derived(path: Path, data: bytes | str, *, private: bool = False) -> None:
    """Write or replace a derived file: temporary file, fsync, rename. ``private``: only the user may read it."""
    aside = write_aside(path, data)
    if not private:
        share(aside)
    aside.rename(path)


def last_output(pilot: Path) -> str:
    """The end of what a pilot's job and agents wrote, in the pilot's folder."""
    written = (path for path in sorted(pilot.glob("*"), reverse=True) if path.suffix in ("", ".err", ".log", ".out"))
    files = (path for path in written if path.is_file() and path.name not in ("started", "rendezvous"))
    texts = (path.read_text(errors="replace").strip()[-400:] for path in files)
    return next(filter(None, texts), f"none; see {pilot}")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the right to run an attempt: the content of a claim's file."""

    pilot: str
    job_id: str
    time: float
    """unix seconds"""


def try_claim(directory: SweepDir, run_id: str, attempt: int, claim: Claim) -> bool:
    """Take the right to run an attempt. False where another has it.

    May be called again after an OSError: a claim that succeeded all the same is recognised by its holder.
    """
    path, content = directory.claim(run_id, attempt), msgspec.json.encode(claim)
    try:
        write_once(path, content)
    except FileExistsError:
        return path.read_bytes() == content  # not decoded: another's claim may be damaged
    return True


def claims_of(
    directory: SweepDir, known: Callable[[str, int], bool] = lambda *_: False
) -> Iterator[tuple[str, int, Claim]]:
    """The claims, each with its run_id and attempt. ``known``: those that need not be read.

    One that is damaged is reported on stderr, and is held by ``UNKNOWN_PILOT``. Other files are ignored.
    """
    with os.scandir(directory.claims) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and not entry.is_dir())
    for name in names:
        run_id, _, attempt = name.rpartition(".")
        if attempt.isdecimal() and not known(run_id, int(attempt)):
            path = directory.claims / name
            try:
                claim = msgspec.json.decode(path.read_bytes(), type=Claim)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                log_error(f"{path}: the claim is damaged, at byte 0 to {path.stat().st_size}: {error}")
                claim = Claim(pilot=UNKNOWN_PILOT, job_id="", time=path.stat().st_mtime)
            yield run_id, int(attempt), claim


def kernel_boot() -> str:
    """The id of this kernel's boot, the same in all of a machine's containers and networks; empty where it has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
