"""From what lines told to the iterations that count: warm-up and timed ones, whatever the trainer prints how often."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench_workloads.trainers.adapter import Said
from sweep.contract import Scalar

_GREATEST = ("step_time_s", "allocated_bytes", "reserved_bytes")
"""of several ranks' words on one iteration the greatest counts; of the others the first"""


@dataclass
class Entry:
    """One iteration that was told of."""

    number: int
    at_s: float
    """when its line came, on the clock of the rank that read it"""
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Stretch:
    """The iterations that one line stands for."""

    span: int
    seconds: float | None
    """of each of them; None for the first line, where the trainer does not say how long it took"""
    values: dict[str, float]


@dataclass
class Gathered:
    """What one speaker (a rank, or a node's torchrun) told so far.

    A line that comes every n-th iteration stands for n iterations of equal length: the mean is all that is known.
    """

    warmup: int
    iterations: int
    entries: list[Entry] = field(default_factory=list)
    effective: dict[str, Scalar] = field(default_factory=dict)
    before: Entry = field(default_factory=lambda: Entry(0, 0.0))
    """values told before any iteration, by ranks that tell of none too: memory counts all the same"""

    def add(self, said: Said, at_s: float) -> bool:
        """Take it in. True where it is news of an iteration."""
        self.effective.update(said.effective)
        last = self.entries[-1] if self.entries else None
        if said.iteration is None:
            self._merge(last or self.before, said)
            return False
        if last is not None and said.iteration <= last.number:
            entry = next((e for e in reversed(self.entries) if e.number == said.iteration), None)
            if entry is not None:
                self._merge(entry, said)
            return False
        self.entries.append(Entry(said.iteration, at_s, dict(said.values)))
        return True

    @property
    def done(self) -> bool:
        """All iterations that are to be timed were told of."""
        return len(self.timed_s()) >= self.iterations

    @property
    def printed_every(self) -> int:
        """Iterations per line."""
        return max((stretch.span for stretch in self._stretches()), default=1)

    def count(self) -> int:
        """Iterations that ended."""
        return sum(stretch.span for stretch in self._stretches())

    def timed_s(self) -> list[float]:
        """Seconds of the timed iterations."""
        seconds = [s.seconds for s in self._timed() for _ in range(s.span) if s.seconds is not None]
        return seconds[: self.iterations]

    def warm_s(self) -> list[float]:
        """Seconds of the iterations before, those that are known."""
        timed = {id(stretch.values) for stretch in self._timed()}
        before = [s for s in self._stretches() if id(s.values) not in timed and s.seconds is not None]
        return [s.seconds for s in before for _ in range(s.span) if s.seconds is not None]

    def wall_s(self) -> float | None:
        """Seconds per timed iteration by when their lines came; None where the line before is not known."""
        timed = self._timed()
        places = [i for i, entry in enumerate(self.entries) if any(entry.values is s.values for s in timed)]
        if not places or not places[0]:
            return None
        before, last = self.entries[places[0] - 1], self.entries[places[-1]]
        return (last.at_s - before.at_s) / (last.number - before.number)

    def median(self, name: str) -> float | None:
        """The trainer's own figure, median over the timed lines."""
        found = [stretch.values[name] for stretch in self._timed() if name in stretch.values]
        return statistics.median(found) if found else None

    def skipped(self) -> int:
        """Timed iterations without a step of the optimizer, by the trainer's own count."""
        return int(sum(min(s.span, s.values.get("skipped_iterations", 0)) for s in self._timed()))

    def greatest(self, name: str) -> float | None:
        """The greatest of a figure so far."""
        told = (self.before, *self.entries)
        return max((entry.values[name] for entry in told if name in entry.values), default=None)

    def series(self, name: str) -> list[float] | None:
        """One value per line, warm-up included; None where not every line has it.

        The last one may still be on its way, where it stands on a line of its own.
        """
        needed = self.entries[: self._lines_needed()]
        found = [entry.values[name] for entry in needed if name in entry.values]
        whole = all(name in entry.values for entry in needed[:-1])
        return found if found and whole else None

    @staticmethod
    def _merge(entry: Entry, said: Said) -> None:
        for name, value in said.values.items():
            known = entry.values.setdefault(name, value)
            if name in _GREATEST:
                entry.values[name] = max(known, value)

    def _stretches(self) -> Iterator[Stretch]:
        before: Entry | None = None
        for entry in self._told_apart():
            span = entry.number - before.number if before else max(1, entry.number)
            heard = (entry.at_s - before.at_s) / span if before else None
            yield Stretch(span, entry.values.get("step_time_s", heard), entry.values)
            before = entry

    def _told_apart(self) -> Iterator[Entry]:
        """The lines, but of those that came at one moment the last: a progress bar may be late, and then catch up."""
        for entry, later in zip(self.entries, [*self.entries[1:], None], strict=False):
            if later is None or later.at_s > entry.at_s or "step_time_s" in entry.values:
                yield entry

    def _timed(self) -> list[Stretch]:
        """The lines that tell of timed iterations: all after the warm-up, as many as are needed."""
        found: list[Stretch] = []
        gone = counted = 0
        for stretch in self._stretches():
            if gone >= self.warmup and stretch.seconds is not None and counted < self.iterations:
                found.append(stretch)
                counted += stretch.span
            gone += stretch.span
        return found

    def _lines_needed(self) -> int:
        timed = self._timed()
        if not timed:
            return len(self.entries)
        last = timed[-1].values
        return next(i for i, entry in enumerate(self.entries) if entry.values is last) + 1
