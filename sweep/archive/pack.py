"""Writes an archive: the records, plan and inputs of a sweep and the logs of its failures, each without secrets."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from sweep.files import read_table, read_text, write_streamed
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


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What an archive holds."""

    files: int
    logs: int
    bytes: int
    """of the archive"""
    redacted: int
    """files from which something was removed"""


def pack(directory: SweepDir, sweep_state: SweepState, out: Path, logs: str) -> Packed:
    """Write the archive of a sweep. ``logs``: failed, all or none. An existing file is replaced whole or not at all.

    The archive's files are read one at a time; a sweep that runs meanwhile is archived as far as its journals were.
    """
    redaction = Redaction(secret_values(dict(os.environ), *map(_parsed, _inputs(directory))))
    chosen = [*_inputs(directory), *directory.plans(), *directory.journals(), *_of_pilots(directory)]
    attempts = [path for path in _logs(directory, sweep_state, logs) if path.exists()]
    folder, redacted = directory.path.absolute().name, 0

    def write(file: IO[bytes]) -> None:  # Arrow closes what it writes to: it gets a second descriptor
        nonlocal redacted
        with (
            pa.CompressedOutputStream(pa.PythonFile(os.fdopen(os.dup(file.fileno()), "wb"), "w"), "zstd") as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            about = {"sweep": __version__, "time": time.time(), "logs": logs}
            _add(archive, f"{folder}/{ARCHIVE}", json.dumps(about).encode(), time.time())
            for path in (*chosen, *attempts):
                data, changed = _cleaned(path, redaction)
                redacted += changed
                _add(archive, f"{folder}/{path.relative_to(directory.path)}", data, path.stat().st_mtime)

    write_streamed(out, write)
    return Packed(
        files=len(chosen) + len(attempts) + 1, logs=len(attempts), bytes=out.stat().st_size, redacted=redacted
    )


def _inputs(directory: SweepDir) -> list[Path]:
    texts = [directory.provenance, directory.grid, directory.site, *sorted(directory.path.glob("grid-[0-9]*.yaml"))]
    return [path for path in texts if path.exists()]


def _of_pilots(directory: SweepDir) -> list[Path]:
    found = sorted((directory.path / "pilots").glob("*/*"))
    return [path for path in found if path.is_file() and path.suffix in _PILOT_FILES and path.name not in _LEFT_OUT]


def _logs(directory: SweepDir, sweep_state: SweepState, logs: str) -> Iterator[Path]:
    for run_id, run in sweep_state.runs.items():
        for number, attempt in run.attempts.items():
            failed = attempt.outcome not in (None, Outcome.OK)
            if logs == "all" or (logs == "failed" and failed):
                yield directory.log(run_id, number)


def _parsed(path: Path) -> object:
    """A YAML or JSON file of ours. Raises SweepError where it is damaged: then its secrets are not known."""
    return load(read_text(path, "file of a sweep"), str(path)).value


def _cleaned(path: Path, redaction: Redaction) -> tuple[bytes, bool]:
    """A file's bytes without secrets, and whether any was in it."""
    if path.suffix == ".parquet":
        return _cleaned_table(path, redaction)
    text = path.read_bytes().decode(errors="surrogateescape")
    clean = redaction.clean(text)
    return clean.encode(errors="surrogateescape"), clean != text


def _cleaned_table(path: Path, redaction: Redaction) -> tuple[bytes, bool]:
    table, changed = read_table(path), False
    for index, field in enumerate(table.schema):
        values = table.column(index).to_pylist() if _has_text(field.type) else []
        clean = [_clean_value(value, redaction) for value in values]
        if clean != values:
            table, changed = table.set_column(index, field, pa.array(clean, type=field.type)), True
    metadata = {key: redaction.clean(value.decode()).encode() for key, value in (table.schema.metadata or {}).items()}
    changed = changed or metadata != (table.schema.metadata or {})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), buffer, compression="zstd")
    return (buffer.getvalue(), True) if changed else (path.read_bytes(), False)


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_list(kind):
        return _has_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _clean_value(value: object, redaction: Redaction) -> object:
    if isinstance(value, str):
        return redaction.clean(value)
    return [_clean_value(one, redaction) for one in value] if isinstance(value, Sequence) else value


def _add(archive: tarfile.TarFile, name: str, data: bytes, changed_at: float) -> None:
    """A member without the owner's name, readable by the user who extracts it."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), int(changed_at), 0o600
    archive.addfile(member, io.BytesIO(data))
