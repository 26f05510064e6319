"""The border of texts that a record, a table or a directory of somebody else states: others may have written them.

They are compared and computed with as they are. Shown, in a script or as a name of a file they pass through a
``Stated``, which is no text: no path, template or command takes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.errors import Mistake, SweepError
from sweep.physics.shapes import ModelShape

LONGEST_LINE, LONGEST_NAME = 200, 80
"""characters of a text on a line of ours, and of a name of a file"""
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._+@-]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = frozenset(
    "if then else elif fi for while until do done case esac in function select time coproc".split()  # noqa: SIM905
)


def shell_word(value: object) -> str:
    """The value quoted as one word of a POSIX shell. Raises SweepError for what no script can hold."""
    text = str(value)
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
        raise SweepError(Mistake(f"{Stated(text).line()} cannot be in a script: it has a NUL or half a character"))
    return f"'{text}'" if text in _RESERVED else shlex.quote(text)


def shell_words(values: Iterable[object]) -> str:
    """The values as words of a POSIX shell."""
    return " ".join(map(shell_word, values))


@dataclass(frozen=True)
class Stated:
    """A value that a record states. Its methods are its only ways out."""

    _value: object

    def __str__(self) -> str:
        raise TypeError("a stated text is shown by line(), word(), variable() or file_name()")

    def word(self) -> str:
        """One word of a POSIX shell. Raises SweepError for what no script can hold."""
        return shell_word(self._value)

    def line(self) -> str:
        """Part of a line, of a message or a script's comment: what does not print is escaped, what is long is cut."""
        text = str(self._value)
        cut = text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)

    def variable(self) -> str:
        """The name of an environment variable. Raises SweepError where it is none."""
        text = str(self._value)
        if not _VARIABLE.fullmatch(text):
            raise SweepError(Mistake(f"the record states {self.line()!r}, which is no name of an environment variable"))
        return text

    def file_name(self) -> str:
        """A plain name: another text has another name, which ends with its digest where the text itself is none."""
        text = str(self._value)
        plain = _NOT_PLAIN.sub("_", text[:LONGEST_NAME]).lstrip(".-+@") or "_"
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        return plain if plain == text else f"{plain}-{digest[:8]}"


def stated_values(record: Mapping[str, Any], column: str) -> dict[str, str | int | float | bool | None]:
    """The names and plain values that a column of JSON states. Raises SweepError where it states anything else."""
    text = record.get(column)
    try:
        values = json.loads(text) if isinstance(text, str) and text else {}
        if isinstance(values, dict) and not any(isinstance(value, dict | list) for value in values.values()):
            return values
    except (ValueError, RecursionError):
        pass
    raise SweepError(Mistake(f"{column} of {Stated(record.get('run_id')).line()} is no JSON of names and plain values"))


def stated_shape(record: Mapping[str, Any]) -> ModelShape | None:
    """The model's shape that a record states, if it does. Raises SweepError where that is none."""
    values = stated_values(record, "shape_json")
    try:
        return ModelShape.of(values) if values else None
    except ValueError as error:
        run_id = Stated(record.get("run_id")).line()
        raise SweepError(Mistake(f"shape_json of {run_id} is no model's shape: {error}")) from None
