"""From parsed lines to the iterations that count, at any print interval; and the trainer's figures, compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench_workloads.trainers.adapter import ParsedLine
from bench_workloads.trainers.driver.reading import SPEEDS, impossible
from sweep.contract import Run, Scalar
from sweep.physics import flops, shapes

_GREATEST = ("step_time_s", "allocated_bytes", "reserved_bytes")
"""of several ranks' values for one iteration the greatest counts; of the others the first"""


TOLERANCE = 0.02
"""relative difference between the trainer's figures and the computed ones from which on a note is added"""


@dataclass
class Entry:
    """One iteration that was reported."""

    number: int
    at_s: float
    """when its line came, on the clock of the rank that read it"""
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Stretch:
    """The iterations that one line covers."""

    place: int
    """of the line among all"""
    span: int
    seconds: float | None
    """of each of them; None for the first line, where the trainer does not report its time"""
    values: dict[str, float]


@dataclass
class Gathered:
    """What one source (a rank, or a node's torchrun) reported so far.

    A line that comes every n-th iteration covers n iterations of equal length: only their mean is known.
    """

    warmup: int
    iterations: int
    entries: list[Entry] = field(default_factory=list)
    effective: dict[str, Scalar] = field(default_factory=dict)
    before: Entry = field(default_factory=lambda: Entry(0, 0.0))
    """values reported before any iteration, also by ranks that report none: memory still counts"""
    dropped: dict[str, list[float]] = field(default_factory=dict)
    """name -> values that no run can have, such as the MFU of -100 % that nanoGPT prints until it knows one"""

    def add(self, parsed: ParsedLine, at_s: float) -> bool:
        """Add a parsed line. True where it reports a new iteration."""
        self.effective.update(parsed.effective)
        wrong = {name: value for name, value in parsed.values.items() if impossible(name, value)}
        for name, value in wrong.items():
            self.dropped.setdefault(name, []).append(value)
        parsed = replace(parsed, values={name: v for name, v in parsed.values.items() if name not in wrong})
        last = self.entries[-1] if self.entries else None
        if parsed.iteration is None:
            self._merge(last or self.before, parsed)
            return False
        if last is not None and parsed.iteration <= last.number:
            entry = next((e for e in reversed(self.entries) if e.number == parsed.iteration), None)
            if entry is not None:
                self._merge(entry, parsed)
            return False
        self.entries.append(Entry(parsed.iteration, at_s, dict(parsed.values)))
        return True

    @property
    def names(self) -> set[str]:
        """What was ever reported, by any line."""
        values = {name for entry in (self.before, *self.entries) for name in entry.values}
        return values | set(self.effective) | set(self.dropped)

    @property
    def done(self) -> bool:
        """Whether all iterations to be timed were reported."""
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

    def warmup_s(self) -> list[float]:
        """Seconds of the iterations before, where known."""
        return [seconds for seconds in self.before_s() if seconds]

    def before_s(self) -> list[float]:
        """The same from the first iteration on, 0 where not known."""
        timed = {stretch.place for stretch in self._timed()}
        return [s.seconds or 0.0 for s in self._stretches() if s.place not in timed for _ in range(s.span)]

    def wall_s(self) -> float | None:
        """Seconds per timed iteration by the arrival of their lines; None where the line before is not known."""
        timed = self._timed()
        if not timed or not timed[0].place:
            return None
        before, last = self.entries[timed[0].place - 1], self.entries[timed[-1].place]
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
        entries = (self.before, *self.entries)
        return max((entry.values[name] for entry in entries if name in entry.values), default=None)

    def series(self, name: str) -> list[float] | None:
        """One value per line, warm-up included; None where not every line has it.

        The last one may still be pending, where it is on a separate line.
        """
        timed = self._timed()
        needed = self.entries[: timed[-1].place + 1] if timed else self.entries
        found = [entry.values[name] for entry in needed if name in entry.values]
        whole = all(name in entry.values for entry in needed[:-1])
        return found if found and whole else None

    @staticmethod
    def _merge(entry: Entry, parsed: ParsedLine) -> None:
        for name, value in parsed.values.items():
            known = entry.values.setdefault(name, value)
            if name in _GREATEST:
                entry.values[name] = max(known, value)

    def _stretches(self) -> Iterator[Stretch]:
        """The lines; of several at the same time the last: a progress bar may be late, then catch up."""
        before: Entry | None = None
        for place, (entry, later) in enumerate(zip(self.entries, [*self.entries[1:], None], strict=False)):
            if later is None or later.at_s > entry.at_s or "step_time_s" in entry.values:
                span = entry.number - before.number if before else max(1, entry.number)
                interval_s = (entry.at_s - before.at_s) / span if before else None
                yield Stretch(place, span, entry.values.get("step_time_s", interval_s), entry.values)
                before = entry

    def _timed(self) -> list[Stretch]:
        """The lines that report timed iterations: all after the warm-up, as many as are needed."""
        found: list[Stretch] = []
        gone = counted = 0
        for stretch in self._stretches():
            if gone >= self.warmup and stretch.seconds is not None and counted < self.iterations:
                found.append(stretch)
                counted += stretch.span
            gone += stretch.span
        return found


def compare(run: Run, gathered: Gathered, convention: str) -> dict[str, Any]:
    """The trainer's own medians (``reported``), the same from its step times (``computed``), and where they differ."""
    median = statistics.median(gathered.timed_s())
    computed = _computed(run, median, convention)
    reported = {name: value for name in SPEEDS if (value := gathered.median(name)) is not None}
    disagreements = [
        f"{name}: the trainer reports {reported[name]:.6g}, its steps give {computed[name]:.6g}"
        for name in reported
        if name in computed and _differ(reported[name], computed[name])
    ]
    wall_s = gathered.wall_s()
    if wall_s is not None and _differ(wall_s, mean := statistics.fmean(gathered.timed_s())):
        disagreements.append(f"step_time_s: the trainer's mean is {mean:.6g}, its lines came every {wall_s:.6g}")
    return {
        "wall_s_per_iteration": wall_s,
        "reported": reported,
        "computed": {name: computed[name] for name in reported if name in computed},
        "disagreements": disagreements,
        "printed_every": gathered.printed_every,
    }


def notes(compared: Mapping[str, Any], gathered: Gathered) -> list[str]:
    """What is unusual about a measurement, as text: disagreements, iterations without a step, impossible values."""
    count = gathered.skipped()
    skipped = (
        f"{count} of {gathered.iterations} timed iterations skipped the optimizer's step, as gradients overflowed: "
        "more warmup_iterations let the loss scale settle"
    )
    impossible_values = [
        f"{name}: {len(values)} impossible {'value' if len(values) == 1 else 'values'} left out, such as "
        f"{f'{100 * values[0]:g}%' if name == 'mfu' else f'{values[0]:g}'}"
        for name, values in sorted(gathered.dropped.items())
    ]
    return [*compared["disagreements"], *([skipped] if count else []), *impossible_values]


def never_matched(expected: Mapping[str, str], sources: Iterable[Gathered]) -> list[str]:
    """What the user's own patterns should find and no line had. ``expected``: our name -> the name in the grid."""
    seen = {name for gathered in sources for name in gathered.names}
    return [
        f"params.metrics: {given!r} matched no line of the trainer's output"
        for name, given in expected.items()
        if name not in seen
    ]


def _computed(run: Run, median_s: float, convention: str) -> dict[str, float]:
    rate = run.global_batch_tokens / median_s
    found = {
        "step_time_s": median_s,
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": rate / run.gpus,
        "samples_per_second": rate / run.sequence_length,
    }
    if run.shape and convention:
        shape = shapes.ModelShape(**run.shape)  # type: ignore[arg-type]
        counted = flops.CONVENTIONS[convention]
        per_token = flops.model_flops_per_token(shape, run.sequence_length, counted)
        found["tflops_per_gpu"] = rate / run.gpus * per_token / 1e12
    return found


def _differ(a: float, b: float) -> bool:
    return abs(a - b) > TOLERANCE * max(abs(a), abs(b))
