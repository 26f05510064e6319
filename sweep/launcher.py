"""The launcher: submits pilots, watches them, tops them up, and sets straight what a dead pilot left.

It may be killed at any moment: what it knows is in the journals, and `sweep resume` begins where it was.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sweep import snapshot
from sweep.diagnose import Facts, diagnose
from sweep.executors import EXECUTORS, Executor, JobState, JobStatus, PilotRequest, SubmitError
from sweep.grid import Grid
from sweep.lease import Lease
from sweep.outcomes import Outcome
from sweep.pilot.order import PilotOrder
from sweep.pilot.watchdog import Limits
from sweep.plan import PlannedRun
from sweep.records import build_record
from sweep.search import waiting
from sweep.site import Site
from sweep.state import Attempt, PilotState, World
from sweep.store import Journal, SweepDir, claims_of
from sweep.sweeps import Sweep
from sweep.tally import typical_run_s
from sweep.topup import Capacity, Wanted, barren_widths, nodes_to_avoid, pilots_wanted

ALIVE_S = 20.0
"""how often the journal says that the launcher lives, at least"""
MAX_BACK_OFF_S = 300.0
DEFAULT_ATTEMPT_S = 900.0
REFUSED_S = 2.0
LOOK_S = 0.5
"""how often the journals are looked at; the scheduler is asked far less often"""
TOP_UP_SHARE = 0.02
"""of a core that may go into finding out which pilots are wanted: it grows with the runs of the sweep"""
NOTHING_S = 0.01
"""what that takes in a small sweep"""
CANCEL_AGAIN_S = 30.0
SILENT_S = 45.0
"""a pilot that runs, says nothing for so long and has work to do has lost its leader: its job would stay for ever"""
HUNG_S = 15.0
"""a step that took so long, or was refused, waited for the file system: pilots' signs of life were held up as well"""
VISIBLE_S = 5.0
"""how long a gone pilot's last lines may take to be seen through the shared file system"""


class StuckError(Exception):
    """Nothing more can be done without the user: the scheduler refuses for good, or pilots cannot work."""


def executor_of(sweep: Sweep) -> Executor:
    """The executor that a sweep was begun with."""
    module, attribute = EXECUTORS[sweep.executor].split(":")
    executor: Executor = getattr(importlib.import_module(module), attribute)(sweep.site, sweep.directory.path)
    return executor


def limits_of(grid: Grid) -> Limits:
    """The grid's timeouts, as a pilot's limits."""
    timeouts = grid.timeouts
    return Limits(
        start_s=timeouts.start,
        first_iteration_s=timeouts.first_iteration,
        steady_s=timeouts.steady,
        attempt_s=grid.max_run_time or DEFAULT_ATTEMPT_S,
    )


def capacity_of(grid: Grid, site: Site, executor: str, world: World) -> Capacity:
    """What the site allows now, with what is known of how long a run takes."""
    return Capacity(
        max_pilots=site.max_pilots,
        pilot_time_s=site.pilot_time_s,
        run_s=typical_run_s(world),
        attempt_s=limits_of(grid).attempt_s,
        max_runs_per_pilot=site.max_runs_per_pilot,
        side_by_side=executor != "local",
        now=time.time(),
    )


class Launcher:
    """One launcher session. `look` after each step may show the world to the user."""

    def __init__(self, sweep: Sweep, lease: Lease, executor: Executor) -> None:
        self._sweep = sweep
        self._directory: SweepDir = sweep.directory
        self._lease = lease
        self._executor = executor
        self._journal = Journal(self._directory.journal(lease.writer))
        self.world, self._reader = snapshot.begin(self._directory)
        self._fresh = 0
        """events beyond the snapshot"""
        self._kept_at = time.monotonic()
        self._gone_since: dict[str, float] = {}
        self._heard: dict[str, tuple[int, float]] = {}
        self._same_nodes: set[int] = set()
        """widths for which the cluster has no other nodes than those that failed"""
        self._ask_again_at: dict[str, float] = {}
        self._said_at = 0.0
        self._poll_after = 0.0
        self._submit_after = 0.0
        self._top_up_after = 0.0
        self._back_off_s = 5.0
        self._runs = {planned.run_id: planned for planned in sweep.runs}
        self._poll_s = sweep.site.poll_interval_s if sweep.executor == "slurm" else 0.5
        self._tell("session", epoch=lease.epoch, host=platform.node(), pid=os.getpid())

    @property
    def done(self) -> bool:
        """Nothing waits (or may begin) and no pilot is open."""
        open_pilots = any(pilot.open for pilot in self.world.pilots.values())
        return not open_pilots and (self.world.cancelled or not waiting(self._asked_for(), self.world))

    def run(self, look: Callable[[World], None]) -> None:
        """Watch and top up until all is done; a file system that refuses is waited for.

        Raises StuckError, LeaseLostError.
        """
        while not (self._patient_step(look) and self.done):
            self._check_stuck()
            time.sleep(LOOK_S)
        self._lease.check()  # results and figures are the holder's to draw
        self.close()

    def _patient_step(self, look: Callable[[World], None]) -> bool:
        """One step and a look at it. False where the file system refused: then nothing is known to be as it was."""
        try:
            self.step()
        except OSError as error:
            self._heard.clear()
            print(f"the sweep directory refuses, trying again: {error}", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(REFUSED_S)
            return False
        look(self.world)
        return True

    def step(self) -> None:
        """One look and what follows from it."""
        self._renew()
        began = time.monotonic()
        self._refresh()
        if time.monotonic() - began > HUNG_S:
            self._heard.clear()  # a pilot is not silent because it was not listened to
        self._close_ended()
        if time.monotonic() >= self._poll_after:
            self._poll()
            self._poll_after = time.monotonic() + self._poll_s
        if self.world.cancelled:
            self._cancel_open()
        else:
            self._top_up()
        if time.time() - self._said_at > ALIVE_S:
            self._lease.check()
            self._tell("alive")

    def close(self) -> None:
        """End the session: the lease is free from here on."""
        self._tell("session_end")
        if len(self._runs) >= snapshot.WORTH_RUNS:
            self._keep(with_answers=True)
        self._journal.close()

    def cancel(self, timeout_s: float, look: Callable[[World], None]) -> bool:
        """Stop pilots and wait until they are gone. True if all are."""
        self._tell("cancel")
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._patient_step(look) and self.done:
                return True
            time.sleep(LOOK_S)
        return False

    def _renew(self) -> None:
        """Runs that `sweep extend` added meanwhile are this session's too."""
        sweep = self._sweep.renewed()
        if sweep is not self._sweep:
            self._sweep, self._runs = sweep, {planned.run_id: planned for planned in sweep.runs}

    def _refresh(self) -> None:
        fresh = self._reader.new_events()
        self.world.apply_all(fresh)
        self._fresh += len(fresh)
        large = len(self._runs) >= snapshot.WORTH_RUNS
        due = large and self._fresh > 0 and time.monotonic() - self._kept_at > snapshot.KEEP_S
        if due or self._fresh >= snapshot.WORTH_EVENTS:
            self._keep(with_answers=large)

    def _keep(self, *, with_answers: bool) -> None:
        if with_answers:
            self._sweep.left_out(self.world)
        snapshot.keep(self._directory, self.world, self._reader)
        self._fresh, self._kept_at = 0, time.monotonic()

    def _tell(self, event: str, **values: Any) -> None:
        line = {"event": event, "time": time.time(), **values}
        self._journal.append(line)
        self._said_at = line["time"]
        self._refresh()

    def _close_ended(self) -> None:
        """A pilot that said its last word has recorded all it did: no need to ask the scheduler."""
        for pilot in [p for p in self.world.pilots.values() if p.open and p.ended is not None]:
            self._settle(pilot, JobStatus(state=JobState.GONE, word="ENDED", reason=pilot.ended or ""))

    def _poll(self) -> None:
        """Ask the scheduler once for all open pilots; settle those that are gone."""
        pilots = [pilot for pilot in self.world.pilots.values() if pilot.open]
        submitted = {pilot.job_id: pilot for pilot in pilots if pilot.job_id is not None}
        statuses = self._executor.poll(list(submitted)) if submitted else {}
        for job_id, pilot in submitted.items():
            self._judge(pilot, statuses.get(job_id, JobStatus(state=JobState.UNKNOWN)))
        for pilot in pilots:
            if pilot.job_id is None and pilot.token:
                self._look_for(pilot)
        self._settle_late()

    def _look_for(self, pilot: PilotState) -> None:
        """A submission that was cut off: found again by its token, or known never to have been."""
        state, job_id = self._executor.find(pilot.token)
        if job_id is not None:
            self._tell("pilot_submitted", pilot=pilot.name, job_id=job_id)
        elif state is JobState.GONE:
            self._judge(pilot, JobStatus(state=JobState.GONE, word="NEVER_SUBMITTED"))

    def _judge(self, pilot: PilotState, status: JobStatus) -> None:
        """A pilot that is gone from two answers, long enough apart for its last lines to be seen, is settled."""
        if status.state is not JobState.GONE:
            self._gone_since.pop(pilot.name, None)
            self._look_after(pilot, status)
            return
        since = self._gone_since.setdefault(pilot.name, time.monotonic())
        wait_s = 0.0 if self._sweep.executor == "local" else VISIBLE_S
        if time.monotonic() - since >= wait_s:
            self._refresh()
            self._settle(pilot, status)

    def _look_after(self, pilot: PilotState, status: JobStatus) -> None:
        """End a job that runs without its leader, and one that waits for nodes that nobody has."""
        if pilot.job_id is None:
            return
        beats, since = self._heard.get(pilot.name, (-1, 0.0))
        now = time.monotonic()
        if beats != pilot.beats or status.state is not JobState.RUNNING or pilot.started_at is None:
            self._heard[pilot.name] = pilot.beats, now
        elif now - since > SILENT_S:
            self._heard[pilot.name] = pilot.beats, now
            self._tell("pilot_silent", pilot=pilot.name, silent_s=now - since)
            self._cancel([pilot.job_id])
        if status.state is JobState.PENDING and "ReqNodeNotAvail" in status.reason and pilot.elsewhere:
            self._same_nodes.add(pilot.nodes)
            self._cancel([pilot.job_id])

    def _settle(self, pilot: PilotState, status: JobStatus) -> None:
        """Write `lost` for what the pilot began or claimed and never recorded; then close it."""
        began = {key: attempt.started_at for key, attempt in self._unrecorded() if attempt.pilot == pilot.name}
        for run_id, number, claim in claims_of(self._directory, known=self.world.has_record):
            if claim["pilot"] == pilot.name:
                began[run_id, number] = claim["time"]
        for key, began_at in began.items():
            self._lose(key, began_at, pilot, status)
        self._tell("pilot_gone", pilot=pilot.name, word=status.word or "GONE", reason=status.reason)

    def _settle_late(self) -> None:
        """What a pilot did that was seen only after the pilot had been closed (a claim in a stale directory, a leader
        that was cut off and lived on) is lost as well.
        """
        for key, attempt in self._unrecorded():
            self._lose_of_closed(key, attempt.started_at, attempt.pilot)
        if not any(pilot.open for pilot in self.world.pilots.values()):
            for run_id, number, claim in claims_of(self._directory, known=self.world.has_record):
                self._lose_of_closed((run_id, number), claim["time"], claim["pilot"])

    def _lose_of_closed(self, key: tuple[str, int], began_at: float | None, name: str) -> None:
        pilot = self.world.pilots.get(name)
        if pilot is not None and pilot.gone is not None:
            self._lose(key, began_at, pilot, JobStatus(state=JobState.GONE, word=pilot.gone))

    def _unrecorded(self) -> list[tuple[tuple[str, int], Attempt]]:
        return [
            ((run_id, number), attempt)
            for run_id, state in self.world.runs.items()
            for number, attempt in state.attempts.items()
            if attempt.outcome is None
        ]

    def _lose(self, key: tuple[str, int], began_at: float | None, pilot: PilotState, status: JobStatus) -> None:
        """The record of an attempt that left none; nothing where it left one."""
        run_id, number = key
        if self.world.has_record(run_id, number) or run_id not in self._runs:
            return  # a run of a plan that is not seen here yet is settled once it is
        attempt = self.world.state_of(run_id).attempts.get(number)
        told = diagnose(Facts(ranks=(), slurm_state=status.word or None))
        record = build_record(
            run=self._runs[run_id].run(),
            attempt=number,
            outcome=Outcome.LOST,
            message=f"its pilot's job {pilot.job_id} is gone ({_meaning(status.word, told.outcome)}) "
            "and left no record",
            evidence=told.evidence if told.outcome is not None else None,
            advice=told.advice if told.outcome is not None else None,
            measurements=[],
            node_names=attempt.nodes if attempt is not None else (),
            gpu=self._sweep.site.gpu,
            pilot=pilot.name,
            job_id=pilot.job_id,
            started_at=began_at or pilot.started_at or pilot.intended_at,
            ended_at=time.time(),
            times_s={},
            sweep_name=self._sweep.grid.name,
        )
        self._tell("record", record=record)

    def _cancel_open(self) -> None:
        self._cancel([p.job_id for p in self.world.pilots.values() if p.open and p.job_id is not None])

    def _cancel(self, job_ids: Sequence[str]) -> None:
        """Ask for the end of the jobs, and again only after a while: a pilot needs its time to clear up."""
        now = time.monotonic()
        due = [job_id for job_id in job_ids if now >= self._ask_again_at.get(job_id, 0.0)]
        if due:
            with contextlib.suppress(SubmitError):  # the scheduler does not answer: the next look asks again
                self._executor.cancel(due)
                self._ask_again_at.update(dict.fromkeys(due, now + CANCEL_AGAIN_S))

    def _top_up(self) -> None:
        if time.monotonic() < max(self._submit_after, self._top_up_after):
            return
        sweep, began_s = self._sweep, time.process_time()
        capacity = capacity_of(sweep.grid, sweep.site, sweep.executor, self.world)
        all_wanted = pilots_wanted(self._asked_for(), self.world, capacity)
        took_s = time.process_time() - began_s
        self._top_up_after = time.monotonic() + took_s / TOP_UP_SHARE if took_s > NOTHING_S else 0.0
        for wanted in all_wanted:
            if not self._submit(wanted):
                break

    def _submit(self, wanted: Wanted) -> bool:
        """Intent, then act. False where the scheduler wants to be left alone for a while."""
        self._lease.check()
        self._refresh()
        if self.world.cancelled:
            return False
        elsewhere = self._elsewhere(wanted.nodes)
        request = self._request(wanted, elsewhere)
        directory = self._directory.pilot(request.name)
        directory.mkdir(mode=0o700)
        self._order(request).write(directory)
        self._tell(
            "pilot_intent",
            pilot=request.name,
            token=request.token,
            nodes=request.nodes,
            time_limit_s=request.time_limit_s,
            elsewhere=bool(elsewhere),
        )
        try:
            job_id = self._executor.submit(request)
        except SubmitError as error:
            self._submit_failed(request, error, elsewhere=bool(elsewhere))
            return False
        self._tell("pilot_submitted", pilot=request.name, job_id=job_id)
        self._back_off_s = 5.0
        return True

    def _submit_failed(self, request: PilotRequest, error: SubmitError, *, elsewhere: bool) -> None:
        if not error.retry:
            self._tell("pilot_gone", pilot=request.name, word="REFUSED", reason=str(error))
            if elsewhere:  # no other nodes: the retry has to go where the run failed
                self._same_nodes.add(request.nodes)
                return
            bad = self.world.bad_nodes
            left_out = f"; {len(bad)} nodes are in quarantine, see `sweep nodes`" if bad else ""
            raise StuckError(f"the scheduler refuses the pilot of {request.nodes} nodes: {error}{left_out}")
        # It may have been accepted all the same: the intent stays open until the token is looked for.
        self._tell("submit_delayed", pilot=request.name, reason=str(error))
        self._submit_after = time.monotonic() + self._back_off_s
        self._back_off_s = min(2 * self._back_off_s, MAX_BACK_OFF_S)

    def _elsewhere(self, width: int) -> frozenset[str]:
        """The nodes that the pilot's retries have to keep off, beyond the quarantine."""
        if self._sweep.executor == "local" or width in self._same_nodes:
            return frozenset()
        return nodes_to_avoid(self._asked_for(), self.world, width) - frozenset(self.world.bad_nodes)

    def _request(self, wanted: Wanted, elsewhere: frozenset[str] = frozenset()) -> PilotRequest:
        number = 1 + max((int(name[1:]) for name in self._names()), default=0)
        name = f"p{number:04d}"
        return PilotRequest(
            token=f"{self._sweep.sweep_id}-{name}",
            name=name,
            nodes=wanted.nodes,
            time_limit_s=wanted.time_limit_s,
            exclude=tuple(sorted(elsewhere.union(self.world.bad_nodes))),
        )

    def _names(self) -> Sequence[str]:
        """Pilots known from the journals and, after a crash between the two, from their directories."""
        return [*self.world.pilots, *(path.name for path in (self._directory.path / "pilots").iterdir())]

    def _order(self, request: PilotRequest) -> PilotOrder:
        site = self._sweep.site
        return PilotOrder(
            name=request.name,
            token=request.token,
            sweep_name=self._sweep.grid.name,
            nodes=request.nodes,
            gpus_per_node=site.gpus_per_node,
            gpu=site.gpu,
            time_limit_s=request.time_limit_s,
            executor=self._sweep.executor,
            scratch=site.scratch,
            container_prefix=site.container_prefix,
            torch_version=site.torch_version,
            seed=self._sweep.grid.seed,
            strategy=self._sweep.grid.strategy,
            budget=self._sweep.grid.budget.model_dump(exclude_none=True),
            max_runs=site.max_runs_per_pilot,
            same_nodes=self._sweep.executor == "local" or request.nodes in self._same_nodes,
            side_by_side=self._sweep.executor != "local",
            isolate=self._sweep.grid.isolate,
            limits=limits_of(self._sweep.grid),
        )

    def _asked_for(self) -> Sequence[PlannedRun]:
        """The plan's runs, but for those that the strategy or the budget leaves out."""
        return self._sweep.search.asked_for(self.world)

    def _check_stuck(self) -> None:
        """Pilots that began nothing, time after time, and nothing else open: say so rather than submit in a loop."""
        if not self._hopeless():
            return
        self._settle_late()  # to pilots, a run that was claimed and is held by nobody looks like nothing to do
        if widths := self._hopeless():
            name = max(self.world.pilots)
            raise StuckError(
                f"pilots of {', '.join(map(str, sorted(widths)))} nodes end without beginning a run; "
                f"the last words of {name}: {_last_words(self._directory.pilot(name))}"
            )

    def _hopeless(self) -> frozenset[int]:
        """The widths for which pilots are no use, where nothing else waits and none is open; else nothing."""
        if any(pilot.open for pilot in self.world.pilots.values()):
            return frozenset()
        given_up = barren_widths(self.world)
        widths = {choice.planned.nodes for choice in waiting(self._asked_for(), self.world)}
        return given_up if widths and widths <= given_up else frozenset()


def _meaning(word: str, outcome: Outcome | None) -> str:
    """The scheduler's word for a job's end, and what it means: the attempt itself stays lost."""
    return f"{word}: {outcome}" if word and outcome is not None else word or "ended"


def _last_words(directory: Path) -> str:
    """The end of what a pilot wrote to its error files."""
    words = ""
    for path in sorted(directory.glob("*")):
        if (
            path.is_file()
            and path.suffix in ("", ".err", ".log", ".out")
            and path.name not in ("started", "rendezvous")
        ):
            words = path.read_text(errors="replace").strip()[-400:] or words
    return words or f"none; see {directory}"
