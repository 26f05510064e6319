"""What a terminal gets: records, logs and names are others' texts, so all that is printed passes one filter.

``guard`` puts it before stdout and stderr. Tables are drawn by a ``console`` of this file, whose own colours pass.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

_NOT_PRINTED = re.compile(
    r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"  # control characters; ESC begins an escape sequence
    r"|[\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
    r"|[\ud800-\udfff]"
)
"""beyond control characters: what is invisible or changes the direction of text (https://trojansource.codes), and
half characters, which have no encoding"""


def printable(text: str) -> str:
    """The text with such characters as JSON escapes them, such as ``\\u001b``: a JSON document keeps its values."""
    return _NOT_PRINTED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class _Printed(io.TextIOBase):
    """A stream that prints what is printable. It has no ``buffer``, by which others could go round it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors

    def write(self, text: str | bytes) -> int:
        if text and isinstance(text, bytes):  # click's completions; by none it asks whether this is a stream of bytes
            text = text.decode(errors="replace")
        try:
            self.stream.write(printable(text))  # type: ignore[arg-type]
        except BrokenPipeError:
            _end(self.stream)
        return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except BrokenPipeError:
            _end(self.stream)

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True


def _end(stream: IO[str]) -> NoReturn:
    """The reader closed the pipe: what is printed from now on, in cleaning up or at exit, goes nowhere.

    The error has no number: click would end the process at once where it is EPIPE.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    raise BrokenPipeError("the reader of the output has ended") from None


def guard() -> None:
    """Put the filter before stdout and stderr, where it is not there yet; characters that the terminal's encoding
    lacks (a locale such as en_US, Latin-1) become question marks. What was closed (`<&-`, `>&-`) is empty, or goes
    nowhere: its number would be that of the next file that is opened.
    """
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or Path(os.devnull).open("w")  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        if not isinstance(stream, _Printed):
            setattr(sys, name, _Printed(stream))


def console(*, to_stderr: bool = False, width: int | None = None) -> Console:
    """What draws tables: texts are shown as they are, not as rich's markup. ``width``: where it is no terminal."""
    from rich.console import Console

    class Printing(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
            for one in super().render(*arguments, **options):
                yield one if one.control else one._replace(text=printable(one.text))

        def on_broken_pipe(self) -> None:
            _end(self.file)

    stream: Any = sys.stderr if to_stderr else sys.stdout
    fixed = None if stream.isatty() else width
    behind = stream.stream if isinstance(stream, _Printed) else stream
    return Printing(file=behind, markup=False, emoji=False, highlight=False, width=fixed)
