"""A sweep that others write to: its state, plans and search results, kept up to date."""

from __future__ import annotations

import hashlib
import math
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sweep.planning.runs import PlannedRun
from sweep.state.state import SweepState
from sweep.state.tally import Tally
from sweep.store import lease
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader
from sweep.store.snapshot import Skipped, Snapshot, load, save
from sweep.store.sweep import Sweep, open_sweep
from sweep.version import __version__

if TYPE_CHECKING:
    from sweep.search.node_groups import GroupedSearch

WORTH_EVENTS = 5000
"""a snapshot is written after this many new events"""
WORTH_RUNS = 2000
"""a sweep with this many runs is large: its search result is stored"""
STORE_S = 60.0
"""longest interval between the launcher's snapshots of a large running sweep"""


def read_state(directory: SweepDir) -> SweepState:
    """The current state of a sweep. Stores a snapshot if much had to be read."""
    stored = load(directory)
    reader, sweep_state = JournalReader(directory, stored.offsets), stored.sweep_state
    events = reader.new_events()
    sweep_state.apply_all(events)
    if len(events) >= WORTH_EVENTS:
        _write_snapshot(directory, reader, sweep_state)
    return sweep_state


def _write_snapshot(
    directory: SweepDir, reader: JournalReader, sweep_state: SweepState, skipped: Skipped | None = None
) -> None:
    once = replace(sweep_state, touched=list(dict.fromkeys(sweep_state.touched)))
    save(directory, Snapshot(offsets=reader.offsets, sweep_state=once, skipped=skipped))


class FollowedSweep:
    """A sweep's plans, state, search and sums: starts from the snapshot, and reads new events at each `refresh`.

    ``max_age_s``: how old a search result may be while a pilot is open; later ends are then not considered.
    """

    def __init__(self, sweep: Sweep, *, max_age_s: float = 0.0) -> None:
        stored = load(sweep.directory)
        self.sweep_state = stored.sweep_state
        """the state, as of the last `refresh`"""
        self._reader = JournalReader(sweep.directory, stored.offsets)
        self._unstored = 0
        """events that came after the snapshot"""
        self._stored_at = time.monotonic()
        self._max_age_s = max_age_s
        self._answer = self._stored_answer = stored.skipped
        self._answered_at = len(self.sweep_state.touched)
        self._use(sweep)

    def _use(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._planned = {planned.run_id: planned for planned in sweep.runs}
        self._search: GroupedSearch | None = None
        self._question = _question(sweep)
        gpus = {group: part.gpus_per_node for group, part in sweep.site.parts.items()}
        self._tally = Tally(sweep.runs, gpus, serial=sweep.executor == "local")

    @property
    def tally(self) -> Tally:
        """The sums over the runs."""
        return self._tally.update(self.sweep_state)

    def to_remeasure(self, share: float) -> list[str]:
        """The first runs of top configurations that have no repeat, as of the last `refresh`."""
        return self._made_search().to_remeasure(self.sweep_state, share)

    @property
    def large(self) -> bool:
        """Is it large enough to store the search result?"""
        return len(self.sweep.runs) >= WORTH_RUNS

    def planned(self, run_id: str) -> PlannedRun | None:
        """The run of that name, if a known plan has it."""
        return self._planned.get(run_id)

    def refresh(self, *, resting: bool = False) -> None:
        """Read what was appended to the journals. Raises OSError, and then has read nothing.

        ``resting``: of journals that did not grow for a while, too.
        """
        events = self._reader.new_events(resting=resting)
        self.sweep_state.apply_all(events)
        self._unstored += len(events)

    def refresh_plans(self) -> None:
        """Add the runs of further plans. Raises OSError, SweepError."""
        if tuple(self.sweep.directory.plans()) != self.sweep.plans:
            self._use(open_sweep(self.sweep.directory.path))

    def asked_for(self) -> Sequence[PlannedRun]:
        """The plan's runs, except those that the strategy or the budget excludes."""
        return self._made_search().asked_for(self.sweep_state)

    def skipped(self) -> Mapping[str, str]:
        """run_id -> why it must not start (``Search.skipped``), as currently known."""
        runs, answer = self.sweep_state.runs, self._answer
        if answer is not None and answer.question == self._question and self._answer_holds(answer):
            return answer.words
        if all(run.run_id in runs and runs[run.run_id].attempts for run in self.sweep.runs):
            return {}  # each has started: no search is needed
        words = dict(self._made_search().skipped(self.sweep_state))
        self._answer = Skipped(question=self._question, at=time.time(), words=words)
        self._answered_at = len(self.sweep_state.touched)
        return words

    @property
    def at_rest(self) -> bool:
        """No pilot is open, and nothing runs or waits that a launcher would submit pilots for.

        Where no launcher runs, no process asks the scheduler for pilots: their own last lines count.
        """
        found = self.tally.counts(self.skipped())
        if found.get("running") or (found.get("waiting") and not self.sweep_state.cancelled):
            return False
        still = [pilot for pilot in self.sweep_state.pilots.values() if pilot.open]
        own = all(pilot.ended is not None for pilot in still)
        return not still or (own and lease.holder(self.sweep.directory) is None)

    def store_if_due(self) -> None:
        """Write a snapshot if many events came after the last one. For the launcher, which does so for all readers."""
        due = self.large and self._unstored and time.monotonic() - self._stored_at > STORE_S
        if self._unstored >= WORTH_EVENTS or due:
            self.store()

    def store(self) -> None:
        """Write a snapshot; for a large sweep with the current search result."""
        if self.large:
            self.skipped()
        self._store()

    def store_what_was_found(self) -> None:
        """Write a snapshot after one update, if reading or searching took long. Not while a launcher runs."""
        searched = self._answer is not self._stored_answer
        at_rest = not any(pilot.open for pilot in self.sweep_state.pilots.values())
        if self._unstored >= WORTH_EVENTS or (self.large and searched and at_rest):
            self._store()

    def _store(self) -> None:
        current = self._answer if self._answered_at == len(self.sweep_state.touched) else None
        _write_snapshot(self.sweep.directory, self._reader, self.sweep_state, current)
        self._unstored, self._stored_at = 0, time.monotonic()

    def _answer_holds(self, answer: Skipped) -> bool:
        if self._answered_at == len(self.sweep_state.touched):
            return True
        fresh = time.time() - answer.at < self._max_age_s
        return fresh and any(pilot.open for pilot in self.sweep_state.pilots.values())

    def _made_search(self) -> GroupedSearch:
        if self._search is None:
            from sweep.search.node_groups import GroupedSearch  # a third of a status that needs no search

            sweep = self.sweep
            grid = sweep.grid
            gpus = {group: part.hardware for group, part in sweep.site.parts.items()}
            self._search = GroupedSearch(sweep.runs, gpus, grid.strategy, grid.limits)
        return self._search


def _question(sweep: Sweep) -> str:
    """A digest of all inputs of the search, except the runs' events."""
    of = [__version__, sweep.grid.strategy, repr(sweep.grid.budget)]
    of += [repr(part.hardware) for part in sweep.site.parts.values()]
    digest = hashlib.sha256("\n".join(of + [run.run_id for run in sweep.runs]).encode())
    digest.update(array("d", [math.nan if run.predicted_s is None else run.predicted_s for run in sweep.runs]))
    return digest.hexdigest()
