"""What all ranks' trainers reported to one rank: its heartbeats, the source that counts for it, its measurement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench_workloads.trainers.adapter import Adapter, ParsedLine
from bench_workloads.trainers.driver import gathering
from bench_workloads.trainers.driver.gathering import Gathered
from bench_workloads.trainers.driver.saved import Saved
from sweep.contract import Measurement, Phase, Progress, RankRun

STEADY_FACTOR = 5.0
"""where a line covers many iterations, the next one is due after this multiple of the last interval"""


class Stopped(NamedTuple):
    """What is measured of a run that has lost."""

    warmup_iterations: int
    iterations: int
    timed: int
    """0: it has lost in its warm-up, whose last iteration is measured"""


class Speakers:
    """What each source (a rank, or a node's torchrun) reported. Sends a heartbeat for every reported iteration."""

    def __init__(self, run: RankRun, progress: Progress, checkpoint_due_s: float = 0.0) -> None:
        self._run = run
        self._progress = progress
        self._of_rank: dict[int, Gathered] = {}
        self._last_heartbeat = -1
        self._begun_at = time.monotonic()
        self.stopped: Stopped | None = None
        self._marks: dict[str, float] = {}
        self._checkpoint_due_s, directory = checkpoint_due_s, run.place.checkpoint_dir
        self._saved = Saved(None if run.place.rank else Path(directory)) if directory else None

    def receive(self, rank: int, parsed: ParsedLine, at_s: float) -> None:
        """Add what one rank's trainer reported, ``at_s`` on the clock of the rank that read it."""
        if self._saved is not None and self._saved.add(parsed, time.monotonic()):
            if parsed.checkpoint or parsed.iteration is not None:
                self._progress.heartbeat(Phase.STEADY, self._last_heartbeat, due_s=self._checkpoint_due_s)
            parsed = ParsedLine(effective=parsed.effective)
        wanted = self.stopped or self._run
        gathered = self._of_rank.setdefault(rank, Gathered(wanted.warmup_iterations, wanted.iterations))
        news = gathered.add(parsed, at_s)
        if parsed.begun and self._last_heartbeat < 0:
            self._progress.heartbeat(Phase.FIRST_ITERATION, 0)
        if news and (count := gathered.count()) > self._last_heartbeat:
            if self._last_heartbeat < 0:
                self._marks["first_iteration_told"] = time.monotonic() - self._begun_at
            self._last_heartbeat = count
            due_s = None
            if gathered.printed_every > 1 and len(gathered.entries) > 1:  # the watchdog sees iterations only
                due_s = STEADY_FACTOR * (gathered.entries[-1].at_s - gathered.entries[-2].at_s)
            self._progress.heartbeat(Phase.STEADY, count, due_s=due_s)

    def lost(self) -> Stopped | None:
        """After which iterations the run has lost by the bound, if it has: by the lowest rank that prints."""
        bound = self._run.place.bound
        source = next((self._of_rank[rank] for rank in sorted(self._of_rank) if self._of_rank[rank].entries), None)
        if bound is None or source is None or not bound.lost(source.before_s(), timed := source.timed_s()):
            return None
        if timed:
            return Stopped(self._run.warmup_iterations, len(timed), len(timed))
        return Stopped(len(source.before_s()) - 1, 1, 0)

    def stop(self, after: Stopped) -> None:
        """The run has lost: its iterations until then are all to measure."""
        self.stopped = after
        for gathered in self._of_rank.values():
            gathered.warmup, gathered.iterations = after.warmup_iterations, after.iterations

    def chosen(self, own_is_over: bool) -> Gathered | None:
        """The source that counts for this rank: its own if it reports iterations, else the lowest rank that is done.

        ``own_is_over``: this rank's trainer has ended.
        """
        own = self._of_rank.get(self._run.place.rank)
        if self.unsaved and not own_is_over:
            return None
        if own is not None and own.entries and not own_is_over and self.stopped is None:
            return own if own.done else None
        done = [self._of_rank[rank] for rank in sorted(self._of_rank) if self._of_rank[rank].done]
        return own if own is not None and own.done else next(iter(done), None)

    @property
    def unsaved(self) -> bool:
        """Whether the run writes a checkpoint that is not whole."""
        return self._saved is not None and self.stopped is None and not self._saved.over

    def most_iterations(self) -> int:
        """The most iterations that any source reported."""
        return max((gathered.count() for gathered in self._of_rank.values()), default=0)

    def measurement(self, chosen: Gathered, adapter: Adapter, versions: Mapping[str, str]) -> Measurement:
        """This rank's measurement: times from the chosen source, memory from its own."""
        own = self._of_rank.get(self._run.place.rank) or Gathered(0, 0)
        allocated, reserved = own.greatest("allocated_bytes"), own.greatest("reserved_bytes")
        effective: dict[str, Any] = {}
        for rank in sorted(self._of_rank, reverse=True):
            effective |= self._of_rank[rank].effective
        compared = gathering.compare(self._run, chosen, adapter.convention)
        missing = gathering.never_matched(adapter.expected(self._run), self._of_rank.values())
        missing += ["the trainer printed no end of its checkpoint"] if self.unsaved else []
        saved: dict[str, Any] = {}
        if self._saved is not None and not self._run.place.rank:
            saved = self._saved.costs(median(chosen.timed_s()))
        return Measurement(
            step_times_s=chosen.timed_s(),
            warmup_times_s=chosen.warmup_s(),
            stopped=None if self.stopped is None else self.stopped.timed,
            peak_allocated_bytes=int(allocated) if allocated else None,
            peak_reserved_bytes=int(reserved) if reserved else None,
            memory_kind="the greatest that the trainer printed",
            # From one rank only: forwarded lines may be one line older, and ranks may print losses of their own rows.
            losses=None if self._run.place.rank else chosen.series("loss"),
            grad_norms=None if self._run.place.rank else chosen.series("grad_norm"),
            versions=versions,
            phases_s=self._marks,
            effective=effective | own.effective,
            extra={**saved, "trainer": compared, "notes": [*gathering.notes(compared, chosen), *missing]},
        )
