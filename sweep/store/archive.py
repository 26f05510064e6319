"""One compressed file of a sweep for others: what explains its results and failures, without secrets.

An archive is opened by people who did not make it: for one process, or as a directory. Reading commands take both, and
no command continues either. Nothing is in one but what is listed here: a state that somebody else derived, or a claim,
would be believed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa

from sweep.errors import Mistake, SweepError
from sweep.files import MAX_TEXT_BYTES, naming, parquet_of, read_table, remove_empty, text_of, write_whole
from sweep.inputs.yaml_lines import load
from sweep.outcomes import Outcome
from sweep.redaction import Redaction, secret_values
from sweep.state.state import SweepState
from sweep.store.directory import ARCHIVE, ARCHIVE_SUFFIX, SweepDir
from sweep.store.place import temporary
from sweep.version import __version__

FILES = 100_000
"""ten for each of the 10,000 runs of a large sweep"""
FILE_BYTES = 1 << 30
TOTAL_BYTES = 4 << 30
"""decompressed: a hundred times the journals of 10,000 attempts"""
HEADER_BYTES = 64 << 10
"""of one member, with its extended headers: ours have 2 KiB"""
_NAME = r"[^/.][^/]{0,254}"
_FILES = re.compile(
    r"archive\.json|provenance\.json|site\.yaml|grid(-[0-9]{4,9})?\.yaml|plan(-[0-9]{4,9})?\.parquet"
    rf"|journal/{_NAME}\.jsonl|logs/{_NAME}\.log|pilots/{_NAME}/{_NAME}"
)
_LEFT_OUT = {"rendezvous"}
"""of a pilot's directory: the key of its agents"""
_PILOT_FILES = {".out", ".err", ".log", ".sh", ".json", ""}
"""suffixes of a pilot's files that are text: submitit's pickles are not"""
_ZSTD = b"\x28\xb5\x2f\xfd"


def is_of_layout(folder: str, inside: str) -> bool:
    """Whether a file of that name may be in an archive whose folder has that name: no dot names, at most three deep."""
    named = bool(re.fullmatch(_NAME, folder)) and folder.isprintable() and inside.isprintable()
    return named and _FILES.fullmatch(inside) is not None


def read_regular(folder: Path, inside: str, most_bytes: int = FILE_BYTES) -> tuple[bytes, float]:
    """The content of a file below a folder, and when it was changed.

    Raises NotRegular where it, or what is between the two, is a link, or it is a pipe or device; or is too large.
    Raises OSError as opening it does: nothing waits for the other end of a pipe.
    """
    *above, name = PurePosixPath(inside).parts
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for part in above:
            if not stat.S_ISDIR(os.stat(part, dir_fd=opened[-1], follow_symlinks=False).st_mode):
                raise NotRegularError(f"{part} is a link")
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        if not stat.S_ISREG(
            os.stat(name, dir_fd=opened[-1], follow_symlinks=False).st_mode
        ):  # a device may act on open
            raise NotRegularError("it is a link, a pipe or a device")
        opened.append(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise NotRegularError(f"it has over {most_bytes >> 20} MiB")
        with naming(folder / inside), os.fdopen(opened.pop(), "rb") as file:
            return file.read(status.st_size), status.st_mtime
    finally:
        for descriptor in opened:
            os.close(descriptor)


class NotRegularError(Exception):
    """A file that no archive has, and why."""


@dataclass(eq=False)
class Packed:
    """One archive as it is written, and what it holds then."""

    directory: SweepDir
    archive: tarfile.TarFile
    redaction: Redaction
    files: int = 0
    logs: int = 0
    size: int = 0
    """bytes of the files"""
    archive_bytes: int = 0
    redacted: int = 0
    """files from which something was removed"""
    left_out: list[str] = dataclasses.field(default_factory=list)
    """logs and outputs that were not read, each with the reason"""

    @property
    def folder(self) -> str:
        """The name of the archive's one folder: no dot name, which would be hidden where it is opened."""
        return self.directory.path.absolute().name.lstrip(".") or "sweep"

    def add(self, path: Path, *, needed: bool) -> bool:
        """Add a file, without secrets. Raises SweepError where one that is ``needed`` cannot be; False for others."""
        inside = path.relative_to(self.directory.path).as_posix()
        try:
            if not is_of_layout(self.folder, inside):
                raise NotRegularError("its name")
            data, changed_at = read_regular(self.directory.path, inside)
        except FileNotFoundError:
            return False
        except (NotRegularError, PermissionError) as error:
            if needed:
                why = f"cannot be archived: {getattr(error, 'strerror', None) or error}"
                raise SweepError(Mistake(why, file=str(path), remedy="links are not followed: restore it")) from error
            self.left_out.append(f"{inside}: {getattr(error, 'strerror', None) or error}")
            return False
        if path.suffix == ".parquet":
            clean, redacted = _cleaned_table(path, data, self.redaction)
        else:
            text = data.decode(errors="surrogateescape")
            clean = self.redaction.clean(text).encode(errors="surrogateescape")
            redacted = clean != data
        self.redacted += redacted
        self.write(inside, clean, changed_at)
        return True

    def write(self, inside: str, data: bytes, changed_at: float) -> None:
        """A member without the owner's name, readable by the user who extracts it."""
        self.files, self.size = self.files + 1, self.size + len(data)
        if self.files > FILES or self.size > TOTAL_BYTES:
            fact = f"too large for an archive: over {FILES:,} files or {TOTAL_BYTES >> 30} GiB"
            raise SweepError(Mistake(fact, file=str(self.directory.path), remedy="--logs failed, or --logs none"))
        member = tarfile.TarInfo(f"{self.folder}/{inside}")
        member.size, member.mtime, member.mode = len(data), int(changed_at), 0o600
        self.archive.addfile(member, io.BytesIO(data))


def pack(directory: SweepDir, sweep_state: SweepState, out: Path, logs: str) -> Packed:
    """Write the archive of a sweep. ``logs``: failed, all or none. An existing file is replaced whole or not at all.

    Only regular files are read, and no link below the directory is followed: others may have put it there. The files
    are read one at a time; a sweep that runs meanwhile is archived as far as its journals were.
    """
    inputs = directory.inputs()
    redaction = Redaction(secret_values(dict(os.environ), *(_parsed(directory, path) for path in inputs)))
    attempts = [
        directory.log(run_id, number)
        for run_id, run in sweep_state.runs.items()
        for number, attempt in run.attempts.items()
        if logs == "all" or (logs == "failed" and attempt.outcome not in (None, Outcome.OK))
    ]
    packed: Packed

    def write(file: IO[bytes]) -> None:  # Arrow closes what it writes to: it gets a second descriptor
        nonlocal packed
        with (
            pa.CompressedOutputStream(pa.PythonFile(os.fdopen(os.dup(file.fileno()), "wb"), "w"), "zstd") as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            packed = Packed(directory, archive, redaction)
            about = {"sweep": __version__, "time": time.time(), "logs": logs}
            packed.write(ARCHIVE, json.dumps(about).encode(), time.time())
            for path in (*inputs, *directory.plans(), *directory.journals()):
                packed.add(path, needed=True)
            found = sorted((directory.path / "pilots").glob("*/*"))
            named = (path for path in found if path.suffix in _PILOT_FILES and path.name not in _LEFT_OUT)
            for path in [path for path in named if not stat.S_ISDIR(path.lstat().st_mode)]:
                packed.add(path, needed=False)
            packed.logs = sum(packed.add(path, needed=False) for path in attempts)

    write_whole(out, write)
    packed.archive_bytes = out.stat().st_size
    return packed


def _parsed(directory: SweepDir, path: Path) -> Any:
    """A YAML or JSON file of ours. Raises SweepError where it is damaged: then its secrets are not known."""
    try:
        data, _ = read_regular(directory.path, path.name, MAX_TEXT_BYTES)
    except NotRegularError as error:
        remedy = "links are not followed: restore it"
        raise SweepError(Mistake(f"cannot be archived: {error}", file=str(path), remedy=remedy)) from error
    return load(text_of(data, path, "file of a sweep"), str(path)).value


def _cleaned_table(path: Path, data: bytes, redaction: Redaction) -> tuple[bytes, bool]:
    table, changed = read_table(path, data=data), False
    for index, field in enumerate(table.schema):
        values = table.column(index).to_pylist() if _has_text(field.type) else []
        clean = redaction.clean_value(values)
        if clean != values:
            table, changed = table.set_column(index, field, pa.array(clean, type=field.type)), True
    metadata = {key: redaction.clean(value.decode()).encode() for key, value in (table.schema.metadata or {}).items()}
    changed = changed or metadata != (table.schema.metadata or {})
    return (parquet_of(table.replace_schema_metadata(metadata)), True) if changed else (data, False)


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_list(kind):
        return _has_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_archive(path: Path) -> bool:
    """Whether a path is a file that is compressed as an archive is."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_ZSTD)) == _ZSTD


def opened(archive: Path) -> SweepDir:
    """The sweep of an archive, extracted for as long as this process lives. Raises as ``extract`` does."""
    return temporary(archive, lambda folder: extract(archive, folder / archive.name.removesuffix(ARCHIVE_SUFFIX)))


def extract(archive: Path, into: Path | None) -> SweepDir:
    """Extract an archive to ``into``, by default to the sweep's own name here. All or nothing, within the limits
    above.

    Raises SweepError where it is no archive of a sweep, or the directory exists; and OSError.
    """
    target: Path | None = None
    aside: Path | None = None
    if not archive.is_file():
        raise SweepError(Mistake("no such archive", file=str(archive), remedy="a file that `sweep archive` made"))
    with contextlib.ExitStack() as failed:
        try:
            with pa.input_stream(str(archive), compression="zstd") as stream:
                for folder, inside, source, size in _members(archive, stream):
                    if target is None or aside is None:
                        target = _target(folder, inside, archive, into)
                        failed.callback(remove_empty, [p for p in target.absolute().parents if not p.exists()])
                        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                        aside = Path(tempfile.mkdtemp(prefix=f".{target.name[:80]}.", dir=target.parent))
                        failed.callback(shutil.rmtree, aside, ignore_errors=True)
                    _write(aside / inside, source, size, archive)
            if target is None or aside is None or not SweepDir(aside).provenance.is_file():
                raise _no_archive(archive)
        except (tarfile.TarError, pa.ArrowException, EOFError, ValueError, OverflowError, RecursionError) as error:
            raise _no_archive(archive) from error
        except OSError as error:
            if error.errno is None:  # Arrow's: zstd cannot decompress it
                raise _no_archive(archive) from error
            if target is not None:  # and not the name aside, which is no longer there
                error.filename = str(target)
            raise
        failed.pop_all()
    aside.rename(target)
    directory = SweepDir(target)
    directory.create_skeleton()
    return directory


class _Granted:
    """A stream that yields no more than was granted: a header may claim to be gigabytes long."""

    def __init__(self, stream: IO[bytes], archive: Path) -> None:
        self._stream = stream
        self._archive = archive
        self.left = HEADER_BYTES

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes. Raises SweepError beyond what was granted."""
        data = self._stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise _too_large(self._archive)
        return data


def _members(archive: Path, stream: IO[bytes]) -> Iterator[tuple[str, str, IO[bytes], int]]:
    """(the archive's folder, the file's name in it, its content, bytes) of each file. Raises SweepError at the first
    member that no archive of ours has: a link, a device, a sparse file, another name, or one too many.
    """
    granted, total, files = _Granted(stream, archive), 0, 0
    with tarfile.open(fileobj=granted, mode="r|") as tar:  # type: ignore[call-overload]  # it needs no more than read
        while (member := tar.next()) is not None:
            tar.members = []  # it would keep all
            folder, _, inside = member.name.partition("/")
            source = tar.extractfile(member) if member.isreg() and not member.issparse() else None
            if source is None or not is_of_layout(folder, inside):
                raise _no_archive(archive)
            files, total = files + 1, total + member.size
            if member.size > FILE_BYTES or total > TOTAL_BYTES or files > FILES:
                raise _too_large(archive)
            granted.left = member.size + HEADER_BYTES
            yield folder, inside, source, member.size
            granted.left = HEADER_BYTES


def _target(folder: str, inside: str, archive: Path, into: Path | None) -> Path:
    """Where the first member says that the rest belongs."""
    if inside != ARCHIVE:
        raise _no_archive(archive)
    target = into or Path(folder)
    if target.exists():
        raise SweepError(Mistake("exists already", file=str(target), remedy="name another directory with --out"))
    return target


def _write(path: Path, source: IO[bytes], size: int, archive: Path) -> None:
    """One file, if there is space for it. Each name may come once."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if size > shutil.disk_usage(path.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file = path.open("xb")
    except (FileExistsError, NotADirectoryError) as error:
        raise _no_archive(archive) from error
    with file:
        shutil.copyfileobj(source, file)
    path.chmod(0o600)


def _no_archive(path: Path) -> SweepError:
    return SweepError(Mistake("no archive of a sweep", file=str(path), remedy="name a file that `sweep archive` made"))


def _too_large(path: Path) -> SweepError:
    most = f"{FILES:,} files, {FILE_BYTES >> 30} GiB each, {TOTAL_BYTES >> 30} GiB"
    fact = f"larger than an archive of a sweep may be: {most}"
    return SweepError(Mistake(fact, file=str(path), remedy="do not trust it, if it is not your own"))
