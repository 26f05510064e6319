"""The leader of a pilot: holds the allocation and measures runs in it, one after another, until none fits."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet

from sweep.executors.local import own_job_id
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.pilot.attempt import AttemptResult, AttemptRunner, Link
from sweep.pilot.dead import dead_tokens
from sweep.pilot.findings import Findings
from sweep.pilot.log import attempt_log
from sweep.pilot.nodes import agents
from sweep.pilot.order import PilotOrder
from sweep.pilot.say import complain
from sweep.pilot.watchdog import Verdict
from sweep.plan import RUN_COLUMNS, PlannedRun, runs_of
from sweep.records import build_record
from sweep.search import Choice, choose
from sweep.search.live import Search
from sweep.state import World
from sweep.store import Journal, JournalReader, SweepDir, try_claim, write_derived, write_once
from sweep.workloads import find_workload

UNKNOWN_RUN_S = 120.0
"""what a run is taken to last before any was measured in this pilot"""
MARGIN_S = 45.0
"""kept free before the end of the job, for a full teardown"""
RETRY_S = 2.0
ALIVE_S = 10.0
"""how often the journal says that the leader lives"""
CLEAR_DEAD_S = 30.0

T = TypeVar("T")


class Leader:
    """One pilot's run loop."""

    def __init__(self, sweep: SweepDir, order: PilotOrder, runs: Sequence[PlannedRun], job_id: str) -> None:
        self._sweep = sweep
        self._order = order
        self._runs = runs
        self._job_id = job_id
        self._journal = Journal(sweep.journal(f"pilot-{order.name}"))
        self._reader = JournalReader(sweep)
        self._world = World()
        self._search = Search(runs, GPUS.get(order.gpu or ""))
        self._taken: set[tuple[str, int]] = set()
        self._ends_at = _job_end(order.time_limit_s)
        self._durations: list[float] = []
        self._attempt: AttemptRunner | None = None
        self._stopping: Verdict | None = None
        self._draining: str | None = None
        self._one_write = asyncio.Lock()

    async def lead(self) -> None:
        """Measure runs until none fits, then let the nodes go."""
        loop = asyncio.get_running_loop()
        # submitit ignores SIGTERM in its jobs: here it is the scheduler's word that the end is near.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminate)
        loop.add_signal_handler(signal.SIGUSR2, self._drain)
        async with agents(self._order, self._sweep.pilot(self._order.name)) as links:
            nodes = [link.node for link in links]
            await self._tell("pilot_started", job_id=self._job_id, nodes=nodes, time_limit_s=self._order.time_limit_s)
            alive = asyncio.ensure_future(self._say_alive())
            await self._clear_dead(links)
            reason = await self._measure_all(links)
            async with self._one_write:  # never in the middle of a line
                alive.cancel()
            await self._tell("pilot_ended", reason=reason)
        self._journal.close()

    async def _clear_dead(self, links: Sequence[Link]) -> None:
        """End what dead pilots of this sweep left on our nodes. Where the scheduler does not answer, touch nothing."""
        strays = sorted({token for link in links for token in link.strays})
        with contextlib.suppress(OSError, UnicodeError):
            dead = await asyncio.to_thread(dead_tokens, self._sweep, self._order.executor, strays)
            asked = [link for link in links if set(link.strays) & set(dead)]
            for link in asked:
                link.send({"do": "clear_dead", "tokens": dead})
            for link in asked:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(link.cleared.wait(), CLEAR_DEAD_S)

    async def _measure_all(self, links: Sequence[Link]) -> str:
        """One run after another. Returns why no further one was taken."""
        done, idle_since = 0, time.monotonic()
        while True:
            free = self._usable(links)
            reason = self._reason_to_end(done, free)
            if reason is not None:
                return reason
            await self._patiently(lambda: self._world.apply_all(self._reader.new_events()))
            choice = choose(
                self._runs,
                self._world,
                len(free),
                self._seconds_left(),
                self._expected_s(),
                frozenset(self._taken),
                names=[link.node for link in free],
                narrower=len(free) < self._order.nodes,
                same_nodes=self._order.same_nodes,
                search=self._search,
            )
            if choice is None:
                return "nothing left that fits"
            if not await self._claim(choice):
                continue
            chosen = [link for link in free if link.node in choice.nodes]
            await self._measure(choice, chosen, idle_s=time.monotonic() - idle_since)
            done, idle_since = done + 1, time.monotonic()

    def _usable(self, links: Sequence[Link]) -> list[Link]:
        """The nodes that live, are clean and are not in quarantine (there is nothing else on this one machine)."""
        usable = [link for link in links if link.alive and link.clean]
        if self._order.executor == "local":
            return usable
        bad = self._world.bad_nodes
        return [link for link in usable if link.node not in bad]

    def _reason_to_end(self, done: int, free: Sequence[Link]) -> str | None:
        if self._stopping is not None:
            return self._stopping.text
        if self._draining is not None:
            return self._draining
        if self._order.max_runs is not None and done >= self._order.max_runs:
            return f"measured {done} runs, as many as the site allows a pilot"
        if not free:
            return "no node is left"
        return None

    async def _claim(self, choice: Choice) -> bool:
        key = (choice.planned.run_id, choice.attempt)
        holder = {"pilot": self._order.name, "job_id": self._job_id, "time": time.time()}
        self._taken.add(key)
        return await self._patiently(lambda: try_claim(self._sweep, *key, holder))

    async def _patiently(self, act: Callable[[], T]) -> T:
        """Do it, and again while the file system refuses (read-only for a while, a stale handle)."""
        while True:
            try:
                return act()
            except OSError as error:
                complain(f"the sweep directory refuses, trying again: {error}")
                await asyncio.sleep(RETRY_S)

    async def _measure(self, choice: Choice, links: Sequence[Link], idle_s: float) -> None:
        """One attempt, from its first journal line to its record."""
        run, attempt = choice.planned.run(), choice.attempt
        nodes = [link.node for link in links]
        started_at, started = time.time(), time.monotonic()
        await self._tell("attempt_started", run_id=run.run_id, attempt=attempt, nodes=nodes)
        workload = find_workload(run.workload)
        limits = self._order.limits
        attempt_s = min(limits.attempt_s, self._seconds_left())
        name = f"{run.run_id}.{attempt}"
        self._attempt = AttemptRunner(
            name, run, workload, links, replace(limits, attempt_s=attempt_s), _seed(self._order.seed)
        )
        if self._stopping is not None:
            self._attempt.stop(self._stopping, short=True)
        result = await self._attempt.conduct()
        self._attempt = None
        outcome = result.diagnosis.outcome or Outcome.UNKNOWN
        if outcome is Outcome.TIME_LIMIT and attempt_s < limits.attempt_s:
            outcome = Outcome.PREEMPTED
        if outcome is Outcome.CANCELLED and self._stopping is None:
            outcome = Outcome.UNKNOWN  # a SIGTERM that neither the user nor the scheduler sent
        extras = [rank.measurement.extra if rank.measurement is not None else {} for rank in result.ranks]
        findings = Findings.of((rank.tail for rank in result.ranks), extras)
        record = build_record(
            run=run,
            attempt=attempt,
            outcome=outcome,
            message=result.message,
            evidence=result.diagnosis.evidence or None,
            advice=result.diagnosis.advice or None,
            measurements=[rank.measurement for rank in result.ranks],
            node_names=nodes,
            gpu=self._order.gpu,
            pilot=self._order.name,
            job_id=self._job_id,
            started_at=started_at,
            ended_at=time.time(),
            times_s={**result.times_s, "pilot_idle_s": idle_s},
            sweep_name=self._order.sweep_name,
            extra={**findings.facts, **({"left_in_dev_shm": result.removed} if result.removed else {})},
        )
        record = findings.annotate(record)
        await self._tell("record", record=record, **self._about_nodes(record, result))
        self._keep_log(name, record, result)
        for node, left in result.not_cleaned.items():
            await self._tell("node_bad", node=node, reason="not clean after an attempt: " + "; ".join(left))
        self._durations.append(time.monotonic() - started)

    def _about_nodes(self, record: Mapping[str, Any], result: AttemptResult) -> dict[str, Any]:
        """What the attempt says of nodes; nothing where all are this one machine."""
        if self._order.executor == "local":
            return {}
        slow = record["slow_rank"]
        slow_node = None if slow is None else record["node_names"][slow // record["gpus_per_node"]]
        return {"accused": list(result.accused), "slow_node": slow_node}

    def _keep_log(self, name: str, record: Mapping[str, Any], result: AttemptResult) -> None:
        """Best effort: a record is worth more than its log."""
        run_id, _, attempt = name.rpartition(".")
        with contextlib.suppress(OSError):
            write_derived(self._sweep.log(run_id, int(attempt)), attempt_log(record, result))

    async def _tell(self, event: str, **values: Any) -> None:
        """Write a line to the journal; while the file system refuses, keep trying: nothing may be lost."""
        line = {"event": event, "time": time.time(), "pilot": self._order.name, **values}
        while True:
            try:
                await self._append(line)
            except OSError as error:
                complain(f"the journal cannot be written, trying again: {error}")
                await asyncio.sleep(RETRY_S)
            else:
                break
        self._world.apply(line)

    async def _append(self, line: Mapping[str, Any]) -> None:
        """In a thread: a file system that hangs must not keep the agents from hearing that their leader lives."""
        async with self._one_write:
            await asyncio.to_thread(self._journal.append, line)

    async def _say_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            with contextlib.suppress(OSError):
                await self._append({"event": "pilot_alive", "time": time.time(), "pilot": self._order.name})

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
        with contextlib.suppress(OSError):
            self._world.apply_all(self._reader.new_events())
        by_user = self._world.cancelled
        outcome = Outcome.CANCELLED if by_user else Outcome.PREEMPTED
        text = "cancelled by the user" if by_user else "the pilot's job was told to end (SIGTERM)"
        self._stopping = Verdict(outcome, text)
        if self._attempt is not None:
            self._attempt.stop(self._stopping, short=True)

    def _drain(self) -> None:
        """The warning before the end of the wall time: what runs may end, nothing new begins."""
        self._draining = "drained at the warning signal"


def _job_end(time_limit_s: int) -> float:
    """When the job's wall time ends, unix seconds. Slurm tells from 22.05 on; else the limit counts from now."""
    told = os.environ.get("SLURM_JOB_END_TIME", "")
    return min(float(told) if told.isdigit() else float("inf"), time.time() + time_limit_s)


def _seed(seed: int) -> int:
    """The ranks' seed: the same for all runs of a sweep, so that losses of one model agree over layouts."""
    return int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:4], "big")


def main(sweep_dir: str, pilot: str) -> None:
    """Lead the pilot `pilot` of the sweep in `sweep_dir`. Called in the batch job, or as a process of its own."""
    os.umask(0o077)
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
    table = pyarrow.parquet.read_table(sweep.plan, columns=list(RUN_COLUMNS))
    asyncio.run(Leader(sweep, order, runs_of(table), job_id).lead())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
