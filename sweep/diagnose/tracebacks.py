"""Python exceptions that no other rule matches: the last line of a traceback, also with rank prefixes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

from sweep.diagnose.model import Hit, Weight
from sweep.outcomes import Outcome

_HEADER = re.compile(r"Traceback \(most recent call last\)(?!:\\n  )")
"""but for one that is whole within its line: a warning's, in JSON (see scan.py)"""
_MODULE = r"(?:[A-Za-z_]\w{0,80}\.){0,20}"
_EXCEPTION = re.compile(rf"{_MODULE}[A-Z_a-z]\w{{0,80}}(?:: |:?$)")
_BARE = re.compile(
    r"^(?:\[?(?:default|rank|worker|node|gpu)[ -]?\w{0,12}\]?:? ?|[\w.-]{0,40}\d: |\(\w+ pid=\d[^)\n]*\) |\[\d+\]:? ?)"
    rf"{{0,3}}({_MODULE}(?:[A-Z]\w{{0,80}}(?:Error|Exception|Interrupt|Exit)|(?:(?<=\.exc\.)|(?<=\.errors\.)"
    r"|(?<=\.exceptions\.))[A-Z]\w{0,80}))(?:: \S.*|(?<=Error))$",
    re.MULTILINE,
)
_LOGGED = re.compile(
    r"^.{0,200}\b(?:ERROR|CRITICAL|FATAL)\b(?:(?!\b(?:ERROR|CRITICAL|FATAL)\b).){0,200}?"
    rf"(?<![\w.])({_MODULE}[A-Z]\w{{0,80}}(?:Error|Exception)): \S.*$",
    re.MULTILINE,
)
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
"""of a logger or a container, which differs between the lines of one traceback"""
_END = 2000
"""an exception on an error line within this many characters of a log's end is taken as the reason of the end"""
_FRAME = re.compile(r'^(?:\[?\w+\]?:? ?)?  File "[^"\n]+", line \d+, in \S[^\n]*', re.MULTILINE)
_WARNED = re.compile(
    r"\b(?:WARNING|WARN|DEBUG|UserWarning|RuntimeWarning)\b|Logging error|[Ii]gnor(?:ed|ing)|(?:fall(?:ing)?"
    r"|fell) ?back|[Rr]etry"
)
_NOT_ITSELF = (
    "ChildFailedError",
    "ActorDiedError",
    "CalledProcessError",
    "SystemExit",
    "KeyboardInterrupt",
    "SignalException",
    "Warning",
)
_LINE = 2000
"""characters of a line"""
_LONGEST = 400
"""lines of one traceback"""
_MOST = 200

_ADVICE = "The program raised this exception: the last frame above it in the log names the place."


@dataclass(frozen=True)
class Traceback:
    """One traceback: where it starts, where its exception's own line starts, and that line."""

    start: int
    at: int
    line: str
    overcome: bool
    """logged as a warning or ignored by the interpreter, and the log continues after it"""


def tracebacks(text: str) -> list[Traceback]:
    """The first tracebacks of ``text``."""
    found: list[Traceback] = []
    for header in itertools.islice(_HEADER.finditer(text), _MOST):
        start = text.rfind("\n", 0, header.start()) + 1
        at, line = _last_line(text, start, header.start())
        found.append(Traceback(start, at, line, at >= 0 and _overcome(text, start, at)))
    return found


def exceptions(text: str, found: list[Traceback], claimed: Container[int]) -> Iterator[Hit]:
    """Hits for the exceptions of ``text`` on lines that are not in ``claimed`` (offsets of line starts)."""
    for trace in found:
        if trace.at >= 0 and trace.at not in claimed and not trace.overcome and not _is_report(trace.line):
            yield _hit(trace.at, trace.line)
    if any(trace.at >= 0 for trace in found):
        return
    # A truncated text: the exception's line alone, or frames without their exception
    for match in _BARE.finditer(text):
        if match.start() not in claimed and not _is_report(match.group(1)):
            yield _hit(match.start(), match.group(0))
    for match in _LOGGED.finditer(text, max(0, len(text) - _END)):
        if match.start() not in claimed and not _is_report(match.group(1)):
            yield _hit(match.start(), match.group(0), Weight.CONSEQUENCE, "logged")
    frame = _FRAME.search(text)
    if frame is not None and frame.start() not in claimed:
        advice = "The log is truncated before the exception's own line: read the whole log of this rank."
        yield _hit(frame.start(), frame.group(0), Weight.CONSEQUENCE, "frames", advice)


def _last_line(text: str, start: int, position: int) -> tuple[int, str]:
    """Offset and text of the exception's own line: the first after the header that is not indented below it. Or -1."""
    prefix = text[max(start, position - _LINE) : position]
    same = re.compile("^" + _CLOCK.join(map(re.escape, re.split(_CLOCK, prefix))))
    at = text.find("\n", position) + 1
    for _ in range(_LONGEST):
        if at <= 0 or at >= len(text):
            return -1, ""
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at : min(end, at + _LINE)]
        nested = prefix.strip() == "|" and not line.startswith(prefix)  # a group within a group of exceptions
        body = line.lstrip("|+- ") if nested else same.sub("", line)
        if _EXCEPTION.match(body.rstrip()):
            return at, body.strip()
        at = end + 1
    return -1, ""


def _overcome(text: str, start: int, at: int) -> bool:
    before = text[max(0, start - 400) : start].rstrip("\n").rpartition("\n")[2]
    if before.startswith("Exception ignored in") or "Logging error" in before:
        return True
    header = text[start : text.find("\n", start)][:_LINE]
    end = text.find("\n", at)
    goes_on = end >= 0 and bool(text[end : end + 400].strip())
    return goes_on and _WARNED.search(before + " " + header) is not None


def _is_report(line: str) -> bool:
    """The exception of a launcher about its child, or of an interruption: not a cause of its own."""
    return line.split(":")[0].endswith(_NOT_ITSELF)


def _hit(
    start: int, line: str, weight: Weight = Weight.SUSPECT, source: str = "exception", advice: str = _ADVICE
) -> Hit:
    return Hit(Outcome.PYTHON_EXCEPTION, weight, line.strip()[:500], advice, start, source)
