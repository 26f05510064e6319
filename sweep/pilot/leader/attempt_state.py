"""State of a running attempt: messages and times in, a verdict out; and its result, values for the record and the log.

Pure; times are of one monotonic clock.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from sweep.contract import Phase, Run
from sweep.diagnose.diagnose import diagnose
from sweep.diagnose.model import Diagnosis, RankEnd
from sweep.diagnose.scan import scan
from sweep.outcomes import Outcome
from sweep.pilot.job_spec import Limits
from sweep.pilot.leader.hang_suspects import innermost, suspects
from sweep.pilot.leader.node_fate import Fate
from sweep.pilot.leader.watchdog import StopReason, Watchdog
from sweep.pilot.messages import Busy, Clean, Failed, Heartbeat, Heartbeats, Measured, OfAttempt, RankExited

FURTHER_FAILURES_S = 2.0
"""after the first rank failed, how long the others may take to fail by themselves: their errors are evidence"""

ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP})

ENDED_BY = {
    Fate.DEAD: Outcome.NODE_FAIL,
    Fate.RELEASED: Outcome.PREEMPTED,
    Fate.CANCELLED: Outcome.PREEMPTED,
    Fate.ALIVE: Outcome.NETWORK,
    Fate.UNKNOWN: Outcome.NETWORK,
}
"""how an attempt ended, by what became of nodes whose agents ended, what explains most first"""


@dataclass
class Moments:
    """When an attempt reached each stage; None: it did not."""

    began: float
    first_iteration: float | None = None
    steady: float | None = None
    measured: float | None = None
    ended: float | None = None
    """its ranks ended, or were ordered to end"""

    def durations_s(self, now: float) -> dict[str, float]:
        """The record's durations, by column name."""
        ended = now if self.ended is None else self.ended
        times = {"teardown_s": now - ended, "total_s": now - self.began}
        times["start_s"] = (self.first_iteration or ended) - self.began
        if self.first_iteration is not None and self.steady is not None:
            times["first_iteration_s"] = self.steady - self.first_iteration
        if self.steady is not None and self.measured is not None:
            times["measure_s"] = self.measured - self.steady
            times["teardown_s"] = now - self.measured
        return times


class AttemptState:
    """Follows the ranks of one attempt, from before they start until their nodes are clean."""

    def __init__(self, name: str, run: Run, nodes: Sequence[str], limits: Limits, now: float) -> None:
        self.name = name
        self.ranks = [RankEnd(rank=rank, node=nodes[rank // run.gpus_per_node]) for rank in range(run.gpus)]
        self.verdict: StopReason | None = None
        """why it must be ended before its ranks end by themselves"""
        self.moments = Moments(now)
        self.clean: dict[str, Clean] = {}
        """node -> what it reported after its clean-up"""
        self.not_ended: dict[str, tuple[str, ...]] = {}
        """node that is not clean -> what is left there"""
        self.lost_nodes: list[str] = []
        """nodes that failed"""
        self.stopped_s = 0.0
        """for how long the pilot was stopped meanwhile"""
        self.connection_lost = False
        """whether a lost connection ended it"""
        self._watchdog = Watchdog([rank.node for rank in self.ranks], limits, now)
        self._failed_at: float | None = None

    @property
    def all_measured(self) -> bool:
        """Whether every rank has sent its measurement."""
        return all(rank.measurement is not None for rank in self.ranks)

    def begin(self, now: float) -> None:
        """The ranks start now."""
        self._watchdog.begin(now)

    def end(self, verdict: StopReason) -> None:
        """It must be ended. The first verdict holds."""
        if self.verdict is None:
            self.verdict = verdict

    def lost(self, node: str, how: str) -> None:
        """The connection to the agent of a node is lost. That alone accuses no node."""
        if self.verdict is None:
            self.connection_lost = True
            self.end(StopReason(Outcome.NETWORK, f"the connection to the agent on {node} was lost: {how}"))

    def agents_ended(self, fates: Mapping[str, Fate]) -> None:
        """The agents of these nodes ended, and so did the attempt, of lost connections. Only a dead node is accused."""
        for fate, outcome in ENDED_BY.items():
            nodes = [node for node, its in fates.items() if its is fate]
            if nodes and self.verdict is not None:
                self.lost_nodes = nodes if fate is Fate.DEAD else []
                text = f"{self.verdict.text}; {', '.join(nodes)}: {fate.value}"
                self.verdict = StopReason(outcome, text)
                return

    def over(self, now: float) -> bool:
        """Every rank ended, or the others' time after the first failure is up, or there is a verdict."""
        if self.verdict is not None or all(rank.exited for rank in self.ranks):
            return True
        return self._failed_at is not None and now >= self._failed_at + FURTHER_FAILURES_S

    def known_since(self, at: float) -> None:
        """Since when it is known without a gap what happens on all nodes."""
        self._watchdog.known_since = max(at, self._watchdog.known_since)

    def next_check(self) -> float:
        """When to check again, if no message comes before."""
        if self._failed_at is not None:  # the others then time out, as expected
            return self._failed_at + FURTHER_FAILURES_S
        return self._watchdog.next_deadline()

    def check(self, now: float) -> None:
        """Set a verdict if a deadline has passed."""
        if self._failed_at is None and self.verdict is None:
            self.verdict = self._watchdog.verdict(now)

    def receive(self, message: OfAttempt, now: float) -> None:
        """Process an agent's message; ignore one of another attempt."""
        if message.attempt != self.name:
            return
        match message:
            case Heartbeats():
                for heartbeat in message.heartbeats:
                    self._heartbeat(heartbeat, now - heartbeat.age_s)
            case Busy(writing=True):  # all start from scratch: the others may wait for that rank
                self._watchdog.known_since = now
            case Busy():
                for rank in message.ranks:
                    self._watchdog.busy(rank, now)
            case Measured():
                self.ranks[message.rank].measurement = message.measurement
                self.moments.measured = now
            case Failed():
                self.ranks[message.rank].failure = msgspec.structs.asdict(message.failure)
            case RankExited():
                self._exited(message, now)
            case _:
                pass

    def _heartbeat(self, heartbeat: Heartbeat, at: float) -> None:
        moments = self.moments
        if heartbeat.phase is not Phase.START and moments.first_iteration is None:
            moments.first_iteration = at
        if heartbeat.phase is Phase.STEADY and moments.steady is None:
            moments.steady = at
        self._watchdog.heartbeat(heartbeat.rank, heartbeat.phase, heartbeat.iteration, heartbeat.due_s, at)

    def _exited(self, message: RankExited, now: float) -> None:
        report = self.ranks[message.rank]
        report.exited, report.exit_code, report.signal = True, message.exit_code, message.signal
        report.ended_at_s = now - self.moments.began
        self._watchdog.ended(message.rank)
        if report.measurement is None and self._failed_at is None:
            self._failed_at = now

    def end_ranks(self, now: float) -> None:
        """They ended, or must be ended now: store each one's progress with the evidence."""
        self.moments.ended = now
        for number, progress in self._watchdog.ranks.items():
            at = "" if progress.iteration is None else f", iteration {progress.iteration}"
            self.ranks[number].progress = f"{progress.phase}{at}, last heartbeat {now - progress.at:.1f} s before"

    def cleared(self, node: str, message: Clean) -> None:
        """A node was cleaned, as far as possible."""
        for remains in message.ranks:
            report = self.ranks[remains.rank]
            report.log_tail, report.stacks = remains.tail, remains.stacks
            report.killed_by_us = report.killed_by_us or remains.killed
        self.clean[node] = message
        if message.not_ended:
            self.not_ended[node] = message.not_ended

    def name_suspects(self) -> None:
        """A hang whose ranks all stopped in the same iteration: find those not waiting with the others."""
        if self.verdict is None or self.verdict.outcome is not Outcome.HANG:
            return
        stacks = {number: rank.stacks for number, rank in enumerate(self.ranks) if rank.stacks}
        found = suspects(stacks)
        if found:
            named = ", ".join(f"rank {r} on {self.ranks[r].node} in {frame}" for r, frame in sorted(found.items())[:4])
            waiting = next(innermost(text) for rank, text in stacks.items() if rank not in found)
            text = f"{named}; the other {len(stacks) - len(found)} wait in {waiting}. {self.verdict.text}"
            self.verdict = StopReason(Outcome.HANG, text, tuple(sorted(found)))


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended: its state once its nodes are cleared, and what that means."""

    state: AttemptState
    diagnosis: Diagnosis
    times_s: dict[str, float]

    @property
    def message(self) -> str | None:
        """Why it failed; None where it did not."""
        outcome, verdict = self.diagnosis.outcome, self.state.verdict
        if outcome is None or outcome is Outcome.OK:
            return None
        return verdict.text if verdict is not None and verdict.outcome is outcome else self.diagnosis.evidence

    @property
    def signalled(self) -> bool:
        """Whether a rank died of a signal that the pilot did not send and that nothing explains: the SIGTERM of a job's
        step, or the SIGKILL that ranks get whose fork server had the SIGTERM first.
        """
        return self.diagnosis.outcome in (Outcome.CANCELLED, Outcome.UNKNOWN) and _signalled(self.state.ranks)

    @property
    def accused(self) -> tuple[str, ...]:
        """The nodes named by a hang's culprits, a lost agent or an Xid; none where all ranks stopped in one place."""
        state, outcome, verdict = self.state, self.diagnosis.outcome, self.state.verdict
        diagnosed = set() if self.diagnosis.node is None else {self.diagnosis.node}
        named: set[str] = set()
        if outcome is Outcome.NODE_FAIL:
            named = set(state.lost_nodes) or diagnosed
        elif outcome is Outcome.XID_HARDWARE:
            kernel = [(node, scan("\n".join(clean.kernel))) for node, clean in state.clean.items()]
            found = [(hit.weight, node) for node, hits in kernel for hit in hits if hit.outcome is outcome]
            # An Xid that a program, or a GPU elsewhere, causes accuses no node beside one whose GPU failed.
            named = diagnosed or {node for weight, node in found if weight == max(found)[0]}
        elif outcome is Outcome.HANG and verdict is not None and len(verdict.ranks) < len(state.ranks):
            named = {state.ranks[rank].node for rank in verdict.ranks}
        return tuple(sorted(named))


def unexplained(state: AttemptState, found: Diagnosis) -> bool:
    """Whether nothing that was reported says why it ended, nor that the scheduler may be ending the job."""
    return state.verdict is None and not _signalled(state.ranks) and found.outcome is Outcome.UNKNOWN


def _signalled(ranks: Sequence[RankEnd]) -> bool:
    return any(rank.signal in ENDING_SIGNALS and not rank.killed_by_us for rank in ranks)


def diagnosis_of(state: AttemptState) -> Diagnosis:
    """Success once every rank has measured, whatever happened during teardown."""
    if state.all_measured:
        return Diagnosis(Outcome.OK, "", "", None, None)
    verdict = state.verdict
    return diagnose(
        state.ranks,
        kernel=[line for clean in state.clean.values() for line in clean.kernel],
        verdict=verdict.outcome if verdict is not None else None,
        verdict_text=verdict.text if verdict is not None else "",
    )
