"""One attempt, as the leader conducts it: prepare nodes, start ranks, follow them, end them, say how it ended."""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.contract import Measurement, Phase, Run, Workload
from sweep.diagnose.diagnose import diagnose
from sweep.diagnose.model import Diagnosis, Facts, RankEnd
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt_result import AttemptResult, RankReport
from sweep.pilot.leader.hang_suspects import innermost, suspects
from sweep.pilot.leader.nodes import Link
from sweep.pilot.leader.watchdog import Learned, Verdict, Watchdog
from sweep.pilot.limits import Limits
from sweep.pilot.messages import is_beat

SETTLE_S = 2.0
"""after the first rank failed, how long the others may take to fail by themselves: their own words are evidence"""
GRACE_S = 8.0
SHORT_GRACE_S = 1.0
WHOLE_NUMBERS = ("peak_allocated_bytes", "peak_reserved_bytes", "parameters")
CLEAN_S = 40.0
"""beyond the grace: evidence, kills, and the wait for the GPUs to be empty"""
SHORT_CLEAN_S = 1.0
"""the same when the scheduler counts the seconds: all within its KillWait less 2 s"""


class AttemptRunner:
    """Conducts one attempt. `stop` may be called at any time, from a signal handler too."""

    def __init__(
        self,
        name: str,
        run: Run,
        workload: Workload,
        links: Sequence[Link],
        limits: Limits,
        seed: int,
        learned: Learned | None = None,
    ) -> None:
        self._name = name
        self._run = run
        self._workload = workload
        self._links = list(links)
        self._inbox: asyncio.Queue[tuple[Link, dict[str, Any]]] = asyncio.Queue()
        self._seed = seed
        self._learned = learned
        """limits of a start from a warm image, on all nodes"""
        per_node = run.gpus_per_node
        self._ranks = [RankReport(links[rank // per_node].node) for rank in range(run.gpus)]
        self._places = {rank: report.node for rank, report in enumerate(self._ranks)}
        self._started = time.monotonic()
        self._watchdog = Watchdog.over(run.gpus, limits, self._started)
        self._verdict: Verdict | None = None
        self._short = False
        self._began = False
        """ranks were ordered"""
        self._failed_at: float | None = None
        self._marks: dict[str, float] = {}
        self._kernel: dict[str, list[str]] = {}
        self._removed: dict[str, list[str]] = {}
        self._gone: list[str] = []

    def stop(self, verdict: Verdict, *, short: bool) -> None:
        """End the attempt for a reason from outside. `short`: no evidence, little patience."""
        self._short = self._short or short
        if self._verdict is None:
            self._verdict = verdict
        self._inbox.put_nowait((self._links[0], {"is": "wake"}))

    async def conduct(self) -> AttemptResult:
        """The whole attempt. Every rank that began has ended when this returns, or its node is not `clean`."""
        for link in self._links:
            link.inbox = self._inbox
            if not link.alive:  # it went between the choice and here
                self._inbox.put_nowait((link, {"is": "gone"}))
        try:
            await self._run_ranks()
            self._marks["ended"] = time.monotonic()
            self._note_progress()
            not_cleaned = await self._clear()
            self._name_suspects()
        finally:
            for link in self._links:
                link.inbox = None
        return self._result(not_cleaned)

    async def _run_ranks(self) -> None:
        """From a clean node to the end of the ranks, or the reason to end them."""
        try:
            where = await self._prepare()
            if where is not None:
                self._start(*where)
                await self._follow()
        except Exception:  # something nobody thought of: it costs this attempt, not the pilot
            self._verdict = Verdict(Outcome.UNKNOWN, "the pilot failed: " + traceback.format_exc(limit=-3))

    async def _prepare(self) -> tuple[str, int] | None:
        """Warm images and the rendezvous socket: its address and port, or None where the attempt is over already."""
        for number, link in enumerate(self._links):
            link.send({"do": "prepare", "attempt": self._name, **self._image(), "first": number == 0})
        waiting = {link.node for link in self._links}
        where: tuple[str, int] | None = None
        while waiting and self._verdict is None:
            link, message = await self._next_message()
            if message["is"] == "prepared" and message["attempt"] == self._name:
                waiting.discard(link.node)
                if message.get("cold"):
                    self._learned = None
                if "error" in message:
                    self._verdict = Verdict(Outcome(message["outcome"]), f"{link.node}: {message['error']}")
                if "port" in message:
                    where = message["address"], message["port"]
        return where if self._verdict is None else None

    def _start(self, address: str, port: int) -> None:
        self._began = True
        self._watchdog.begin(time.monotonic(), self._learned)
        per_node = self._run.gpus_per_node
        for number, link in enumerate(self._links):
            ranks = [{"rank": number * per_node + local, "local_rank": local} for local in range(per_node)]
            place = {
                "world_size": self._run.gpus,
                "local_world_size": per_node,
                "node_rank": number,
                "master_addr": address,
                "master_port": port,
                "seed": self._seed,
            }
            link.send(
                {
                    "do": "start",
                    "attempt": self._name,
                    "main": self._workload.main,
                    "takes_listener": self._workload.takes_listener,
                    "one_process": self._workload.in_one_process(self._run),
                    "run": self._run.canonical_json(),
                    "ranks": ranks,
                    "place": place,
                    **self._image(),
                }
            )

    def _image(self) -> dict[str, Any]:
        return {"preload": list(self._workload.preload), "env": dict(self._run.env)}

    async def _follow(self) -> None:
        """Until every rank ended, or the attempt must be ended."""
        while self._verdict is None and not all(rank.exited for rank in self._ranks):
            if self._failed_at is not None and time.monotonic() >= self._failed_at + SETTLE_S:
                return
            await self._next_message()

    async def _next_message(self) -> tuple[Link, dict[str, Any]]:
        """Wait for a message or the next deadline; what it means for the attempt is noted here."""
        deadline = self._watchdog.next_deadline()
        if self._failed_at is not None:  # the others fall silent, of course
            deadline = self._failed_at + SETTLE_S
        try:
            timeout = max(0.0, deadline - time.monotonic())
            link, message = await asyncio.wait_for(self._inbox.get(), timeout)
        except asyncio.TimeoutError:
            if self._failed_at is None and self._verdict is None:
                self._verdict = self._watchdog.verdict(time.monotonic(), self._places)
            return self._links[0], {"is": "wake"}
        self._note(link, message)
        return link, message

    def _note(self, link: Link, message: Mapping[str, Any]) -> None:
        if message["is"] == "gone" and self._verdict is None:
            self._gone.append(link.node)
            self._verdict = Verdict(Outcome.NODE_FAIL, f"the agent on {link.node} is gone")
        if message.get("attempt") != self._name:
            return
        if message["is"] == "beats":
            self._note_beats(message["beats"])
        elif message["is"] == "told":
            self._note_told(self._ranks[message["rank"]], message["message"])
        elif message["is"] == "busy":
            for rank in message["ranks"]:
                self._watchdog.busy(rank, time.monotonic())
        elif message["is"] == "exit":
            self._note_exit(message["rank"], message["code"], message.get("signal"))

    def _note_beats(self, beats: Sequence[Sequence[Any]]) -> None:
        now = time.monotonic()
        for rank, phase_name, iteration, due_s, age_s in beats:
            if not is_beat(phase_name, iteration, due_s):
                continue
            phase = Phase(phase_name)
            if phase is not Phase.START:
                self._marks.setdefault("first_iteration", now - age_s)
            if phase is Phase.STEADY:
                self._marks.setdefault("steady", now - age_s)
            self._watchdog.beat(rank, phase, iteration, due_s, now - age_s)

    def _note_told(self, report: RankReport, message: Mapping[str, Any]) -> None:
        values = {key: value for key, value in message.items() if key != "kind"}
        if message.get("kind") == "measurement":
            for name in WHOLE_NUMBERS:
                if isinstance(value := values.get(name), float) and math.isfinite(value):
                    values[name] = round(value)  # worked out of GiB
            try:
                report.measurement = Measurement(**values)
            except TypeError as error:  # a workload of someone else: its mistake is the attempt's, not the pilot's
                report.failure = _failure({"type": "TypeError", "message": error})
            self._marks["measured"] = time.monotonic()
        elif message.get("kind") == "failure":
            report.failure = _failure(values)

    def _note_exit(self, rank: int, code: int | None, number: int | None) -> None:
        report = self._ranks[rank]
        report.exited, report.exit_code, report.signal = True, code, number
        report.ended_at_s = time.monotonic() - self._started
        self._watchdog.ended(rank)
        if report.measurement is None and self._failed_at is None:
            self._failed_at = time.monotonic()

    async def _clear(self) -> dict[str, list[str]]:
        """Stop what still runs and have every node say that it is clean. Node -> what could not be ended."""
        living = [link for link in self._links if link.alive]
        wants_evidence = not self._short and not all(r.measurement or r.exited for r in self._ranks)
        grace_s = SHORT_GRACE_S if self._short or self._all_measured() else GRACE_S
        for link in living:
            link.send(
                {
                    "do": "stop",
                    "attempt": self._name,
                    "evidence": wants_evidence,
                    "grace_s": grace_s,
                    "short": self._short,
                }
            )
        waiting = {link.node for link in living}
        not_cleaned: dict[str, list[str]] = {}
        deadline = time.monotonic() + (SHORT_GRACE_S + SHORT_CLEAN_S if self._short else grace_s + CLEAN_S)
        while waiting:
            try:
                link, message = await asyncio.wait_for(self._inbox.get(), max(0.0, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                break
            if message["is"] == "wake" and self._short:  # the scheduler's SIGTERM came amid a full teardown
                deadline = min(deadline, time.monotonic() + SHORT_GRACE_S + SHORT_CLEAN_S)
            elif message["is"] == "gone":
                waiting.discard(link.node)
            elif message["is"] == "clean" and message["attempt"] == self._name:
                waiting.discard(link.node)
                self._note_clean(message)
                self._kernel[link.node] = message["kernel"]
                if message["removed"]:
                    self._removed[link.node] = message["removed"]
                if message["left"]:
                    not_cleaned[link.node] = message["left"]
            else:
                self._note(link, message)
        not_cleaned |= self._silent(waiting)
        for link in living:
            link.clean = link.clean and link.node not in not_cleaned
        return not_cleaned

    def _silent(self, nodes: set[str]) -> dict[str, list[str]]:
        """Nodes that did not say that they are clean; a pilot told to end has no time to tell slow from dirty.

        Where no rank began, an agent that does not answer is still importing.
        """
        return {} if self._short or not self._began else {node: ["its agent did not answer in time"] for node in nodes}

    def _note_progress(self) -> None:
        """Where each rank stood: kept with the evidence."""
        now = time.monotonic()
        for number, beat in self._watchdog.ranks.items():
            where = f"{beat.phase}" + (f", iteration {beat.iteration}" if beat.iteration is not None else "")
            self._ranks[number].progress = f"{where}, last beat {now - beat.at:.1f} s before"

    def _note_clean(self, message: Mapping[str, Any]) -> None:
        for rank, tail in message["tails"].items():
            self._ranks[int(rank)].tail = tail
        for rank, stacks in message["stacks"].items():
            self._ranks[int(rank)].stacks = stacks
        for rank in message["killed"]:
            self._ranks[rank].killed_by_us = True

    def _name_suspects(self) -> None:
        """A hang whose ranks all stopped in the same iteration: their stacks tell who is not where the others wait."""
        if self._verdict is None or self._verdict.outcome is not Outcome.HANG:
            return
        stacks = {number: rank.stacks for number, rank in enumerate(self._ranks) if rank.stacks}
        found = suspects(stacks)
        if found:
            named = ", ".join(f"rank {r} on {self._places[r]} in {frame}" for r, frame in sorted(found.items())[:4])
            waiting = next(innermost(text) for rank, text in stacks.items() if rank not in found)
            text = f"{named}; the other {len(stacks) - len(found)} wait in {waiting}. {self._verdict.text}"
            self._verdict = Verdict(Outcome.HANG, text, tuple(sorted(found)))

    def _all_measured(self) -> bool:
        return all(rank.measurement is not None for rank in self._ranks)

    def _result(self, not_cleaned: dict[str, list[str]]) -> AttemptResult:
        diagnosis = self._diagnose()
        message = None
        if diagnosis.outcome is not None and diagnosis.outcome is not Outcome.OK:
            message = self._verdict.text if self._verdict is not None else diagnosis.evidence
        return AttemptResult(
            diagnosis, message, self._ranks, self._times(), not_cleaned, self._accused(diagnosis), self._removed
        )

    def _accused(self, diagnosis: Diagnosis) -> tuple[str, ...]:
        """The nodes that a hang's culprits, a lost agent or an Xid name; none where all ranks stand alike."""
        named: set[str | None] = set()
        if diagnosis.outcome is Outcome.NODE_FAIL:
            named = set(self._gone) or {diagnosis.node}
        elif diagnosis.outcome is Outcome.XID_HARDWARE:
            named = {node for node, lines in self._kernel.items() if any("Xid" in line for line in lines)}
            named = named or {diagnosis.node}
        elif diagnosis.outcome is Outcome.HANG and self._verdict is not None:
            culprits = self._verdict.ranks if len(self._verdict.ranks) < len(self._ranks) else ()
            named = {self._places[rank] for rank in culprits}
        return tuple(sorted(node for node in named if node is not None))

    def _diagnose(self) -> Diagnosis:
        """Every rank's measurement in hand is success, however a rank's teardown went after it."""
        if self._all_measured():
            return Diagnosis(Outcome.OK, "", "", None, None)
        ends = [
            RankEnd(
                rank=number,
                node=r.node,
                exit_code=r.exit_code,
                signal=r.signal,
                ended_at_s=r.ended_at_s,
                failure=r.failure,
                log_tail=r.tail,
                killed_by_us=r.killed_by_us,
            )
            for number, r in enumerate(self._ranks)
        ]
        verdict = self._verdict
        facts = Facts(
            ranks=ends,
            kernel=[line for lines in self._kernel.values() for line in lines],
            verdict=verdict.outcome if verdict is not None else None,
            verdict_text=verdict.text if verdict is not None else "",
        )
        return diagnose(facts)

    def _times(self) -> dict[str, float]:
        marks = self._marks
        now = time.monotonic()
        times = {"teardown_s": now - marks["ended"], "total_s": now - self._started}
        first, steady, measured = (marks.get(key) for key in ("first_iteration", "steady", "measured"))
        times["start_s"] = (first or marks["ended"]) - self._started
        if first is not None and steady is not None:
            times["first_iteration_s"] = steady - first
        if steady is not None and measured is not None:
            times["measure_s"] = measured - steady
            times["teardown_s"] = now - measured
        return times


def _failure(told: Mapping[str, Any]) -> dict[str, str]:
    """A failure as texts of bounded length: a workload of someone else may tell it in any form."""
    return {
        "type": str(told.get("type") or "Exception")[:200],
        "message": str(told.get("message") or "")[:4000],
        "traceback": str(told.get("traceback") or "")[-16_000:],
    }
