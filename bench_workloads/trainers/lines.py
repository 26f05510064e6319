"""From a trainer's output to clean lines: pieces joined, progress bars split, colours and prefixes taken off."""

from __future__ import annotations

import codecs
import re

MAX_LINE = 64_000
"""characters; what is longer is cut into pieces, so that an endless line cannot fill the memory"""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_END = re.compile(r"\r\n|\n|\r")
_PREFIX = re.compile(r"^\s*(?:\[(?:rank|default|R)?_?(\d{1,6})\]:?\s?|(\d{1,6}):\s)")
"""[rank0]: of torchrun, [default0]: of older ones, 0: of srun --label"""


class Lines:
    """Joins pieces of output to whole lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._came_at = 0.0

    def timed(self, data: bytes, at_s: float) -> list[tuple[str, float]]:
        """The lines of ``feed``, each with the time at which its last character came.

        A progress bar's line ends only where the next one begins, which may be a step later. No data: the end.
        """
        if not data:
            return [(line, self._came_at) for line in self.end()]
        ended = self._rest.endswith("\r") or data[:1] in (b"\r", b"\n")
        came_at = self._came_at if ended and self._rest.strip("\r") else at_s
        self._came_at = at_s
        return [(line, at_s if number else came_at) for number, line in enumerate(self.feed(data))]

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole with this piece. A carriage return ends a line: progress bars rewrite theirs."""
        text = self._rest + self._decoder.decode(data)
        # A \r at the end may be the first half of \r\n.
        held = "\r" if text.endswith("\r") else ""
        *whole, self._rest = _END.split(text.removesuffix("\r") if held else text)
        self._rest += held
        if len(self._rest) > MAX_LINE:
            whole.append(self._rest)
            self._rest = ""
        return [plain(line) for line in whole if line]

    def end(self) -> list[str]:
        """What was left without a line end, once no more comes."""
        rest, self._rest = (self._rest + self._decoder.decode(b"", final=True)).rstrip("\r"), ""
        return [plain(rest)] if rest else []


def plain(line: str) -> str:
    """The line without colours and other escapes."""
    return _ESCAPE.sub("", line)


def without_prefix(line: str) -> tuple[int | None, str]:
    """(rank, line) where a launcher put the rank before it; (None, line) where none did."""
    match = _PREFIX.match(line)
    if match is None:
        return None, line
    return int(match[1] or match[2]), line[match.end() :]
