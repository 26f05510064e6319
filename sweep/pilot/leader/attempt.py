"""The leader's side of one attempt: prepare nodes, start ranks, follow them, end them, report the result.

What messages mean for the attempt is in ``attempt_state``; this module sends, waits and measures time.

The diagnosis of an attempt beside the leader's event loop, and within a time: heartbeats and signals go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweep.contract import Place, Run, SlowBound, Workload
from sweep.diagnose.diagnose import diagnose
from sweep.diagnose.model import Diagnosis
from sweep.outcomes import Outcome
from sweep.physics.job import saves
from sweep.pilot.job_spec import Limits
from sweep.pilot.leader.attempt_state import AttemptResult, AttemptState, diagnosis_of, unexplained
from sweep.pilot.leader.link import Inbox, Link, NodeLost, StopAsked
from sweep.pilot.leader.watchdog import StopReason
from sweep.pilot.messages import Clean, NotPrepared, OfAttempt, Prepare, Prepared, Start, Stop
from sweep.pilot.timeouts import RETURN_S

DIAGNOSIS_S = 20.0
"""for the output of all ranks of an attempt: that of 1,000 ranks (33 MB) takes 5 s"""
SHORT_DIAGNOSIS_S = 1.0
"""the same once the scheduler ends the job"""
_ADVICE = "Read the ranks' output in the attempt's log: `sweep explain --log FILE` takes the time it needs."


async def diagnosed(state: AttemptState, ending: asyncio.Event) -> Diagnosis:
    """The diagnosis of an attempt whose nodes are cleared; where it takes longer, the watcher's verdict, or ``unknown``
    without one. ``ending``: of the job.

    Its thread is left alone then: each pattern takes time in proportion to its text, so that the thread ends soon.
    """
    if state.all_measured:  # nothing is read
        return diagnosis_of(state)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Diagnosis] = loop.create_future()

    def work() -> None:
        try:
            found = diagnosis_of(state)
        except Exception:  # unexpected: fail this attempt, not the pilot
            found = Diagnosis(Outcome.UNKNOWN, "the diagnosis failed: " + traceback.format_exc(limit=-3), _ADVICE)
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is not waited for
            loop.call_soon_threadsafe(done.set_result, found)

    threading.Thread(target=work, name="diagnosis", daemon=True).start()
    ends = asyncio.ensure_future(ending.wait())
    either: set[asyncio.Future[Any]] = {done, ends}
    await asyncio.wait(either, timeout=DIAGNOSIS_S, return_when=asyncio.FIRST_COMPLETED)
    if ends.done() and not done.done():
        await asyncio.wait({done}, timeout=SHORT_DIAGNOSIS_S)
    ends.cancel()
    if done.done():
        return done.result()
    if state.verdict is not None:
        return diagnose((), verdict=state.verdict.outcome, verdict_text=state.verdict.text)
    return Diagnosis(Outcome.UNKNOWN, f"the ranks' output was not diagnosed within {DIAGNOSIS_S:g} s", _ADVICE)


GRACE_S = 8.0
"""from SIGTERM to SIGKILL: ranks that answer SIGTERM at all ended within 0.9 s (docs/research/faults.md)"""
SHORT_GRACE_S = 1.0
"""the same when the scheduler is ending the job, or nothing is left to lose"""
LOOPBACK = "127.0.0.1"
CLEAN_S = 40.0
"""beyond the grace period: evidence (2 s at most), kills (8 s), and the wait for the GPUs to be empty (20 s)"""
QUIET_CHECK_S = 1.0
"""while an agent is unresponsive: how often the time-outs are checked"""
SHORT_CLEAN_S = 1.0
"""beyond SHORT_GRACE_S: all within 2 s, of Slurm's KillWait (30 s by default, 5 s in tests)"""


class AttemptRunner:
    """Runs one attempt. `stop` may be called at any time, from a signal handler too."""

    def __init__(
        self,
        name: str,
        run: Run,
        workload: Workload,
        links: Sequence[Link],
        limits: Limits,
        seed: int,
        gpu: str | None = None,
        bound: SlowBound | None = None,
        checkpoint_dir: str | None = None,
        compiled_dir: str = "",
    ) -> None:
        self._name, self._run, self._workload = name, run, workload
        self._links = list(links)
        self._inbox: Inbox = asyncio.Queue()
        self._clock = links[0].clock
        self._lost: set[str] = set()
        """nodes whose agents were lost during the attempt: one that comes back has ended it there"""
        self._lost_in_clearing: tuple[str, str] | None = None
        """the first node that was lost before it reported Clean, and how"""
        self._state = AttemptState(name, run, [link.node for link in links], limits, self._clock.now())
        self._paused_s = self._clock.paused_s
        token = secrets.token_hex(16)
        self._place = Place(
            rank=0, world_size=run.gpus, local_rank=0, local_world_size=run.gpus_per_node, node_rank=0, seed=seed,
            master_addr="", master_port=0, token=token, gpu=gpu or "", bound=bound, compiled_dir=compiled_dir,
            checkpoint_dir=f"{checkpoint_dir}/{name}.{token[:8]}" if checkpoint_dir and saves(run.params) else "",
        )  # fmt: skip
        self._short = asyncio.Event()
        self._began = False
        """Start was sent"""

    def stop(self, verdict: StopReason, *, short: bool) -> None:
        """End the attempt for an external reason. `short`: no evidence, short timeouts."""
        if short:
            self._short.set()
        self._state.end(verdict)
        self._inbox.put_nowait((self._links[0].node, StopAsked()))

    async def conduct(self) -> AttemptResult:
        """The whole attempt. Every started rank has ended when this returns, or its node is not `clean`."""
        state = self._state
        for link in self._links:
            link.inbox = self._inbox
            if not link.alive:  # it was lost since it was chosen
                self._inbox.put_nowait((link.node, NodeLost()))
        try:
            await self._run_ranks()
            state.end_ranks(self._clock.now())
            await self._clear()
            if self._lost_in_clearing is not None and unexplained(state, await diagnosed(state, self._short)):
                state.lost(*self._lost_in_clearing)  # what was not reported may say why
            if state.connection_lost and not self._short.is_set():  # which are dead, and which could not be reached
                lost = [link for link in self._links if link.node in self._lost]
                waits = [asyncio.ensure_future(link.resolved.wait()) for link in lost]
                await asyncio.wait(waits, timeout=2 * RETURN_S + CLEAN_S)
                state.agents_ended({link.node: link.fate for link in lost if link.gone.is_set()})
            state.name_suspects()
        finally:
            for link in self._links:
                link.inbox = None
        state.stopped_s, times_s = self._clock.paused_s - self._paused_s, state.moments.durations_s(self._clock.now())
        return AttemptResult(state, await diagnosed(state, self._short), times_s)

    async def _run_ranks(self) -> None:
        """From clean nodes to the end of the ranks, or a verdict to end them."""
        try:
            where = await self._prepare()
            if where is not None:
                self._start(*where)
                while not self._state.over(self._clock.now()):
                    await self._next_message()
        except Exception:  # unexpected: fail this attempt, not the pilot
            self._state.verdict = StopReason(Outcome.UNKNOWN, "the pilot failed: " + traceback.format_exc(limit=-3))

    async def _prepare(self) -> tuple[str, int] | None:
        """Fork servers and the listening socket: its address and port, or None if the attempt is over already."""
        preload, env = self._workload.preload, self._run.env
        for number, link in enumerate(self._links):
            address = link.leaders_address() if number == 0 and link.on_this_host else None
            address = LOOPBACK if len(self._links) == 1 else address  # other hosts need not reach it
            prepare = Prepare(
                attempt=self._name,
                preload=preload,
                env=env,
                first=number == 0,
                address=address,
                ranks=self._run.gpus_per_node,
            )
            link.send(prepare)
        waiting = {link.node for link in self._links}
        where: tuple[str, int] | None = None
        while waiting and self._state.verdict is None:
            node, message = await self._next_message()
            if isinstance(message, Prepared) and message.attempt == self._name:
                waiting.discard(node)
                if message.master_addr is not None and message.master_port is not None:
                    where = message.master_addr, message.master_port
        return where if self._state.verdict is None else None

    def _start(self, address: str, port: int) -> None:
        self._began = True
        self._state.begin(self._clock.now())
        per_node = self._run.gpus_per_node
        for node, link in enumerate(self._links):
            first = replace(self._place, rank=node * per_node, node_rank=node, master_addr=address, master_port=port)
            link.send(
                Start(
                    attempt=self._name,
                    main=self._workload.main,
                    run=self._run.canonical_json(),
                    places=tuple(replace(first, rank=first.rank + i, local_rank=i) for i in range(per_node)),
                    takes_listener=self._workload.takes_listener,
                    one_process=self._workload.in_one_process(self._run),
                    slurm_variables=self._workload.slurm_variables,
                )
            )

    async def _next_message(self) -> tuple[str, OfAttempt | NodeLost | StopAsked | None]:
        """Wait for a message or the next deadline, and update the attempt's state."""
        timeout = max(0.0, self._state.next_check() - self._clock.now())
        # While an agent is unresponsive, nothing is known of its ranks: they are not late. Soon it is back, or lost,
        # which may arrive at the very end of the wait.
        try:
            node, message = await self._received(max(timeout, QUIET_CHECK_S) if self._quiet else timeout)
        except asyncio.TimeoutError:
            if not self._quiet and self._inbox.empty():
                self._state.known_since(max(link.known_since for link in self._links))
                self._state.check(self._clock.now())
            return "", None
        self._note(node, message)
        return node, message

    @property
    def _quiet(self) -> bool:
        return any(link.quiet for link in self._links)

    async def _received(self, timeout: float) -> tuple[str, OfAttempt | NodeLost | StopAsked]:
        """The next message. One that has arrived is never late, even where this process could not read it before."""
        if not self._inbox.empty():
            return self._inbox.get_nowait()
        return await asyncio.wait_for(self._inbox.get(), timeout)

    def _note(self, node: str, message: OfAttempt | NodeLost | StopAsked) -> None:
        if isinstance(message, NodeLost):
            self._lost.add(node)
            self._state.lost(node, message.how)
        elif isinstance(message, NotPrepared) and message.attempt == self._name:
            self._state.end(StopReason(message.outcome, f"{node}: {message.error}"))
        elif not isinstance(message, StopAsked):
            self._state.receive(message, self._clock.now())

    async def _clear(self) -> None:
        """Stop what still runs and wait until every node reports Clean."""
        living = [link for link in self._links if link.alive and link.node not in self._lost]
        grace_s = SHORT_GRACE_S if self._short.is_set() or self._state.all_measured else GRACE_S
        evidence = not self._short.is_set() and not all(rank.measurement or rank.exited for rank in self._state.ranks)
        for link in living:
            link.send(Stop(attempt=self._name, evidence=evidence, grace_s=grace_s, short=self._short.is_set()))
        patience_s = SHORT_GRACE_S + SHORT_CLEAN_S if self._short.is_set() else grace_s + CLEAN_S
        late = await self._wait_for_clean({link.node for link in living}, self._clock.now() + patience_s)
        # While the pilot is being ended, slow and dirty look equal. Where no rank started, an agent may still import.
        if self._began and not self._short.is_set():
            self._state.not_ended |= dict.fromkeys(late, ("its agent timed out",))
        for link in living:
            link.clean = link.clean and link.node not in self._state.not_ended

    async def _wait_for_clean(self, waiting: set[str], deadline: float) -> set[str]:
        """Wait until all of these nodes are clean or lost, or the deadline; returns those that are neither."""
        while waiting:
            try:
                node, message = await self._received(max(0.0, deadline - self._clock.now()))
            except asyncio.TimeoutError:
                if self._clock.now() < deadline:  # this process was stopped meanwhile, as its agents may be
                    continue
                break
            if isinstance(message, StopAsked) and self._short.is_set():  # SIGTERM came during a full teardown
                deadline = min(deadline, self._clock.now() + SHORT_GRACE_S + SHORT_CLEAN_S)
            elif isinstance(message, NodeLost):
                self._lost.add(node)
                self._lost_in_clearing = self._lost_in_clearing or (node, message.how)
                waiting.discard(node)
            elif isinstance(message, Clean) and message.attempt == self._name:
                waiting.discard(node)
                self._state.cleared(node, message)
            else:
                self._note(node, message)
        return waiting
