"""The state of a sweep, rebuilt from its journals. No status is stored that could disagree with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from sweep.outcomes import Outcome
from sweep.state.events import (
    AttemptStarted,
    CancelRequested,
    Event,
    NodeBad,
    NodeFit,
    NodeReleased,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    PilotWaits,
    Recorded,
    RecordFacts,
    RerunRequested,
    SessionBegan,
    SubmitDelayed,
    TriesRenewed,
)
from sweep.state.exclusion import Ledger, NodeReport, ReportVerdict, excluded, same_work, slow
from sweep.state.parts import parts_of
from sweep.state.retries import ELSEWHERE, OUTSIDE, attempt_that_counts, config_fault, may_retry, supersedes

PilotEvent: TypeAlias = PilotAlive | PilotIntended | PilotSubmitted | PilotWaits | PilotGone | PilotStarted | PilotEnded
NodeEvent: TypeAlias = NodeBad | NodeFit | NodeReleased


@dataclass(slots=True)
class Attempt:
    """One execution of a run, as known from the journals."""

    number: int
    pilot: str
    nodes: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    """None while there is no record"""
    message: str | None = None
    tokens_per_second_per_gpu: float | None = None
    peak_memory_bytes: float | None = None
    stopped: bool = False
    """it had lost, and was not measured in full"""


@dataclass(slots=True)
class RunState:
    """All attempts of one run."""

    attempts: dict[int, Attempt] = field(default_factory=dict)
    rerun_after: int = 0
    """the user requested a further attempt when this many had started"""
    renewed_after: int = 0
    """failures from outside of as many attempts no longer count: the user resumed the sweep after them"""

    @property
    def last(self) -> Attempt | None:
        """The attempt with the highest number."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    @property
    def ok(self) -> Attempt | None:
        """The attempt that counts, if it is ok."""
        if len(self.attempts) == 1:  # most runs; this is read for each of many thousands
            (only,) = self.attempts.values()
            return only if only.outcome is Outcome.OK else None
        number = attempt_that_counts(((n, a.outcome) for n, a in self.attempts.items()), self.rerun_after)
        counts = self.attempts.get(number) if number is not None else None
        return counts if counts is not None and counts.outcome is Outcome.OK else None

    def next_attempt(self) -> int | None:
        """The number of the attempt that may be claimed now, or None: in flight, done, or failed for good."""
        last = self.last
        if last is None:
            return 1
        if last.outcome is None:
            return None
        if self.rerun_after >= last.number:
            return last.number + 1
        if (ok := self.ok) is not None and ok.number > self.rerun_after:
            return None
        if last.number <= self.renewed_after and last.outcome in OUTSIDE:
            return last.number + 1
        return last.number + 1 if may_retry(*self._ended(after=self.renewed_after)) else None

    def avoid(self) -> frozenset[str]:
        """Nodes that the next attempt should avoid: an earlier one failed there in a way that a node may cause."""
        failed = [a for a in self.attempts.values() if a.outcome in ELSEWHERE]
        return frozenset(node for attempt in failed for node in attempt.nodes)

    def verdict_on(self, report: NodeReport) -> ReportVerdict:
        """The verdict of the other attempts on a report by one of them."""
        if config_fault(*self._ended()):
            return ReportVerdict.RUN
        later = [a for a in self.attempts.values() if a.outcome is Outcome.OK and a.number > report.attempt]
        return ReportVerdict.NODE if any(report.node not in a.nodes for a in later) else ReportVerdict.OPEN

    def _ended(self, after: int = 0) -> tuple[list[Outcome], list[frozenset[str]]]:
        """Outcomes and nodes of the attempts that ended, oldest first; of the first ``after`` only its own failures."""
        attempts = (a for number, a in sorted(self.attempts.items()) if number > after or a.outcome not in OUTSIDE)
        ended = [(a.outcome, frozenset(a.nodes)) for a in attempts if a.outcome is not None]
        return [outcome for outcome, _ in ended], [nodes for _, nodes in ended]


@dataclass
class PilotState:
    """One pilot, from the intent to submit it to its end. Its journal may be seen before the launcher's."""

    name: str
    token: str = ""
    nodes: int = 0
    node_group: str = ""
    intended_at: float = 0.0
    intent_order: float = 0.0
    """of its intent, among all lines (``Event.order``)"""
    elsewhere: bool = False
    """it excludes nodes on which its retries failed"""
    cluster: str = ""
    """that its job id is of; empty where unknown"""
    job_id: str | None = None
    waits: str | None = None
    """why the scheduler leaves it in the queue, as it says; None while unknown"""
    started_at: float | None = None
    last_line_at: float | None = None
    """time of its leader's last line"""
    node_names: tuple[str, ...] = ()
    heartbeats: int = 0
    """number of its leader's heartbeats"""
    ended: str | None = None
    """why it ended, from its own last line"""
    ended_at: float | None = None
    """when it ended: by its own last line, by the scheduler, or else when its leader last wrote a line"""
    began_at: float | None = None
    """when its job began, by the scheduler; as ``released_at``, when it ended"""
    released_at: float | None = None
    lost_at: dict[str, float] = field(default_factory=dict)
    """node -> when it failed, or could not be cleaned, and was no longer used"""
    spent: dict[str, float] = field(default_factory=dict)
    """node-seconds of the attempts that it recorded, by part (``sweep.state.parts``)"""
    gone: str | None = None
    """from the launcher: the job is confirmed gone (the scheduler's state), or was rejected"""

    @property
    def open(self) -> bool:
        """Not yet known to be gone."""
        return self.gone is None

    @property
    def running(self) -> bool:
        """Its leader has started, and has not written its last line. Its job may outlive that line by some seconds."""
        return self.open and self.started_at is not None and self.ended is None

    def wrote(self, event: Event) -> None:
        """Note a line of its leader."""
        self.last_line_at = max(event.time, self.last_line_at or event.time)

    def recorded(self, event: Recorded[RecordFacts], attempt: Attempt) -> None:
        """Note the record of an attempt, which took node time."""
        self.wrote(event)
        ended_at = attempt.ended_at or event.time
        width, spent = len(attempt.nodes), self.spent
        for part, seconds in parts_of(event.record, max(0.0, ended_at - (attempt.started_at or ended_at))).items():
            spent[part] = spent.get(part, 0.0) + width * seconds
        if event.record.outcome is Outcome.NODE_FAIL:
            self.lost_at |= dict.fromkeys(event.accused, ended_at)


@dataclass
class SweepState:
    """The state of a sweep. `apply_all` accepts events in any order within a run's own causality."""

    runs: dict[str, RunState] = field(default_factory=dict)
    pilots: dict[str, PilotState] = field(default_factory=dict)
    nodes: Ledger = field(default_factory=Ledger)
    """reports on nodes"""
    cancelled_at: float = 0.0
    """when the user last cancelled, in the lines' order"""
    session_at: float = 0.0
    """when the current launcher session began, in the lines' order"""
    latest: float = 0.0
    """the latest line's place in their order"""
    delayed: str | None = None
    """why the scheduler rejected the last pilot; None if it accepted it"""
    delayed_at: float = 0.0
    touched: list[str] = field(default_factory=list)
    """run_ids in the order of their events: a reader continues from its last position"""

    @property
    def cancelled(self) -> bool:
        """The user cancelled, and no launcher session has started since."""
        return self.cancelled_at > self.session_at

    @property
    def excluded_nodes(self) -> dict[str, str]:
        """Node -> why later runs and pilots avoid it."""
        return excluded(self.nodes, lambda report: self.run_state(report.run_id).verdict_on(report))

    @property
    def slow_nodes(self) -> dict[str, str]:
        """Node -> why, for those that runs alone make slow: a check may show that they are not."""
        bad = self.excluded_nodes
        return {node: why for node, why in slow(self.nodes).items() if bad[node] == why}

    def apply_all(self, events: Iterable[Event]) -> None:
        """Apply events. Kinds that do not change the state (alive, …) are ignored."""
        for event in events:
            self.latest = max(self.latest, event.order)
            if isinstance(event, Recorded):
                _record(event, self)
            elif isinstance(event, AttemptStarted):
                _start(event, self)
            elif isinstance(event, PilotEvent):
                _apply_to_pilot(event, self)
            elif isinstance(event, NodeEvent):
                _apply_to_node(event, self)
            else:
                _apply(event, self)

    def run_state(self, run_id: str) -> RunState:
        """The state of a run, empty where nothing happened to it yet. Read-only."""
        return self.runs.get(run_id) or RunState()

    def run(self, run_id: str) -> RunState:
        """The state of a run, empty where nothing happened to it yet. For callers that change it."""
        self.touched.append(run_id)
        return self.runs.get(run_id) or self.runs.setdefault(run_id, RunState())

    def pilot(self, name: str) -> PilotState:
        """The pilot of that name, created if unknown."""
        return self.pilots.get(name) or self.pilots.setdefault(name, PilotState(name))

    def has_record(self, run_id: str, number: int) -> bool:
        """Does the attempt have a record?"""
        attempt = self.run_state(run_id).attempts.get(number)
        return attempt is not None and attempt.outcome is not None

    def attempt(self, run_id: str, number: int, pilot: str) -> Attempt:
        """The attempt, created if unknown."""
        attempts = self.run(run_id).attempts
        return attempts.get(number) or attempts.setdefault(number, Attempt(number, pilot))


def _start(event: AttemptStarted, sweep_state: SweepState) -> None:
    attempt = sweep_state.attempt(event.run_id, event.attempt, event.pilot)
    attempt.started_at = event.time
    attempt.nodes = event.nodes
    if (pilot := sweep_state.pilots.get(event.pilot)) is not None:
        pilot.wrote(event)
        for node in event.nodes if pilot.lost_at else ():
            pilot.lost_at.pop(node, None)


def _apply(event: Event, sweep_state: SweepState) -> None:
    match event:
        case SessionBegan():
            sweep_state.session_at = max(event.order, sweep_state.session_at)
        case CancelRequested():
            sweep_state.cancelled_at = max(event.order, sweep_state.cancelled_at)
        case SubmitDelayed():
            sweep_state.delayed, sweep_state.delayed_at = event.reason, event.time
        case RerunRequested():
            run = sweep_state.run(event.run_id)
            run.rerun_after = max(run.rerun_after, event.after)
        case TriesRenewed():
            for run_id, number in event.after.items():
                run = sweep_state.run(run_id)
                run.renewed_after = max(run.renewed_after, number)


def _apply_to_pilot(event: PilotEvent, sweep_state: SweepState) -> None:
    pilot = sweep_state.pilot(event.pilot)
    match event:
        case PilotAlive():
            pilot.heartbeats += 1
            pilot.wrote(event)
        case PilotIntended():
            pilot.token = event.token
            pilot.nodes = event.nodes
            pilot.intended_at, pilot.intent_order = event.time, event.order
            pilot.node_group = event.node_group
            pilot.elsewhere = event.elsewhere
            pilot.cluster = event.cluster
        case PilotSubmitted():
            pilot.job_id = event.job_id
            sweep_state.delayed = None
        case PilotWaits():
            pilot.waits = event.reason
        case PilotGone():
            pilot.gone = event.word
            pilot.released_at = event.ended_at or pilot.released_at
            pilot.ended_at = pilot.ended_at or event.ended_at or pilot.last_line_at or event.time
        case PilotStarted():
            pilot.started_at = pilot.started_at or event.time  # written again when further nodes have joined
            pilot.node_names = event.nodes
            pilot.job_id, pilot.began_at = event.job_id, event.began_at
            pilot.gone = None  # a submission that was given up but started after all
            pilot.wrote(event)
        case PilotEnded():
            pilot.ended, pilot.ended_at = event.reason, event.time


def _apply_to_node(event: NodeEvent, sweep_state: SweepState) -> None:
    ledger, node = sweep_state.nodes, event.node
    match event:
        case NodeBad():
            ledger.reports.append(NodeReport(node=node, time=event.order, reason=event.reason))
            if (pilot := sweep_state.pilots.get(event.pilot or "")) is not None:
                pilot.lost_at.setdefault(node, event.time)
        case NodeFit():
            ledger.fit_at[node] = max(event.time, ledger.fit_at.get(node, event.time))
        case NodeReleased():
            ledger.cleared_at[node] = max(event.order, ledger.cleared_at.get(node, event.order))


def _record(event: Recorded[RecordFacts], sweep_state: SweepState) -> None:
    record = event.record
    attempt = sweep_state.attempt(record.run_id, record.attempt, record.pilot)
    if not supersedes(record.outcome, attempt.outcome):
        return
    twice, attempt.outcome = record.outcome is attempt.outcome, record.outcome
    attempt.message, attempt.ended_at = record.message, record.ended_at
    attempt.started_at = attempt.started_at or record.started_at
    attempt.nodes = attempt.nodes or tuple(record.node_names or ())
    attempt.tokens_per_second_per_gpu = record.tokens_per_second_per_gpu
    attempt.peak_memory_bytes = record.peak_memory_bytes
    attempt.stopped = record.stopped is not None
    if (pilot := sweep_state.pilots.get(event.pilot or "")) is not None and not twice:
        pilot.recorded(event, attempt)
    if record.outcome is Outcome.OK and same_work(record):
        sweep_state.nodes.measured(record.run_id, attempt.nodes, event.slow_node, event.time)
    if not event.accused:
        return
    reason = f"{record.outcome} in {record.run_id}.{record.attempt}: {attempt.message or 'no message'}"[:300]
    sweep_state.nodes.reports += [
        NodeReport(
            node=node,
            time=event.time,
            reason=reason,
            outcome=record.outcome,
            run_id=record.run_id,
            attempt=record.attempt,
        )
        for node in event.accused
    ]
