"""The leader of a pilot: holds the allocation and measures runs in it, concurrently where they fit, until none fits."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence

from sweep.outcomes import Outcome
from sweep.pilot.clock import PausingClock
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.attempt_log import store_log
from sweep.pilot.leader.attempts import Attempts
from sweep.pilot.leader.clearing import OrphanClearing, clear_stale_pilots
from sweep.pilot.leader.ending import Ending
from sweep.pilot.leader.files import Files
from sweep.pilot.leader.free_nodes import UNREACHABLE_S, may_return, unreachable, usable, widest
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.nodes import Nodes
from sweep.pilot.leader.pilot_time import PilotTime
from sweep.pilot.leader.places import Places
from sweep.pilot.leader.preflight import Preflight
from sweep.pilot.leader.record import recorded_of
from sweep.planning.runs import PlannedRun
from sweep.records.record import EndedAttempt
from sweep.redaction import secret_values
from sweep.search.search import Choice, Search, choose
from sweep.search.stopping import Stopping
from sweep.state.events import LEADER_ALIVE_S, AttemptStarted, Event, NodeBad, PilotAlive, PilotEnded, PilotStarted
from sweep.state.state import SweepState
from sweep.store.directory import Claim, SweepDir

POLL_AGAIN_S = 5.0
"""while some nodes run and others are free: how often to check for a new run for those"""
RETURN_POLL_S = 1.0
"""while no node can be reached: how often to check whether one is back"""


class Leader:
    """One pilot's run loop."""

    def __init__(
        self, directory: SweepDir, spec: JobSpec, runs: Sequence[PlannedRun], job_id: str, clock: PausingClock
    ) -> None:
        self._directory, self._spec, self._runs, self._job_id = directory, spec, runs, job_id
        self._files = Files(directory, f"pilot-{spec.name}")
        self._sweep_state = SweepState()
        self._search = Search(runs, spec.hardware, spec.strategy, spec.budget)
        self._stopping = Stopping(runs, spec.stop_slow)
        self._taken: set[tuple[str, int]] = set()
        self._time = PilotTime(spec, os.environ, time.time())
        self._attempts = Attempts(spec)
        self._clock = clock
        self._nodes: tuple[str, ...] = ()
        self._places = Places(spec)
        self._free_since: dict[str, float] = {}
        self._logs: set[asyncio.Task[None]] = set()
        self._orphans = OrphanClearing(spec, directory.pilot(spec.name))
        self._preflight = Preflight(spec, self._attempts)
        self._ending = Ending(self._attempts, self._orphans, self._cancelled)

    async def lead(self, nodes: Nodes) -> None:
        """Measure runs until none fits."""
        self._ending.listen()
        await nodes.arrive()
        await self._note_nodes(nodes.links)
        self._apply(await self._files.new_events())
        self._preflight.begin(nodes.links, self._choose(nodes.links, len(nodes.links)))
        tasks = [self._send_heartbeats(), self._ending.follow(nodes.terminated)]
        watching = [asyncio.ensure_future(task) for task in tasks]
        await clear_stale_pilots(self._directory, self._spec, nodes.links)
        self._free_since = dict.fromkeys(self._free_since, time.monotonic())
        reason = await self._measure_all(nodes)
        await asyncio.gather(self._orphans.end(at_once=self._ending.at_once), *self._logs)
        for task in watching:
            task.cancel()
        await self._write(PilotEnded(time=time.time(), pilot=self._spec.name, reason=reason))
        self._files.close()

    async def _measure_all(self, nodes: Nodes) -> str:
        """Measure runs on all free nodes until none is running. Returns why no further one was started."""
        for bad in await self._preflight.unfit(nodes.links):
            await self._write(bad)
        running: dict[asyncio.Task[None], list[Link]] = {}
        begun = 0
        while True:
            await self._note_nodes(nodes.links)
            busy = {link.node for chosen in running.values() for link in chosen}
            usable_now = usable(self._spec, nodes.links, self._sweep_state.excluded_nodes)
            free = [link for link in usable_now if link.node not in busy]
            returning = [link for link in nodes.links if may_return(link, self._clock.now())]
            reason = self._ending.reason or _reason_to_end(self._spec, begun, nodes_left=bool(free or returning))
            most = widest(self._spec, len(free), [len(chosen) for chosen in running.values()])
            checked = self._preflight.due(self._sweep_state.slow_nodes, nodes.links, busy, free) if most else []
            checked = checked if reason is None and self._choose([*free, *checked[:1]], most + 1) else []
            running_on = [link for link in usable_now if link.node in busy]
            choice = await self._next(free, most, running_on) if reason is None and not checked else None
            if checked:
                running[asyncio.ensure_future(self._confirm_slow(checked[0].node, checked))] = checked
            elif choice is not None:
                of = {link.node: link for link in free}
                chosen = [of[node] for node in choice.nodes]
                running[asyncio.ensure_future(self._measure(choice, chosen))] = chosen
                begun += 1
            elif running:
                await _wait_for_one(running, reason is None and (bool(free or returning) or not nodes.complete))
            elif reason is None and returning and self._choose([*free, *returning], len(free) + len(returning)):
                await asyncio.sleep(RETURN_POLL_S)
            else:
                return reason or "no remaining run fits"

    async def _note_nodes(self, links: Sequence[Link]) -> None:
        """Journal the nodes: all that joined, and those that cannot be reached."""
        self._orphans.watch(links)
        await self._places.update(links, self._preflight.domains)
        nodes = tuple(link.node for link in links)
        if nodes != self._nodes:
            self._nodes = nodes
            self._free_since = dict.fromkeys(nodes, time.monotonic()) | self._free_since
            started = PilotStarted(
                time=time.time(), pilot=self._spec.name, job_id=self._job_id, nodes=nodes, began_at=self._time.began_at
            )  # fmt: skip
            await self._write(started)
        for link in unreachable(links, self._clock.now()):
            if link.node not in self._sweep_state.excluded_nodes:
                reason = f"its agent was lost and could not be reached for {UNREACHABLE_S:.0f} s"
                await self._write(NodeBad(time=time.time(), pilot=self._spec.name, node=link.node, reason=reason))

    async def _next(self, free: Sequence[Link], most: int, busy: Sequence[Link]) -> Choice | None:
        """Choose and claim the run to start now on at most `most` of the free nodes; None where there is none."""
        while most:
            self._apply(await self._files.new_events())
            choice = self._choose(free, most, busy)
            if choice is None or self._ending.reason is not None:
                return None
            key = (choice.planned.run_id, choice.attempt)
            self._taken.add(key)
            claim = Claim(pilot=self._spec.name, job_id=self._job_id, time=time.time())
            if await self._files.claim(*key, claim):
                started = AttemptStarted(
                    time=time.time(),
                    pilot=self._spec.name,
                    run_id=choice.planned.run_id,
                    attempt=choice.attempt,
                    nodes=choice.nodes,
                )
                await self._write(started)
                return choice
        return None

    async def _confirm_slow(self, suspect: str, links: Sequence[Link]) -> None:
        for found in await self._preflight.confirm(suspect, self._sweep_state.slow_nodes[suspect], links):
            await self._write(found)

    def _choose(self, links: Sequence[Link], most: int, busy: Sequence[Link] = ()) -> Choice | None:
        """The run to start on at most `most` of these nodes; `busy`: those that will be free."""
        return choose(
            self._runs,
            self._sweep_state,
            most,
            self._time.left_s(time.time()),
            self._time.next_run_s(),
            frozenset(self._taken),
            names=[link.node for link in links],
            busy=[link.node for link in busy],
            tree=self._places.tree,
            reject_split=self._spec.reject_split,
            same_nodes=self._spec.same_nodes,
            in_turn=self._spec.executor == "local",
            search=self._search,
        )

    async def _measure(self, choice: Choice, links: Sequence[Link]) -> None:
        """Run one attempt, from its first journal line to its record."""
        run, spec, began, begun = choice.planned.run(), self._spec, time.time(), time.monotonic()
        name, nodes = f"{run.run_id}.{choice.attempt}", tuple(link.node for link in links)
        idle_s = begun - min(self._free_since[node] for node in nodes)
        limit_s = min(spec.limits.attempt_s, self._time.left_s(began))
        concurrent = self._attempts.begin(name)
        bound = self._stopping.bound(choice.planned, again=self._sweep_state.run_state(run.run_id).ok is not None)
        leaves, domains, notes = self._places.of(nodes)
        result = await self._attempts.conduct(name, run, links, limit_s, bound)
        await self._ending.settled(signalled=result.signalled)
        attempt = EndedAttempt(
            run=run,
            number=choice.attempt,
            sweep_name=spec.sweep_name,
            pilot=spec.name,
            job_id=self._job_id,
            nodes=nodes,
            leaf_switches=leaves,
            domains=domains,
            notes=notes,
            gpu=spec.gpu,
            started_at=began,
            ended_at=time.time(),
            outcome=result.diagnosis.outcome or Outcome.UNKNOWN,
            times_s={"pilot_idle_s": idle_s},
            facts={"concurrent_with": sorted(concurrent)} if concurrent else {},
            bound=bound,
            torch_version=spec.torch_version,
            secrets=secret_values(os.environ),  # its ranks inherit it: the site's ``env`` and ``setup``, the user's own
        )
        recorded = await asyncio.to_thread(recorded_of, attempt, result, spec, limit_s, self._attempts.stopping)
        await self._write(recorded)
        path = self._directory.log(run.run_id, choice.attempt)
        # A task of its own: neither the record nor the next attempt waits for it.
        self._logs.add(storing := asyncio.ensure_future(store_log(path, recorded.record, result.state.ranks)))
        storing.add_done_callback(self._logs.discard)
        for node, left in result.state.not_ended.items():
            reason = "not clean after an attempt: " + "; ".join(left)
            await self._write(NodeBad(time=time.time(), pilot=self._spec.name, node=node, reason=reason))
        for node, why in self._places.unfit(self._sweep_state, self._search, Outcome(recorded.record.outcome)):
            await self._write(NodeBad(time=time.time(), pilot=self._spec.name, node=node, reason=why))
        self._time.took(time.monotonic() - begun)
        self._free_since.update(dict.fromkeys(nodes, time.monotonic()))

    async def _write(self, event: Event) -> None:
        """Append to the journal and apply the event."""
        await self._files.append(event)
        self._apply([event])

    def _apply(self, events: Sequence[Event]) -> None:
        self._sweep_state.apply_all(events)
        self._stopping.apply_all(events)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(LEADER_ALIVE_S)
            await self._files.append(PilotAlive(time=time.time(), pilot=self._spec.name))

    async def _cancelled(self) -> bool:
        """Whether the user cancelled the sweep, by the newest lines of the journals."""
        self._apply(await self._files.poll())
        return self._sweep_state.cancelled


def _reason_to_end(spec: JobSpec, begun: int, *, nodes_left: bool) -> str | None:
    if spec.max_runs is not None and begun >= spec.max_runs:
        return f"measured {begun} runs, as many as the site allows a pilot"
    return None if nodes_left else "no node is left"


async def _wait_for_one(running: dict[asyncio.Task[None], list[Link]], poll: bool) -> None:
    """Wait until a running attempt has ended; with `poll` at most until further nodes may have something to do."""
    timeout_s = POLL_AGAIN_S if poll else None
    done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        del running[task]
        task.result()
