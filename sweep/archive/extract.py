"""Opens an archive: for one process, or as a directory. Reading commands take both, and no command continues either."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa

from sweep.archive.layout import FILE_BYTES, FILES, HEADER_BYTES, TOTAL_BYTES, is_of_layout
from sweep.errors import Mistake, SweepError
from sweep.files import remove_empty
from sweep.store.directory import ARCHIVE, ARCHIVE_SUFFIX, SweepDir
from sweep.store.place import temporary

_ZSTD = b"\x28\xb5\x2f\xfd"


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
    """Extract an archive to ``into``, by default to the sweep's own name here. All or nothing, within the limits of
    ``sweep.archive.layout``.

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
        raise SweepError(Mistake("exists already", file=str(target), remedy="name another directory with --dir"))
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
