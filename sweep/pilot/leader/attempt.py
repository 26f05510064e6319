"""The leader's side of one attempt: prepare nodes, start ranks, follow them, end them, report the result.

What messages mean for the attempt is in ``attempt_state``; this module sends, waits and measures time.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Sequence

from sweep.contract import Place, Run, Workload
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt_result import AttemptResult
from sweep.pilot.leader.attempt_state import AttemptState
from sweep.pilot.leader.nodes import Inbox, Link, NodeLost, StopAsked
from sweep.pilot.leader.watchdog import StartLimits, Verdict
from sweep.pilot.limits import Limits
from sweep.pilot.messages import Clean, NotPrepared, OfAttempt, Prepare, Prepared, Start, Stop

GRACE_S = 8.0
SHORT_GRACE_S = 1.0
CLEAN_S = 40.0
"""beyond the grace period: evidence, kills, and the wait for the GPUs to be empty"""
SHORT_CLEAN_S = 1.0
"""the same when the scheduler is ending the job: all within its KillWait less 2 s"""


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
        start_limits: StartLimits | None = None,
        gpu: str | None = None,
    ) -> None:
        self._name = name
        self._run = run
        self._workload = workload
        self._links = list(links)
        self._inbox: Inbox = asyncio.Queue()
        self._seed = seed
        self._start_limits = start_limits
        """limits of a start with preload, on all nodes"""
        self._gpu = gpu or ""
        self._state = AttemptState(name, run, [link.node for link in links], limits, time.monotonic())
        self._short = False
        self._began = False
        """Start was sent"""

    def stop(self, verdict: Verdict, *, short: bool) -> None:
        """End the attempt for an external reason. `short`: no evidence, short timeouts."""
        self._short = self._short or short
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
            state.end_ranks(time.monotonic())
            await self._clear()
            state.name_suspects()
        finally:
            for link in self._links:
                link.inbox = None
        return AttemptResult.of(state, time.monotonic())

    async def _run_ranks(self) -> None:
        """From clean nodes to the end of the ranks, or a verdict to end them."""
        try:
            where = await self._prepare()
            if where is not None:
                self._start(*where)
                while not self._state.over(time.monotonic()):
                    await self._next_message()
        except Exception:  # unexpected: fail this attempt, not the pilot
            self._state.verdict = Verdict(Outcome.UNKNOWN, "the pilot failed: " + traceback.format_exc(limit=-3))

    async def _prepare(self) -> tuple[str, int] | None:
        """Zygotes and the listening socket: its address and port, or None if the attempt is over already."""
        preload, env = self._workload.preload, self._run.env
        for number, link in enumerate(self._links):
            ranks = self._run.gpus_per_node
            link.send(Prepare(attempt=self._name, preload=preload, env=env, first=number == 0, ranks=ranks))
        waiting = {link.node for link in self._links}
        where: tuple[str, int] | None = None
        while waiting and self._state.verdict is None:
            node, message = await self._next_message()
            if isinstance(message, NotPrepared) and message.attempt == self._name:
                self._state.end(Verdict(message.outcome, f"{node}: {message.error}"))
            elif isinstance(message, Prepared) and message.attempt == self._name:
                waiting.discard(node)
                if not message.preloaded:
                    self._start_limits = None
                if message.master_addr is not None and message.master_port is not None:
                    where = message.master_addr, message.master_port
        return where if self._state.verdict is None else None

    def _start(self, address: str, port: int) -> None:
        self._began = True
        self._state.begin(time.monotonic(), self._start_limits)
        for number, link in enumerate(self._links):
            link.send(
                Start(
                    attempt=self._name,
                    main=self._workload.main,
                    run=self._run.canonical_json(),
                    places=self._places(number, address, port),
                    takes_listener=self._workload.takes_listener,
                    one_process=self._workload.in_one_process(self._run),
                )
            )

    def _places(self, node: int, address: str, port: int) -> tuple[Place, ...]:
        """The places of the ranks on a node, given its number."""
        per_node = self._run.gpus_per_node
        return tuple(
            Place(
                rank=node * per_node + local,
                world_size=self._run.gpus,
                local_rank=local,
                local_world_size=per_node,
                node_rank=node,
                master_addr=address,
                master_port=port,
                seed=self._seed,
                gpu=self._gpu,
            )
            for local in range(per_node)
        )

    async def _next_message(self) -> tuple[str, OfAttempt | NodeLost | StopAsked | None]:
        """Wait for a message or the next deadline, and update the attempt's state."""
        try:
            timeout = max(0.0, self._state.next_check() - time.monotonic())
            node, message = await asyncio.wait_for(self._inbox.get(), timeout)
        except asyncio.TimeoutError:
            self._state.check(time.monotonic())
            return "", None
        self._note(node, message)
        return node, message

    def _note(self, node: str, message: OfAttempt | NodeLost | StopAsked) -> None:
        if isinstance(message, NodeLost):
            self._state.lost(node)
        elif not isinstance(message, StopAsked):
            self._state.receive(message, time.monotonic())

    async def _clear(self) -> None:
        """Stop what still runs and wait until every node reports Clean."""
        living = [link for link in self._links if link.alive]
        grace_s = SHORT_GRACE_S if self._short or self._state.all_measured else GRACE_S
        evidence = not self._short and not all(rank.measurement or rank.exited for rank in self._state.ranks)
        for link in living:
            link.send(Stop(attempt=self._name, evidence=evidence, grace_s=grace_s, short=self._short))
        patience_s = SHORT_GRACE_S + SHORT_CLEAN_S if self._short else grace_s + CLEAN_S
        late = await self._wait_for_clean({link.node for link in living}, time.monotonic() + patience_s)
        # A pilot that is being ended cannot distinguish slow from dirty. Where no rank started, an agent may
        # still import.
        if self._began and not self._short:
            self._state.remains.not_ended |= dict.fromkeys(late, ("its agent timed out",))
        for link in living:
            link.clean = link.clean and link.node not in self._state.remains.not_ended

    async def _wait_for_clean(self, waiting: set[str], deadline: float) -> set[str]:
        """Wait until all of these nodes are clean or lost, or the deadline; returns those that are neither."""
        while waiting:
            try:
                node, message = await asyncio.wait_for(self._inbox.get(), max(0.0, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                break
            if isinstance(message, StopAsked) and self._short:  # the scheduler's SIGTERM came during a full teardown
                deadline = min(deadline, time.monotonic() + SHORT_GRACE_S + SHORT_CLEAN_S)
            elif isinstance(message, NodeLost):
                waiting.discard(node)
            elif isinstance(message, Clean) and message.attempt == self._name:
                waiting.discard(node)
                self._state.cleared(node, message)
            else:
                self._note(node, message)
        return waiting
