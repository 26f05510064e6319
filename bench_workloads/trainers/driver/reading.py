"""Parsing of a trainer's output: lines, the names and units of values, readers made of named patterns."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bench_workloads.trainers.adapter import ParsedLine
from sweep.contract import Scalar

ITERATION = "iteration"
_MEMORY = ("allocated_", "reserved_")


MAX_LINE = 64_000
"""characters; what is longer is cut into pieces, so that an endless line cannot fill the memory"""
MAX_VALUE = 100
"""characters of a value of the configuration"""
LARGEST = 2**53
"""whole numbers from here on are none that a trainer counts, and no message to the agent holds them"""
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_END = re.compile(r"\r\n|\n|\r")
PREFIX = re.compile(r"^\s*(?:\[(?:rank|default|R)?_?\d{1,6}\]:?\s?|\d{1,6}:\s)")
"""[rank0]: of torchrun, [default0]: of older ones, 0: of srun --label, or a trainer's own number"""
NAMES: dict[str, str] = {
    "step_time_s": "seconds of the iteration, or mean over those since the line before",
    "tokens_per_second": "over all GPUs",
    "tokens_per_second_per_gpu": "",
    "samples_per_second": "sequences, over all GPUs",
    "tflops_per_gpu": "10^12 FLOP per second and GPU, as the trainer counts",
    "mfu": "fraction of the peak, as the trainer counts",
    "allocated_bytes": "peak of the allocator's allocated memory",
    "reserved_bytes": "peak of the allocator's reserved memory",
    "loss": "",
    "grad_norm": "",
    "skipped_iterations": "of those that the line covers, the ones without an optimizer step",
}
"""what a reader may report of an iteration, in these units"""
UNITS: dict[str, tuple[str, float]] = {
    **{name: (name, 1.0) for name in NAMES},
    "step_time_ms": ("step_time_s", 1e-3),
    "mfu_percent": ("mfu", 1e-2),
    **{
        f"{kind}_{unit}": (f"{kind}_bytes", factor)
        for kind in ("allocated", "reserved")
        for unit, factor in (
            ("kb", 1e3),
            ("mb", 1e6),
            ("gb", 1e9),
            ("kib", 2.0**10),
            ("mib", 2.0**20),
            ("gib", 2.0**30),
        )
    },
}
"""further spellings -> (name, factor)"""
SPEEDS = tuple(NAMES)[:6]
NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3}){1,10}(?!\d)|\d{1,31})(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?"
    r"(?:[KMBGT](?![A-Zi])|k(?![A-Za-z]))?|(?i:nan|inf(?:inity)?)\b)"
)
"""a number as trainers write it: 12, 3,400, 1.5e-3, 2.1K, NAN. The first letter of a unit (GiB, TFLOP) is no suffix"""
_SUFFIXES = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def pattern(text: str) -> re.Pattern[str]:
    """A pattern with one group. Raises ValueError."""
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    if compiled.groups != 1:
        raise ValueError(f"{text!r} has {compiled.groups} groups: it needs one, around the value")
    return compiled


class PatternReader:
    """One pattern finds the iteration, others the values after it, else before it; further ones the configuration.

    Where ranks write into one line, each iteration found starts a separate part, and of their memory the greatest
    counts. Of what it says of a checkpoint (``ParsedLine.checkpoint``) a part without a number is 0.
    """

    def __init__(
        self,
        iteration: str,
        values: Mapping[str, str],
        effective: Mapping[str, tuple[str, Callable[[str], Scalar]]] | None = None,
        begun: str | None = None,
        checkpoint: Mapping[str, str] | None = None,
    ) -> None:
        self._iteration = pattern(iteration)
        self._values = {name: pattern(text) for name, text in values.items()}
        self._effective = {name: (pattern(text), of) for name, (text, of) in (effective or {}).items()}
        self._begun = re.compile(begun) if begun else None
        self._checkpoint = {name: pattern(text) for name, text in (checkpoint or {}).items()}

    def read(self, line: str) -> list[ParsedLine]:
        """What was parsed from the line."""
        labelled, line = line, PREFIX.sub("", line)
        found = list(self._steps(line)) or list(self._steps(labelled, len(labelled) - len(line)))
        if not found and (values := self._found(line)):
            found = [ParsedLine(values=values)]
        stated = self._stated(line)
        begun = self._begun is not None and self._begun.search(line) is not None
        matches = {name: match for name, compiled in self._checkpoint.items() if (match := compiled.search(line))}
        checkpoint = {name: number(match[1]) or 0.0 for name, match in matches.items()}
        last = ParsedLine(effective=stated, begun=begun, checkpoint=checkpoint)
        return [*found, last] if stated or begun or checkpoint else found

    def _steps(self, line: str, label: int = 0) -> Iterator[ParsedLine]:
        matches = [match for match in self._iteration.finditer(line) if match.end() > label]
        ends = [*(match.start() for match in matches[1:]), len(line)]
        for match, end in zip(matches, ends, strict=False):
            before = line[: match.start()] if match is matches[0] else ""
            if (count := whole(number(match[1]))) is not None:
                yield ParsedLine(iteration=count, values=self._found(line[match.start() : end], before))

    def _found(self, *parts: str) -> dict[str, float]:
        return in_units({name: value for name in self._values if (value := self._value(name, parts)) is not None})

    def _value(self, name: str, parts: Iterable[str]) -> float | None:
        matches = (match for part in parts for match in self._values[name].finditer(part))
        found = [value for match in matches if (value := number(match[1])) is not None]
        if name.startswith(_MEMORY):
            return max(found, default=None)
        return found[0] if found else None

    def _stated(self, line: str) -> dict[str, Scalar]:
        stated: dict[str, Scalar] = {}
        for name, (compiled, of) in self._effective.items():
            match = compiled.search(line)
            if match and match[1] and len(match[1]) <= MAX_VALUE and countable(value := of(match[1])):
                stated[name] = value
        return stated


class JsonReader:
    """Lines that hold a JSON object; ``keys`` maps names to keys."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = {ITERATION: ITERATION, **keys}

    def read(self, line: str) -> list[ParsedLine]:
        """What was parsed from the line."""
        start = line.find("{")
        if start < 0:
            return []
        try:
            found, _ = json.JSONDecoder().raw_decode(line, start)  # a logger may write its own place behind it
        except (ValueError, RecursionError):
            return []
        named = {name: found[key] for name, key in self._keys.items() if key in found}
        values = {k: float(v) for k, v in named.items() if type(v) in (int, float) and countable(v)}
        iteration = whole(values.get(ITERATION))
        known = in_units(values) if iteration is not None else {}
        stated = {k: v for k, v in named.items() if k != ITERATION and not in_units({k: 0.0}) and countable(v)}
        if iteration is None and not stated:
            return []
        return [ParsedLine(iteration=iteration, values=known, effective=stated)]


class Lines:
    """Joins pieces of output to whole lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._came_at = 0.0

    def timed(self, data: bytes, at_s: float) -> list[tuple[str, float]]:
        """The lines completed by this piece, each with the time at which its last character came. No data: the end.

        A carriage return ends a line: progress bars rewrite theirs. Such a line ends only where the next one starts,
        which may be a step later.
        """
        text = self._rest + self._decoder.decode(data, final=not data)
        if not data:
            rest, self._rest = text.rstrip("\r"), ""
            return [(_ESCAPE.sub("", rest), self._came_at)] if rest else []
        ended = self._rest.endswith("\r") or data[:1] in (b"\r", b"\n")
        first_came_at = self._came_at if ended and self._rest.strip("\r") else at_s
        self._came_at = at_s
        # A \r at the end may be the first half of \r\n.
        held = "\r" if text.endswith("\r") else ""
        *whole, self._rest = _END.split(text.removesuffix("\r") if held else text)
        self._rest += held
        if len(self._rest) > MAX_LINE:
            whole.append(self._rest)
            self._rest = ""
        lines = [_ESCAPE.sub("", line) for line in whole if line]
        return [(line, at_s if number else first_came_at) for number, line in enumerate(lines)]


def impossible(name: str, value: float) -> bool:
    """Whether no run can have this value: a time or rate of zero or less, an MFU above 1. A loss may be anything."""
    if name in SPEEDS:
        return not math.isfinite(value) or value <= 0 or (name == "mfu" and value > 1)
    return name != "loss" and value < 0


def countable(value: Any) -> bool:
    """Whether it is no whole number that is too large."""
    return not isinstance(value, int) or abs(value) < LARGEST


def whole(value: float | None) -> int | None:
    """The number of an iteration; None where it is none."""
    return int(value) if value is not None and value.is_integer() and abs(value) < LARGEST else None


def number(text: str | None) -> float | None:
    """The number that a text like 3,400 or 2.1K or nan states; None where it states none."""
    text = (text or "").strip().replace(",", "")
    factor = _SUFFIXES.get(text[-1:], 1.0)
    try:
        return float(text[:-1] if factor != 1.0 else text) * factor
    except ValueError:
        return None


def in_units(values: Mapping[str, float]) -> dict[str, float]:
    """Values under any spelling of UNITS, as NAMES has them."""
    return {UNITS[name][0]: value * UNITS[name][1] for name, value in values.items() if name in UNITS}
