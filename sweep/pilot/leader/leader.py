"""The leader of a pilot: holds the allocation and measures runs in it, concurrently where they fit, until none fits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet

from sweep.errors import log_error
from sweep.executors.local import own_job_id
from sweep.outcomes import Outcome
from sweep.pilot.job import StepDaemon, cancel_own_job
from sweep.pilot.leader.attempt_log import attempt_log
from sweep.pilot.leader.attempt_result import AttemptResult
from sweep.pilot.leader.attempts import Attempts
from sweep.pilot.leader.clearing import OrphanClearing, clear_stale_pilots
from sweep.pilot.leader.files import Files
from sweep.pilot.leader.free_nodes import usable, widest
from sweep.pilot.leader.nodes import Link, agents
from sweep.pilot.leader.pilot_time import PilotTime
from sweep.pilot.leader.record import Conducted, recording_of
from sweep.pilot.leader.start_limits import ObservedStarts
from sweep.pilot.leader.watchdog import Verdict
from sweep.pilot.order import PilotOrder
from sweep.plan.runs import RUN_COLUMNS, PlannedRun, runs_of_all
from sweep.records.schema import Record
from sweep.search.search import Choice, Search, choose
from sweep.state.events import AttemptStarted, Event, NodeBad, PilotAlive, PilotEnded, PilotStarted, Recorded
from sweep.state.state import SweepState
from sweep.store.directory import Claim, SweepDir, write_derived, write_once

ALIVE_S = 10.0
"""interval of the leader's heartbeat in the journal"""
POLL_AGAIN_S = 5.0
"""while some nodes run and others are free: how often to check for a new run for those"""
LAST_POLL_S = 2.0
"""how long a pilot that got SIGTERM may take to find out who sent it"""


class Leader:
    """One pilot's run loop."""

    def __init__(self, sweep: SweepDir, order: PilotOrder, runs: Sequence[PlannedRun], job_id: str) -> None:
        self._sweep = sweep
        self._order = order
        self._runs = runs
        self._job_id = job_id
        self._files = Files(sweep, f"pilot-{order.name}")
        self._sweep_state = SweepState()
        self._search = Search.of(runs, order.hardware, order.strategy, order.budget)
        self._starts = ObservedStarts(runs)
        self._taken: set[tuple[str, int]] = set()
        self._time = PilotTime(order, os.environ, time.time())
        self._attempts = Attempts(order)
        self._free_since: dict[str, float] = {}
        self._draining: str | None = None
        self._termination: asyncio.Task[None] | None = None
        self._orphans: OrphanClearing | None = None

    async def lead(self) -> None:
        """Measure runs until none fits, then release the nodes."""
        loop = asyncio.get_running_loop()
        # submitit ignores SIGTERM in its jobs: here it is the scheduler's notice that the job will end.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminate)
        loop.add_signal_handler(signal.SIGUSR2, self._drain)
        async with agents(self._order, self._sweep.pilot(self._order.name)) as links:
            nodes = [link.node for link in links]
            started = PilotStarted(
                time=time.time(),
                pilot=self._order.name,
                job_id=self._job_id,
                nodes=tuple(nodes),
                time_limit_s=self._order.time_limit_s,
            )
            await self._write(started)
            alive = asyncio.ensure_future(self._send_heartbeats())
            self._orphans = OrphanClearing(self._order, links)
            await clear_stale_pilots(self._sweep, self._order, links)
            self._free_since = dict.fromkeys(nodes, time.monotonic())
            reason = await self._measure_all(links)
            await self._orphans.end(at_once=self._termination is not None)
            alive.cancel()
            await self._write(PilotEnded(time=time.time(), pilot=self._order.name, reason=reason))
        self._files.close()

    async def _measure_all(self, links: Sequence[Link]) -> str:
        """Measure runs on all free nodes until none is running. Returns why no further one was started."""
        running: dict[asyncio.Task[None], list[Link]] = {}
        begun = 0
        while True:
            busy = {link.node for chosen in running.values() for link in chosen}
            free = [link for link in usable(self._order, links, self._sweep_state.bad_nodes) if link.node not in busy]
            reason = self._reason_to_end(begun, free)
            most = widest(self._order, len(free), [len(chosen) for chosen in running.values()])
            choice = await self._next(free, most) if reason is None else None
            if choice is not None:
                chosen = [link for link in free if link.node in choice.nodes]
                running[asyncio.ensure_future(self._measure(choice, chosen))] = chosen
                begun += 1
                continue
            if not running:
                return reason or "no remaining run fits"
            poll_s = POLL_AGAIN_S if free and reason is None else None
            done, _ = await asyncio.wait(running, timeout=poll_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del running[task]
                task.result()

    async def _next(self, free: Sequence[Link], most: int) -> Choice | None:
        """Choose and claim the run to start now on at most `most` of the free nodes; None where there is none."""
        while most:
            self._apply(await self._files.new_events())
            choice = choose(
                self._runs,
                self._sweep_state,
                most,
                self._time.left_s(time.time()),
                self._time.next_run_s(),
                frozenset(self._taken),
                names=[link.node for link in free],
                same_nodes=self._order.same_nodes,
                search=self._search,
            )
            if choice is None or self._ending:
                return None
            if await self._claim(choice):
                started = AttemptStarted(
                    time=time.time(),
                    pilot=self._order.name,
                    run_id=choice.planned.run_id,
                    attempt=choice.attempt,
                    nodes=choice.nodes,
                )
                await self._write(started)
                return choice
        return None

    @property
    def _ending(self) -> bool:
        return self._termination is not None or self._draining is not None

    def _reason_to_end(self, begun: int, free: Sequence[Link]) -> str | None:
        if self._termination is not None:
            return "received SIGTERM"
        if self._draining is not None:
            return self._draining
        if self._order.max_runs is not None and begun >= self._order.max_runs:
            return f"measured {begun} runs, as many as the site allows a pilot"
        if not free:
            return "no node is left"
        return None

    async def _claim(self, choice: Choice) -> bool:
        key = (choice.planned.run_id, choice.attempt)
        claim = Claim(pilot=self._order.name, job_id=self._job_id, time=time.time())
        self._taken.add(key)
        return await self._files.claim(*key, claim)

    async def _measure(self, choice: Choice, links: Sequence[Link]) -> None:
        """Run one attempt, from its first journal line to its record."""
        run = choice.planned.run()
        name = f"{run.run_id}.{choice.attempt}"
        nodes = tuple(link.node for link in links)
        begun = time.monotonic()
        conducted = Conducted(
            run=run,
            attempt=choice.attempt,
            order=self._order,
            job_id=self._job_id,
            nodes=nodes,
            started_at=time.time(),
            idle_s=begun - min(self._free_since[node] for node in nodes),
            limit_s=min(self._order.limits.attempt_s, self._time.left_s(time.time())),
            concurrent=self._attempts.begin(name),
        )
        start_limits = self._starts.start_limits(choice.planned, choice.attempt, self._order.limits)
        result = await self._attempts.conduct(name, run, links, conducted.limit_s, start_limits)
        if self._termination is not None:
            await self._termination  # who sent it decides the attempt's outcome
        found = recording_of(conducted, result, self._attempts.stopping, ended_at=time.time())
        recorded = Recorded(
            time=time.time(),
            pilot=self._order.name,
            record=found.record,
            accused=found.accused,
            slow_node=found.slow_node,
        )
        await self._write(recorded)
        await self._store_log(run.run_id, choice.attempt, found.record, result)
        for node, left in result.not_cleaned.items():
            reason = "not clean after an attempt: " + "; ".join(left)
            await self._write(NodeBad(time=time.time(), pilot=self._order.name, node=node, reason=reason))
        self._time.took(time.monotonic() - begun)
        self._free_since.update(dict.fromkeys(nodes, time.monotonic()))

    async def _store_log(self, run_id: str, attempt: int, record: Record, result: AttemptResult) -> None:
        """Best effort: the record matters more than its log."""
        path = self._sweep.log(run_id, attempt)
        try:
            await self._files.do(lambda: write_derived(path, attempt_log(record, result)))
        except Exception as error:
            log_error(f"cannot write the log of {run_id}.{attempt}: {error!r}")

    async def _write(self, event: Event) -> None:
        """Append to the journal and apply the event."""
        await self._files.append(event)
        self._apply([event])

    def _apply(self, events: Sequence[Event]) -> None:
        self._sweep_state.apply_all(events)
        self._starts.apply_all(events)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            await self._files.append(PilotAlive(time=time.time(), pilot=self._order.name))

    def _terminate(self) -> None:
        """The scheduler or the user ends the job: no evidence, a record, and exit within KillWait."""
        if self._orphans is not None:
            self._orphans.stop()
        if self._termination is None:
            self._termination = asyncio.ensure_future(self._end_now())

    async def _end_now(self) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            self._apply(await asyncio.wait_for(self._files.poll(), LAST_POLL_S))
        if self._sweep_state.cancelled:
            self._attempts.stop(Verdict(Outcome.CANCELLED, "cancelled by the user"))
        else:
            self._attempts.stop(Verdict(Outcome.PREEMPTED, "the pilot's job received SIGTERM"))

    def _drain(self) -> None:
        """The warning before the end of the wall time: running attempts may end, no new ones begin."""
        self._draining = "drained at the warning signal"


def main(sweep_dir: str, pilot: str) -> None:
    """Lead the pilot `pilot` of the sweep in `sweep_dir`. Called in the batch job, or as a process of its own."""
    os.umask(0o077)
    above = StepDaemon()
    sweep = SweepDir(Path(sweep_dir))
    directory = sweep.pilot(pilot)
    order = PilotOrder.read(directory)
    job_id = own_job_id() if order.executor == "local" else os.environ["SLURM_JOB_ID"]
    try:
        me = {"job_id": job_id, "host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        write_once(directory / "started", json.dumps(me))
    except FileExistsError:
        return  # a second job with this token (its submission was assumed lost): the first does the work
    os.environ["SWEEP_PILOT"] = order.token
    tables = [pyarrow.parquet.ParquetFile(path).read(columns=list(RUN_COLUMNS)) for path in sweep.plans()]
    asyncio.run(Leader(sweep, order, runs_of_all(tables), job_id).lead())
    if order.executor == "slurm" and above.died:
        cancel_own_job()
