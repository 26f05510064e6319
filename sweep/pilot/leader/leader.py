"""The leader of a pilot: holds the allocation and measures runs in it, side by side where they fit, until none does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet

from sweep.errors import SweepError
from sweep.executors.local import own_job_id
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.pilot.agent.orphans import clear_orphans
from sweep.pilot.job import StepDaemon, cancel_own_job, complain
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_log import attempt_log
from sweep.pilot.leader.attempt_result import AttemptResult
from sweep.pilot.leader.files import Files
from sweep.pilot.leader.nodes import Link, agents
from sweep.pilot.leader.record import Conducted, recording_of
from sweep.pilot.leader.stale_pilots import dead_tokens
from sweep.pilot.leader.start_limits import Starts
from sweep.pilot.leader.watchdog import Verdict
from sweep.pilot.limits import Limits
from sweep.pilot.order import PilotOrder
from sweep.plan.runs import RUN_COLUMNS, PlannedRun, runs_of_all
from sweep.plugins import find_workload
from sweep.records.schema import Record
from sweep.search.search import Choice, Search, choose
from sweep.state.events import AttemptStarted, Event, NodeBad, PilotAlive, PilotEnded, PilotStarted, Recorded
from sweep.state.state import World
from sweep.store.directory import Claim, SweepDir, write_derived, write_once

UNKNOWN_RUN_S = 120.0
"""what a run is taken to last before any was measured in this pilot"""
MARGIN_S = 45.0
"""kept free before the end of the job, for a full teardown"""
ALIVE_S = 10.0
"""how often the journal says that the leader lives"""
CLEAR_DEAD_S = 30.0
LOOK_AGAIN_S = 5.0
"""while runs go on beside free nodes: how often to look whether something new may begin on those"""
LAST_LOOK_S = 2.0
"""how long a pilot that is told to end may take to find out who ends it"""


class Leader:
    """One pilot's run loop."""

    def __init__(self, sweep: SweepDir, order: PilotOrder, runs: Sequence[PlannedRun], job_id: str) -> None:
        self._sweep = sweep
        self._order = order
        self._runs = runs
        self._job_id = job_id
        self._files = Files(sweep, f"pilot-{order.name}")
        self._world = World()
        self._search = Search.of(runs, GPUS.get(order.gpu or ""), order.strategy, order.budget)
        self._starts = Starts(runs)
        self._taken: set[tuple[str, int]] = set()
        self._ends_at = _job_end(order.time_limit_s)
        self._durations: list[float] = []
        self._going: dict[str, AttemptRunner] = {}
        """the attempts of now, by name"""
        self._beside: dict[str, set[str]] = {}
        """attempt of now -> those that shared a part of its time"""
        self._free_since: dict[str, float] = {}
        self._stopping: Verdict | None = None
        self._draining: str | None = None
        self._told_to_end: asyncio.Task[None] | None = None
        self._clearing: list[asyncio.Task[None]] = []
        """nodes that are being cleared of what a dead agent left"""

    async def lead(self) -> None:
        """Measure runs until none fits, then let the nodes go."""
        loop = asyncio.get_running_loop()
        # submitit ignores SIGTERM in its jobs: here it is the scheduler's word that the end is near.
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
            beside = [asyncio.ensure_future(self._say_alive())]
            beside += [asyncio.ensure_future(self._clear_after(link)) for link in links]
            await self._clear_dead(links)
            self._free_since = dict.fromkeys(nodes, time.monotonic())
            reason = await self._measure_all(links)
            await self._end_clearing()
            for task in beside:
                task.cancel()
            await self._write(PilotEnded(time=time.time(), pilot=self._order.name, reason=reason))
        self._files.close()

    async def _clear_dead(self, links: Sequence[Link]) -> None:
        """End what dead pilots of this sweep left on our nodes. Where the scheduler does not answer, touch nothing."""
        strays = sorted({token for link in links for token in link.strays})
        with contextlib.suppress(OSError, UnicodeError, SweepError):
            dead = await asyncio.to_thread(dead_tokens, self._sweep, self._order.executor, strays)
            asked = [link for link in links if set(link.strays) & set(dead)]
            for link in asked:
                link.send({"do": "clear_dead", "tokens": dead})
            waits = [asyncio.wait_for(link.cleared.wait(), CLEAR_DEAD_S) for link in asked]
            await asyncio.gather(*waits, return_exceptions=True)

    async def _clear_after(self, link: Link) -> None:
        """An agent that dies alone can clear nothing any more."""
        await link.gone.wait()
        if self._told_to_end is None:  # else the whole job goes, agents first
            self._clearing.append(asyncio.ensure_future(clear_orphans(self._order, link.node)))

    async def _end_clearing(self) -> None:
        if self._told_to_end is not None:
            for task in self._clearing:
                task.cancel()
        await asyncio.gather(*self._clearing, return_exceptions=True)

    async def _measure_all(self, links: Sequence[Link]) -> str:
        """Runs on all nodes that are free, until nothing goes on. Returns why no further one was taken."""
        going: dict[asyncio.Task[None], list[Link]] = {}
        begun = 0
        while True:
            busy = {link.node for chosen in going.values() for link in chosen}
            free = [link for link in self._usable(links) if link.node not in busy]
            reason = self._reason_to_end(begun, free)
            choice = await self._next(free, self._most(len(free), going.values())) if reason is None else None
            if choice is not None:
                chosen = [link for link in free if link.node in choice.nodes]
                going[asyncio.ensure_future(self._measure(choice, chosen))] = chosen
                begun += 1
                continue
            if not going:
                return reason or "nothing left that fits"
            looks = LOOK_AGAIN_S if free and reason is None else None
            done, _ = await asyncio.wait(going, timeout=looks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del going[task]
                task.result()

    async def _next(self, free: Sequence[Link], most: int) -> Choice | None:
        """The run to begin now on at most so many of the free nodes, claimed; None where there is none."""
        while most:
            self._take_in(await self._files.new_events())
            choice = choose(
                self._runs,
                self._world,
                most,
                self._seconds_left(),
                self._expected_s(),
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

    def _most(self, free: int, going: Collection[Sequence[Link]]) -> int:
        """The widest run that may begin now: a shared machine takes one at a time, an isolated fabric one across."""
        if going and not self._order.side_by_side:
            return 0
        across = any(len(chosen) > 1 for chosen in going)
        return min(free, 1) if across and self._order.isolate else free

    @property
    def _ending(self) -> bool:
        return self._told_to_end is not None or self._draining is not None

    def _usable(self, links: Sequence[Link]) -> list[Link]:
        """The nodes that live, are clean and are not in quarantine (there is nothing else on this one machine)."""
        usable = [link for link in links if link.alive and link.clean]
        if self._order.executor == "local":
            return usable
        bad = self._world.bad_nodes
        return [link for link in usable if link.node not in bad]

    def _reason_to_end(self, begun: int, free: Sequence[Link]) -> str | None:
        if self._told_to_end is not None:
            return "told to end (SIGTERM)"
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
        """One attempt, from its first journal line to its record."""
        run = choice.planned.run()
        name = f"{run.run_id}.{choice.attempt}"
        nodes = tuple(link.node for link in links)
        begun = time.monotonic()
        idle_s = begun - min(self._free_since[node] for node in nodes)
        limits = self._order.limits
        attempt_s = min(limits.attempt_s, self._seconds_left())
        conducted = Conducted(
            run=run,
            attempt=choice.attempt,
            order=self._order,
            job_id=self._job_id,
            nodes=nodes,
            started_at=time.time(),
            idle_s=idle_s,
            limit_s=attempt_s,
            beside=self._begin_beside(name),
        )
        limits = replace(limits, attempt_s=attempt_s)
        result = await self._conduct(name, choice, links, limits)
        del self._beside[name]
        if self._told_to_end is not None:
            await self._told_to_end  # whose word it was decides what the attempt is
        told = recording_of(conducted, result, self._stopping, ended_at=time.time())
        await self._write(
            Recorded(
                time=time.time(),
                pilot=self._order.name,
                record=told.record,
                accused=tuple(told.accused),
                slow_node=told.slow_node,
            )
        )
        await self._keep_log(run.run_id, choice.attempt, told.record, result)
        for node, left in result.not_cleaned.items():
            reason = "not clean after an attempt: " + "; ".join(left)
            await self._write(NodeBad(time=time.time(), pilot=self._order.name, node=node, reason=reason))
        self._durations.append(time.monotonic() - begun)
        self._free_since.update(dict.fromkeys(nodes, time.monotonic()))

    async def _conduct(self, name: str, choice: Choice, links: Sequence[Link], limits: Limits) -> AttemptResult:
        """The attempt itself. Whatever goes wrong costs this attempt, and its nodes where ranks may be left there."""
        run = choice.planned.run()
        learned = self._starts.learned(choice.planned, choice.attempt, limits)
        try:
            workload = find_workload(run.workload)
            runner = AttemptRunner(name, run, workload, links, limits, self._order.seed, learned)
        except SweepError as error:  # a plug-in that the login node has and this one has not
            return AttemptResult.none(run, links, Outcome.IMPORT_ERROR, str(error))
        self._going[name] = runner
        if self._stopping is not None:
            runner.stop(self._stopping, short=True)
        try:
            return await runner.conduct()
        except Exception:
            for link in links:
                link.clean = False
            words = "the pilot failed: " + traceback.format_exc(limit=-3)
            return AttemptResult.none(run, links, Outcome.UNKNOWN, words)
        finally:
            del self._going[name]

    def _begin_beside(self, name: str) -> set[str]:
        """What shares this attempt's time: a set that later attempts add themselves to."""
        for other in self._beside.values():
            other.add(name)
        self._beside[name] = set(self._beside)
        return self._beside[name]

    async def _keep_log(self, run_id: str, attempt: int, record: Record, result: AttemptResult) -> None:
        """Best effort: a record is worth more than its log."""
        path = self._sweep.log(run_id, attempt)
        try:
            await self._files.do(lambda: write_derived(path, attempt_log(record, result)))
        except Exception as error:
            complain(f"no log of {run_id}.{attempt}: {error!r}")

    async def _write(self, event: Event) -> None:
        """Append to the journal, and take it into account."""
        await self._files.append(event)
        self._take_in([event])

    def _take_in(self, events: Sequence[Event]) -> None:
        self._world.apply_all(events)
        self._starts.apply_all(events)

    async def _say_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            await self._files.append(PilotAlive(time=time.time(), pilot=self._order.name))

    def _seconds_left(self) -> float:
        margin = min(MARGIN_S, 0.1 * self._order.time_limit_s)
        return self._ends_at - time.time() - margin

    def _expected_s(self) -> float:
        """What the next run may take: somewhat more than the longest lately."""
        if self._durations:
            return 1.5 * max(self._durations[-20:])
        return min(UNKNOWN_RUN_S, self._order.limits.attempt_s, 0.5 * self._order.time_limit_s)

    def _terminate(self) -> None:
        """The scheduler or the user ends the job: no evidence, a record, and out within KillWait."""
        if self._told_to_end is None:
            self._told_to_end = asyncio.ensure_future(self._end_now())

    async def _end_now(self) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            self._take_in(await asyncio.wait_for(self._files.look(), LAST_LOOK_S))
        if self._world.cancelled:
            self._stopping = Verdict(Outcome.CANCELLED, "cancelled by the user")
        else:
            self._stopping = Verdict(Outcome.PREEMPTED, "the pilot's job was told to end (SIGTERM)")
        for runner in self._going.values():
            runner.stop(self._stopping, short=True)

    def _drain(self) -> None:
        """The warning before the end of the wall time: what runs may end, nothing new begins."""
        self._draining = "drained at the warning signal"


def _job_end(time_limit_s: int) -> float:
    """When the job's wall time ends, unix seconds. Slurm tells from 22.05 on; else the limit counts from now."""
    told = os.environ.get("SLURM_JOB_END_TIME", "")
    return min(float(told) if told.isdigit() else float("inf"), time.time() + time_limit_s)


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
        return  # a second job with this token (a submission that was taken for lost): the first has the work
    os.environ["SWEEP_PILOT"] = order.token
    tables = [pyarrow.parquet.ParquetFile(path).read(columns=list(RUN_COLUMNS)) for path in sweep.plans()]
    asyncio.run(Leader(sweep, order, runs_of_all(tables), job_id).lead())
    if order.executor == "slurm" and above.died:
        cancel_own_job()
