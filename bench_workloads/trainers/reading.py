"""Readers made of named patterns: regular expressions over a line, or the keys of JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bench_workloads.trainers.adapter import Said
from bench_workloads.trainers.lines import without_prefix
from bench_workloads.trainers.units import in_units, number
from sweep.contract import Scalar

ITERATION = "iteration"
_MEMORY = ("allocated_", "reserved_")


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
    """One pattern finds the iteration, others the values behind it on the line; further ones what was configured.

    Where ranks write into one line, each iteration found begins a part of its own, and of their memory the greatest
    counts.
    """

    def __init__(
        self,
        iteration: str,
        values: Mapping[str, str],
        effective: Mapping[str, tuple[str, Callable[[str], Scalar]]] | None = None,
        begun: str | None = None,
    ) -> None:
        self._iteration = pattern(iteration)
        self._values = {name: pattern(text) for name, text in values.items()}
        self._memory = [name for name in values if name.startswith(_MEMORY)]
        self._effective = {name: (pattern(text), of) for name, (text, of) in (effective or {}).items()}
        self._begun = re.compile(begun) if begun else None

    def read(self, line: str) -> list[Said]:
        """What the line tells."""
        _, line = without_prefix(line)
        parts = self._parts(line)
        found = [said for part in parts if (said := self._step(part)) is not None]
        names = self._memory if found else self._values
        if values := self._found(names, line[: len(line) - sum(map(len, parts))] if found else line):
            found = [Said(values=values), *found]
        stated = self._stated(line)
        begun = self._begun is not None and self._begun.search(line) is not None
        return [*found, Said(effective=stated, begun=begun)] if stated or begun else found

    def _parts(self, line: str) -> list[str]:
        starts = [match.start() for match in self._iteration.finditer(line)]
        return [line[start:end] for start, end in zip(starts, [*starts[1:], len(line)], strict=False)]

    def _step(self, part: str) -> Said | None:
        match = self._iteration.search(part)
        count = number(match[1]) if match else None
        if count is None or count != int(count):
            return None
        return Said(iteration=int(count), values=self._found(self._values, part))

    def _found(self, names: Iterable[str], part: str) -> dict[str, float]:
        return in_units({name: value for name in names if (value := self._value(name, part)) is not None})

    def _value(self, name: str, part: str) -> float | None:
        found = [value for match in self._values[name].finditer(part) if (value := number(match[1])) is not None]
        if name in self._memory:
            return max(found, default=None)
        return found[0] if found else None

    def _stated(self, line: str) -> dict[str, Scalar]:
        stated: dict[str, Scalar] = {}
        for name, (compiled, of) in self._effective.items():
            match = compiled.search(line)
            if match is not None:
                stated[name] = of(match[1])
        return stated


class JsonReader:
    """Lines that hold a JSON object; ``keys`` says which key holds what."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._iteration = keys.get(ITERATION, ITERATION)
        self._keys = {name: key for name, key in keys.items() if name != ITERATION}

    def read(self, line: str) -> list[Said]:
        """What the line tells."""
        start = line.find("{")
        if start < 0:
            return []
        try:
            found = json.loads(line[start:])
        except ValueError:
            return []
        return self._said(found) if isinstance(found, dict) else []

    def _said(self, found: Mapping[str, Any]) -> list[Said]:
        named = {name: found[key] for name, key in self._keys.items() if key in found}
        values = {k: float(v) for k, v in named.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        count = found.get(self._iteration)
        iteration = count if isinstance(count, int) and not isinstance(count, bool) else None
        known = in_units(values) if iteration is not None else {}
        stated = {name: value for name, value in named.items() if not in_units({name: 0.0})}
        if iteration is None and not stated:
            return []
        return [Said(iteration=iteration, values=known, effective=stated)]
