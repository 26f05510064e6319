"""Writes an archive: the records, plan and inputs of a sweep and the logs of its failures, each without secrets."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import stat
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from sweep.archive.layout import FILES, TOTAL_BYTES, NotRegularError, is_of_layout, read_regular
from sweep.errors import Mistake, SweepError
from sweep.files import MAX_TEXT_BYTES, parquet_of, read_table, text_of, write_whole
from sweep.inputs.yaml_lines import load
from sweep.outcomes import Outcome
from sweep.redaction import Redaction, secret_values
from sweep.state.state import SweepState
from sweep.store.directory import ARCHIVE, SweepDir
from sweep.version import __version__

_LEFT_OUT = {"rendezvous"}
"""of a pilot's directory: the key of its agents"""
_PILOT_FILES = {".out", ".err", ".log", ".sh", ".json", ""}
"""suffixes of a pilot's files that are text: submitit's pickles are not"""


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


def _parsed(directory: SweepDir, path: Path) -> object:
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
        clean = [_clean_value(value, redaction) for value in values]
        if clean != values:
            table, changed = table.set_column(index, field, pa.array(clean, type=field.type)), True
    metadata = {key: redaction.clean(value.decode()).encode() for key, value in (table.schema.metadata or {}).items()}
    changed = changed or metadata != (table.schema.metadata or {})
    return (parquet_of(table.replace_schema_metadata(metadata)), True) if changed else (data, False)


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_list(kind):
        return _has_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _clean_value(value: object, redaction: Redaction) -> object:
    if isinstance(value, str):
        return redaction.clean(value)
    return [_clean_value(one, redaction) for one in value] if isinstance(value, Sequence) else value
