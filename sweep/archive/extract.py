"""Opens an archive: for one process, or as a directory. Reading commands take both, and no command continues either."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pyarrow as pa

from sweep.errors import Mistake, SweepError
from sweep.files import remove_empty
from sweep.store.directory import ARCHIVE, ARCHIVE_SUFFIX, SweepDir

_ZSTD = b"\x28\xb5\x2f\xfd"
_OPENED: dict[Path, tuple[tempfile.TemporaryDirectory[str], SweepDir]] = {}
"""archives that this process reads; the temporary directories go at its end"""


def is_archive(path: Path) -> bool:
    """Whether a path is a file that is compressed as an archive is."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_ZSTD)) == _ZSTD


def opened(archive: Path) -> SweepDir:
    """The sweep of an archive, extracted for as long as this process lives. Raises as ``extract`` does."""
    path = archive.resolve()
    if path not in _OPENED:
        folder = tempfile.TemporaryDirectory(prefix="sweep-archive.")
        _OPENED[path] = folder, extract(archive, Path(folder.name) / archive.name.removesuffix(ARCHIVE_SUFFIX))
    return _OPENED[path][1]


def is_opened(sweep: SweepDir) -> bool:
    """Whether a sweep is an archive's: what is written there is gone with this process."""
    return any(sweep.path == other.path for _, other in _OPENED.values())


def extract(archive: Path, into: Path | None) -> SweepDir:
    """Extract an archive to ``into``, by default to the sweep's own name here. All or nothing.

    Raises SweepError where it is no archive of a sweep, or the directory exists; and OSError.
    """
    target: Path | None = None
    aside: Path | None = None
    missing: list[Path] = []
    folder = ""
    if not archive.is_file():
        raise SweepError(Mistake("no such archive", file=str(archive), remedy="a file that `sweep archive` made"))
    try:
        with (
            pa.input_stream(str(archive), compression="zstd") as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            for member in tar:
                if target is None or aside is None:
                    target = _target(member, archive, into)
                    missing = [above for above in target.absolute().parents if not above.exists()]
                    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    aside = Path(tempfile.mkdtemp(prefix=f".{target.name[:80]}.", dir=target.parent))
                    folder = PurePosixPath(member.name).parts[0]
                _write(tar, member, folder, aside, archive)
        if aside is None or not SweepDir(aside).provenance.is_file():
            raise _no_archive(archive)
    except (tarfile.TarError, pa.ArrowException, EOFError) as error:
        _remove(aside, missing)
        raise _no_archive(archive) from error
    except OSError as error:
        _remove(aside, missing)
        if error.errno is None:  # Arrow's: zstd cannot decompress it
            raise _no_archive(archive) from error
        if target is not None:  # and not the name aside, which is no longer there
            error.filename = str(target)
        raise
    except SweepError:
        _remove(aside, missing)
        raise
    assert target is not None  # with ``aside``
    aside.rename(target)
    directory = SweepDir(target)
    directory.create_skeleton()
    return directory


def _target(member: tarfile.TarInfo, archive: Path, into: Path | None) -> Path:
    """Where the first member says that the rest belongs."""
    parts = PurePosixPath(member.name).parts
    if len(parts) != 2 or parts[1] != ARCHIVE or parts[0] in ("..", "/"):
        raise _no_archive(archive)
    target = into or Path(parts[0])
    if target.exists():
        raise SweepError(Mistake("exists already", file=str(target), remedy="name another directory with --dir"))
    return target


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str, aside: Path, archive: Path) -> None:
    """One file, below the directory whatever its name is. Each name may come once, below the archive's one folder."""
    above, *inside = PurePosixPath(member.name).parts or ("",)
    source = tar.extractfile(member) if member.isreg() else None
    if source is None or above != folder or not inside or ".." in inside:
        raise _no_archive(archive)
    path = aside.joinpath(*inside)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = path.open("xb")
    except (FileExistsError, NotADirectoryError) as error:
        raise _no_archive(archive) from error
    with file:
        shutil.copyfileobj(source, file)
    path.chmod(0o600)


def _remove(aside: Path | None, missing: Sequence[Path]) -> None:
    """Remove what was extracted, and the directories made for it."""
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)
    remove_empty(missing)


def _no_archive(path: Path) -> SweepError:
    return SweepError(Mistake("no archive of a sweep", file=str(path), remedy="name a file that `sweep archive` made"))
