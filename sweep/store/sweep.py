"""A sweep: what was written once in its directory, and its state, which others' journals change."""

from __future__ import annotations

import hashlib
import math
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet

from sweep.errors import Mistake, SweepError
from sweep.files import MAX_DEPTH, check_rows
from sweep.inputs.grid import Grid
from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site, parse_site
from sweep.planning.runs import RUN_COLUMNS, PlannedRun, runs_of_all, runs_on
from sweep.state.retries import OUTSIDE
from sweep.state.state import SweepState
from sweep.state.tally import Tally
from sweep.store import lease
from sweep.store.directory import Provenance, SweepDir, find_sweep
from sweep.store.journal import JournalReader
from sweep.store.snapshot import WORTH_EVENTS, Skipped, Snapshot, load, save
from sweep.version import __version__

if TYPE_CHECKING:
    from sweep.search.search import Search

WORTH_RUNS = 2000
"""a sweep with this many runs is large: its search result is stored"""
STORE_S = 60.0
"""longest interval between the launcher's snapshots of a large running sweep"""
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
"""raises ValueError; creates no values"""


@dataclass(eq=False)
class Sweep:
    """An existing sweep: the files written there once, and its state, search and sums as of the last `refresh`.

    Journals are read at first use, from the snapshot on.
    """

    directory: SweepDir
    grid: Grid
    """the grid in effect: the sweep's name, the models of all its grids, the settings of the last one"""
    site: Site
    executor: str
    sweep_id: str
    """unique: pilots' tokens begin with it"""
    runs: tuple[PlannedRun, ...]
    plans: tuple[Path, ...] = ()
    """the files that the runs are from: one, and one more for each extension"""
    grids: tuple[Grid, ...] = ()
    """the grid of each plan"""
    copy_of: str = ""
    """the sweep_id of the original, where the directory was a copy: pilots with its tokens are not this sweep's"""
    max_age_s: float = 0.0
    """how old a search result may be while a pilot is open; later ends are then not considered"""

    def __post_init__(self) -> None:
        self._reader: JournalReader | None = None
        self._sweep_state = SweepState()
        self._answer: Skipped | None = None
        self._stored_answer: Skipped | None = None
        self._answered_at = 0
        """events of runs that the answer considers"""
        self._unstored = 0
        """events that came after the snapshot"""
        self._stored_at = time.monotonic()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {word}" for word, count in self.tally.counts(self.skipped()).items())
        return f"<sweep {self.grid.name} in {self.directory.path}: {self.tally.total:,} runs: {counts}>"

    @property
    def sweep_state(self) -> SweepState:
        """The state, as of the last `refresh`, or else of now. Raises OSError where that cannot be read."""
        if self._reader is None:
            self.refresh()
        return self._sweep_state

    def refresh(self, *, resting: bool = False) -> None:
        """Read what was appended to the journals. Raises OSError, and then has read nothing.

        ``resting``: of journals that did not grow for a while, too.
        """
        if self._reader is None:
            stored = load(self.directory)
            reader = JournalReader(self.directory, stored.offsets)
            events = reader.new_events(resting=resting)
            self._reader, self._sweep_state = reader, stored.sweep_state
            self._answer = self._stored_answer = stored.skipped
            self._answered_at = len(self._sweep_state.touched)
        else:
            events = self._reader.new_events(resting=resting)
        self._sweep_state.apply_all(events)
        self._unstored += len(events)

    def refresh_plans(self) -> None:
        """Add the runs of further plans. Raises OSError, SweepError."""
        if tuple(self.directory.plans()) != self.plans:
            later = _opened(self.directory)
            self.grid, self.site, self.runs = later.grid, later.site, later.runs
            self.plans, self.grids = later.plans, later.grids
            for derived in ("_planned", "_searches", "_question", "_tally"):
                self.__dict__.pop(derived, None)

    @cached_property
    def _tally(self) -> Tally:
        gpus = {group: part.gpus_per_node for group, part in self.site.parts.items()}
        return Tally(self.runs, gpus, serial=self.executor == "local")

    @property
    def tally(self) -> Tally:
        """The sums over the runs."""
        return self._tally.update(self.sweep_state)

    @cached_property
    def _planned(self) -> Mapping[str, PlannedRun]:
        return {planned.run_id: planned for planned in self.runs}

    def planned(self, run_id: str) -> PlannedRun | None:
        """The run of that name, if a known plan has it."""
        return self._planned.get(run_id)

    @property
    def large(self) -> bool:
        """Is it large enough to store the search result?"""
        return len(self.runs) >= WORTH_RUNS

    @cached_property
    def _searches(self) -> Sequence[Search]:
        """Of each node group, with a budget of its own: nothing that was measured on one's GPUs holds for another's."""
        from sweep.search.search import Search  # a third of a status that needs no search

        strategy, limits = self.grid.strategy, self.grid.limits
        groups = ((runs_on(self.runs, group), part.hardware) for group, part in self.site.parts.items())
        return [Search(runs, gpu, strategy, limits) for runs, gpu in groups]

    @cached_property
    def _question(self) -> str:
        """A digest of all inputs of the search, except the runs' events."""
        of = [__version__, self.grid.strategy, repr(self.grid.limits)]
        of += [repr(part.hardware) for part in self.site.parts.values()]
        digest = hashlib.sha256("\n".join(of + [run.run_id for run in self.runs]).encode())
        digest.update(array("d", [math.nan if run.predicted_s is None else run.predicted_s for run in self.runs]))
        return digest.hexdigest()

    def to_remeasure(self, share: float) -> list[str]:
        """The first runs of top configurations that have no repeat, as of the last `refresh`: the best two of the cells
        of every node group, then the others (``sweep.search.remeasure.to_repeat``).
        """
        wanted = [each for search in self._searches for each in search.to_remeasure(self.sweep_state, share)]
        return [run_id for _, run_id in sorted(wanted, key=lambda each: each[0])]

    def unmeasured(self) -> list[str]:
        """The runs that stay without a measurement, by failures that were not their own, until a person resumes."""
        return self.tally.ended_as(OUTSIDE)

    def asked_for(self) -> Sequence[PlannedRun]:
        """The plan's runs, except those that the strategy or the budget excludes."""
        out = self.skipped()
        return [run for run in self.runs if run.run_id not in out] if out else self.runs

    def skipped(self) -> Mapping[str, str]:
        """run_id -> why it must not start (``Search.skipped``), as currently known."""
        sweep_state, answer = self.sweep_state, self._answer
        if answer is not None and answer.question == self._question and self._answer_holds(answer):
            return answer.words
        runs = sweep_state.runs
        if all(run.run_id in runs and runs[run.run_id].attempts for run in self.runs):
            return {}  # each has started: no search is needed
        words = {run: word for one in self._searches for run, word in one.skipped(sweep_state).items()}
        self._answer = Skipped(question=self._question, at=time.time(), words=words)
        self._answered_at = len(sweep_state.touched)
        return words

    def missed(self) -> Mapping[str, tuple[float, float]]:
        """run_id -> (expected gain, chance that it is worth it), for the same (``Search.missed``)."""
        return {run: lost for one in self._searches for run, lost in one.missed(self.sweep_state).items()}

    def _answer_holds(self, answer: Skipped) -> bool:
        if self._answered_at == len(self.sweep_state.touched):
            return True
        fresh = time.time() - answer.at < self.max_age_s
        return fresh and any(pilot.open for pilot in self.sweep_state.pilots.values())

    @property
    def at_rest(self) -> bool:
        """No pilot is open, and nothing runs or waits that a launcher would submit pilots for.

        Where no launcher runs, no process asks the scheduler for pilots: their own last lines count.
        """
        counts = self.tally.counts(self.skipped())
        if counts.get("running") or (counts.get("waiting") and not self.sweep_state.cancelled):
            return False
        still = [pilot for pilot in self.sweep_state.pilots.values() if pilot.open]
        own = all(pilot.ended is not None for pilot in still)
        return not still or (own and lease.holder(self.directory) is None)

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
        sweep_state, reader = self.sweep_state, self._reader
        assert reader is not None, "its state was read"
        current = self._answer if self._answered_at == len(sweep_state.touched) else None
        save(self.directory, Snapshot(offsets=reader.offsets, sweep_state=sweep_state, skipped=current))
        self._unstored, self._stored_at = 0, time.monotonic()


def open_sweep(path: Path | str) -> Sweep:
    """The sweep in a directory. Raises SweepError where there is none."""
    directory = find_sweep(Path(path))
    try:
        return _opened(directory)
    except OSError as error:
        file = str(error.filename or directory.path)
        fact = f"cannot be read: {error.strerror or str(error).splitlines()[0]}"
        raise SweepError(Mistake(fact, file=file, remedy="it is written once: restore it")) from error


def _opened(directory: SweepDir) -> Sweep:
    try:
        provenance = msgspec.json.decode(directory.provenance.read_bytes(), type=Provenance)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(directory.provenance, error) from error
    plans = tuple(directory.plans())
    grids = tuple(parse_grid(_text(path), str(path), opens=False) for path in map(directory.grid_of, plans))
    models = {name: shape for grid in grids for name, shape in grid.models.items()}
    return Sweep(
        directory,
        grids[-1].model_copy(update={"name": grids[0].name, "models": models}),
        parse_site(_text(directory.site), str(directory.site)),
        provenance.executor,
        provenance.sweep_id,
        runs_of_all(map(_table, plans)),
        plans,
        grids,
        provenance.copy_of,
    )


def _damaged(path: Path, error: Exception) -> SweepError:
    fact = f"cannot be read: {(str(error) or repr(error)).splitlines()[0]}"
    return SweepError(Mistake(fact, file=str(path), remedy="it is written once: restore it"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(path, error) from error


def _table(plan: Path) -> pyarrow.Table:
    try:
        # read_table would import pyarrow.dataset, and with it pandas: a quarter of a second.
        file = pyarrow.parquet.ParquetFile(plan, page_checksum_verification=True)
        check_rows(file, plan)
        missing = set(RUN_COLUMNS) - set(file.schema_arrow.names)
        if missing:
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
        table = file.read(columns=list(RUN_COLUMNS))
        ids = table["run_id"]
        if ids.slice(len(ids) - ids.null_count).null_count < ids.null_count:
            raise ValueError("its runs are not its first rows, in their order")
        texts = [text for text in table["run_json"].to_pylist() if text]
        if any(text.count("[") + text.count("{") > MAX_DEPTH for text in texts):
            raise ValueError("a run's JSON has too many lists or objects")
        for text in texts:
            _check_json(text)
        return table
    except (pyarrow.ArrowException, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the file system, not of the content
            raise
        raise _damaged(plan, error) from error
