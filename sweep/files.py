"""Files that the user names: text and tables read whole within a bound, results written whole or not at all.

An ``OSError`` of these functions carries the path as the user named it; ``sweep.errors.file_mistake`` words it.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import math
import os
import re
import stat
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sweep.errors import Mistake, SweepError

_HEAD_BYTES, _STRANGE_SHARE = 512, 0.3
"""a file is binary if over 30 % of its first block's characters are strange: perl's -B (perldoc -f -X)"""
MAX_TEXT_BYTES = 4 << 20
"""of a grid, a site or a map; a log may be longer"""
MAX_ROWS, MAX_TABLE_BYTES = 10_000_000, 4 << 30
"""of a Parquet file, as it states them: a plan has at most 10,000,000 candidates"""
MAX_DEPTH = 40
"""of JSON, as of YAML (`sweep.inputs.yaml_lines`): what reads values calls itself for each level"""
MAX_DIGITS = 30
"""of a number of JSON, as of YAML"""
_FORMULA = r"'*[=+\-@\t\r]"
"""how a cell begins that a spreadsheet takes as a formula (owasp.org, CSV injection), or that is guarded already"""
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
"""what is neither a file nor a directory"""


def read_text(path: Path, what: str, most_bytes: int | None = MAX_TEXT_BYTES) -> str:
    """The text of a file. ``what``: the kind of file that is expected, for messages.

    Raises SweepError where it is no text file of at most ``most_bytes``, and OSError. No content is quoted.
    """
    _check_kind(path, what)
    with naming(path), path.open("rb") as file:
        data = file.read() if most_bytes is None else file.read(most_bytes + 1)
    if most_bytes is not None and len(data) > most_bytes:
        raise SweepError(Mistake(f"too large for a {what}: over {most_bytes >> 20} MiB", file=str(path)))
    return text_of(data, path, what)


def read_log(source: Path | bytes) -> str:
    """The text of a log file, or of bytes from standard input. Logs may hold invalid bytes: they are replaced.

    Raises SweepError where it is empty or binary, and OSError.
    """
    file = "-" if isinstance(source, bytes) else str(source)
    if isinstance(source, Path):
        _check_kind(source, "log")
        with naming(source):
            source = source.read_bytes()
    if not source.strip(b"\0\t\n\r "):
        raise SweepError(Mistake("is empty: there is nothing to diagnose", file=file, remedy="name another log"))
    head = source.lstrip(b"\0")[:_HEAD_BYTES]
    strange = sum(byte < 7 or 14 <= byte < 27 or 28 <= byte < 32 for byte in head)
    strange += head.decode(errors="replace").count("\ufffd")
    if strange > _STRANGE_SHARE * len(head):
        raise SweepError(Mistake("is not text, so not a log", file=file, remedy="name the program's output"))
    return source.decode(errors="replace")


def end_of(path: Path, most_bytes: int) -> str:
    """The last bytes of a log of this program's own as text; empty where it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes).decode(errors="replace")
    return ""


def text_of(data: bytes, path: Path | str, what: str) -> str:
    """The bytes as text. Raises SweepError where they are not: NUL bytes, or not UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SweepError(Mistake(f"is not text, so not a {what}", file=str(path), remedy="a text file in UTF-8"))
    return text


def json_of(text: str, file: Path | str) -> Any:
    """The object of a JSON text. Raises SweepError where it is none, or is nested too deeply."""
    if (problem := json_problem(text)) is not None:
        raise SweepError(Mistake(problem, file=str(file)))
    return json.loads(text)


@functools.lru_cache(1024)
def json_problem(text: str) -> str | None:
    """Why a text that others may have written is no JSON object that can be read; None where it can."""
    deep = f"its JSON is nested more than {MAX_DEPTH} deep"
    try:
        value = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_number)
    except RecursionError:
        return deep
    except OverflowError:
        return "its JSON has a number that is not finite, or too long"
    except ValueError:
        return "is not JSON"
    if not isinstance(value, dict):
        return "is no JSON object"
    level: list[Any] = [value] if text.count("[") + text.count("{") > MAX_DEPTH else []
    for _ in range(MAX_DEPTH):
        below = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        level = [item for item in below if isinstance(item, dict | list)]
    return deep if level else None


@functools.lru_cache(1024)
def column_problem(name: str, text: str) -> str | None:
    """The same of a record's column of that name: a model's shape must be one."""
    from sweep.physics.shapes import ModelShape

    problem = json_problem(text)
    try:
        if name == "shape_json" and problem is None and (values := json.loads(text)):
            ModelShape.of(values)
    except ValueError as error:
        problem = f"is no model's shape: {error}"
    return problem


def _number(text: str) -> float:
    if len(text) > MAX_DIGITS or not math.isfinite(value := float(text)):
        raise OverflowError
    return value


def read_table(
    path: Path,
    columns: Sequence[str] | None = None,
    types: Mapping[str, Any] | None = None,
    *,
    data: bytes | None = None,
) -> Any:
    """The ``pyarrow.Table`` of a Parquet file; of ``columns`` those that it has, those of ``types`` in these types.

    Raises SweepError where the file is no readable Parquet or a column is of another type (a ``_json`` column: holds
    what is no JSON object), and OSError. No content is quoted. ``data``: the file's content, if that was read.
    """
    import pyarrow as pa

    with _parquet(path, data) as parquet:
        present = parquet.schema_arrow.names
        chosen = None if columns is None else [name for name in present if name in set(columns)]
        for name, times in Counter(present if chosen is None else chosen).items():
            if times > 1:
                raise SweepError(Mistake(f"{times} columns are named {name[:80]!r}", file=str(path)))
        # One of Arrow's threads that lets go of a Python file while Python ends aborts it (apache/arrow issue 34314).
        table = parquet.read(columns=chosen, use_threads=False)
    types = types or {}
    for name in set(types) & set(table.column_names):
        array, kind = table[name], types[name]
        try:  # a foreign file may hold 8.0 for 8
            array = array if array.type == kind else array.cast(kind)
        except pa.ArrowException as error:
            raise SweepError(Mistake(f"column {name} should be {kind}, but is {array.type}", file=str(path))) from error
        for text in array.unique().to_pylist() if name.endswith("_json") else ():
            if text is not None and (problem := column_problem(name, text)) is not None:
                remedy = "collect or import it again"
                raise SweepError(Mistake(f"column {name}: {problem}", file=str(path), remedy=remedy))
        table = table.set_column(table.column_names.index(name), name, array)
    return table


def column_names(path: Path) -> Sequence[str]:
    """The columns of a Parquet file. Raises as ``read_table``."""
    with _parquet(path) as parquet:
        names: Sequence[str] = parquet.schema_arrow.names
    return names


def check_columns(
    table: Any, names: Sequence[str], path: Path, what: str = "the results of a sweep", remedy: str | None = None
) -> None:
    """Raises SweepError where a ``pyarrow.Table`` lacks one of these columns. ``what``: the table that is expected."""
    if missing := [name for name in names if name not in table.column_names]:
        remedy = remedy or "`sweep import` brings other tables into the schema of records"
        fact = f"no column {', '.join(missing[:5])}{' …' * (len(missing) > 5)}: not {what}"
        raise SweepError(Mistake(fact, file=str(path), remedy=remedy))


@contextlib.contextmanager
def _parquet(path: Path, data: bytes | None = None) -> Iterator[Any]:
    """The open ``pyarrow.parquet.ParquetFile``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.is_dir():
        raise SweepError(Mistake("is a directory, not a Parquet file", file=str(path), remedy="name a Parquet file"))
    try:
        with naming(path), path.open("rb") if data is None else io.BytesIO(data) as file:
            parquet = pq.ParquetFile(file)
            check_rows(parquet, path)
            yield parquet
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        remedy = "`sweep import` converts CSV and other tables"
        raise SweepError(Mistake("not a readable Parquet file", file=str(path), remedy=remedy)) from error


def check_rows(parquet: Any, path: Path) -> None:
    """Raises SweepError where a Parquet file states more than a table of ours has: a few bytes can hold billions of
    equal values.
    """
    groups = (parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups))
    if parquet.metadata.num_rows > MAX_ROWS or sum(group.total_byte_size for group in groups) > MAX_TABLE_BYTES:
        fact = f"too large a table: over {MAX_ROWS:,} rows or {MAX_TABLE_BYTES >> 30} GiB"
        raise SweepError(Mistake(fact, file=str(path)))


def parquet_of(table: Any, **options: Any) -> bytes:
    """A ``pyarrow.Table`` as the content of a Parquet file; ``options`` as of ``pyarrow.parquet.write_table``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"compression": "zstd", **options})
    content: bytes = sink.getvalue().to_pybytes()
    return content


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV. A text that a spreadsheet would take as a formula gets an apostrophe before it, which shows it as
    text; numbers are as they are. ``unguarded`` reads it back. A NUL, which Python 3.10 cannot write, is escaped.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in [list(rows[0]), *(list(row.values()) for row in rows)] if rows else ():
        texts = [cell.replace("\0", "\\u0000") if isinstance(cell, str) else cell for cell in row]
        guarded = (isinstance(cell, str) and re.match(_FORMULA, cell) for cell in texts)
        writer.writerow([f"'{cell}" if guard else cell for cell, guard in zip(texts, guarded, strict=True)])
    return out.getvalue()


def unguarded(table: Any) -> Any:
    """The ``pyarrow.Table`` of a CSV file with its texts as ``csv_of`` was given them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(at, field, pc.replace_substring_regex(table[at], f"^'({_FORMULA})", r"\1"))
    return table


Content = bytes | str | Callable[[IO[bytes]], object]
"""of a file, or a function that writes it to the open file"""


def write_whole(path: Path, data: Content) -> None:
    """Write or replace a file, and make the directories above it. If that fails, nothing has changed."""
    with _parents(path):
        write_aside(path, data).rename(path)


def write_new(path: Path, text: str) -> None:
    """Write a file, and make the directories above it. Raises SweepError where it exists."""
    with _parents(path):
        aside = write_aside(path, text)
        try:
            os.link(aside, path)
        except FileExistsError:
            raise SweepError(taken(path)) from None
        finally:
            aside.unlink()


def taken(path: Path) -> Mistake:
    """That a file exists which nothing may replace."""
    return Mistake("exists, and is not overwritten", file=str(path), remedy="name another path, or remove it")


def write_aside(path: Path, data: Content) -> Path:
    """Write a private temporary file next to ``path`` and sync it. Raises OSError, and then has removed it."""
    content = data.encode() if isinstance(data, str) else data
    aside = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex[:12]}")
    try:
        with naming(path), open(aside, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            content(file) if callable(content) else file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    return aside


def check_writable(path: Path) -> None:
    """Raises OSError where nothing can be created or replaced at the path; changes nothing."""
    try:
        path.lstat()
    except FileNotFoundError:
        above = path.absolute().parent
        if not os.path.lexists(above):
            return check_writable(above)
        if not above.is_dir():
            raise NotADirectoryError(20, os.strerror(20), str(above)) from None
        return _check_access(above, os.W_OK | os.X_OK)
    return _check_access(path, os.W_OK | (os.X_OK if path.is_dir() else 0))


def check_readable(path: Path) -> None:
    """Raises OSError where something is at the path, or above it, that may not be read; passes where nothing is.

    Raises SweepError where it is neither a file nor a directory.
    """
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    check_regular(path)
    _check_access(path, os.R_OK | (os.X_OK if is_directory else 0))


def check_regular(path: Path) -> None:
    """Raises SweepError where the path is a pipe, which may have no writer, or a device, which may have no end."""
    mode = path.stat().st_mode
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise SweepError(Mistake(f"is {kind}, not a file", file=str(path), remedy="name a file"))


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An ``OSError`` within is of this path: writing to an open file names none, a temporary file another."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


@contextlib.contextmanager
def _parents(path: Path) -> Iterator[None]:
    """The directories above the path exist within; those made for it are removed if it fails."""
    missing = [above for above in path.absolute().parents if not above.exists()]
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except OSError:
        remove_empty(missing)
        raise


def remove_empty(directories: Sequence[Path]) -> None:
    """Remove directories that are empty, in this order."""
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _check_kind(path: Path, what: str) -> None:
    """Raises SweepError where the path is no file."""
    if path.is_dir():
        raise SweepError(Mistake(f"is a directory, not a {what}", file=str(path), remedy="name a file"))
    check_regular(path)


def _check_access(path: Path, mode: int) -> None:
    if os.access(path, mode):
        return
    read_only = mode & os.W_OK and os.statvfs(path).f_flag & os.ST_RDONLY
    number = 30 if read_only else 13  # EROFS, EACCES
    raise OSError(number, os.strerror(number), str(path))


def shipped_folder(name: str) -> Path:
    """The folder of templates or examples: in the package where it is from a wheel, next to it in a checkout."""
    package = Path(__file__).parent
    inside = package / f"_{name}"
    return inside if inside.is_dir() else package.parent / name
