"""The result of an attempt, from its state: values for the record and the log. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweep.contract import Run
from sweep.diagnose.diagnose import diagnose
from sweep.diagnose.model import Diagnosis, RankEnd
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt_state import AttemptState

ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP})


@dataclass
class AttemptResult:
    """The result of an attempt, for the record and the log."""

    diagnosis: Diagnosis
    message: str | None
    ranks: list[RankEnd]
    times_s: dict[str, float]
    not_cleaned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """node -> processes that could not be killed there"""
    accused: tuple[str, ...] = ()
    """the nodes that the outcome names"""
    removed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """node -> files of the attempt that had to be removed from /dev/shm"""
    stopped_s: float = 0.0
    """for how long the pilot was stopped meanwhile; not part of times_s"""

    @classmethod
    def none(cls, run: Run, nodes: Sequence[str], outcome: Outcome, message: str) -> AttemptResult:
        """The result of an attempt of which only the outcome is known."""
        ranks = [RankEnd(rank=rank, node=nodes[rank // run.gpus_per_node]) for rank in range(run.gpus)]
        return cls(Diagnosis(outcome, message, "", None, None), message, ranks, {})

    @property
    def signalled(self) -> bool:
        """Whether a rank died of a signal that the pilot did not send and that nothing explains: the SIGTERM of a job's
        step, or the SIGKILL that ranks get whose fork server had the SIGTERM first.
        """
        if self.diagnosis.outcome not in (Outcome.CANCELLED, Outcome.UNKNOWN):
            return False
        return _signalled(self.ranks)

    @classmethod
    def of(cls, state: AttemptState, now: float) -> AttemptResult:
        """The result of an attempt whose nodes are cleared."""
        diagnosis = _diagnosis(state)
        message = None
        if diagnosis.outcome is not None and diagnosis.outcome is not Outcome.OK:
            message = diagnosis.evidence
            if state.verdict is not None and state.verdict.outcome is diagnosis.outcome:
                message = state.verdict.text
        return cls(
            diagnosis,
            message,
            state.ranks,
            state.moments.durations_s(now),
            state.remains.not_ended,
            _accused(state, diagnosis),
            state.remains.removed,
            state.stopped_s,
        )


def unexplained(state: AttemptState) -> bool:
    """Whether nothing that was reported says why it ended, nor that the scheduler may be ending the job."""
    return state.verdict is None and not _signalled(state.ranks) and _diagnosis(state).outcome is Outcome.UNKNOWN


def _signalled(ranks: Sequence[RankEnd]) -> bool:
    return any(rank.signal in ENDING_SIGNALS and not rank.killed_by_us for rank in ranks)


def _diagnosis(state: AttemptState) -> Diagnosis:
    """Success once every rank has measured, whatever happened during teardown."""
    if state.all_measured:
        return Diagnosis(Outcome.OK, "", "", None, None)
    verdict = state.verdict
    return diagnose(
        state.ranks,
        kernel=[line for lines in state.remains.kernel.values() for line in lines],
        verdict=verdict.outcome if verdict is not None else None,
        verdict_text=verdict.text if verdict is not None else "",
    )


def _accused(state: AttemptState, diagnosis: Diagnosis) -> tuple[str, ...]:
    """The nodes named by a hang's culprits, a lost agent or an Xid; none where all ranks stopped in the same place."""
    named: set[str | None] = set()
    if diagnosis.outcome is Outcome.NODE_FAIL:
        named = set(state.lost_nodes) or {diagnosis.node}
    elif diagnosis.outcome is Outcome.XID_HARDWARE:
        kernel = state.remains.kernel
        named = {node for node, lines in kernel.items() if any("Xid" in line for line in lines)} or {diagnosis.node}
    elif diagnosis.outcome is Outcome.HANG and state.verdict is not None:
        culprits = state.verdict.ranks if len(state.verdict.ranks) < len(state.ranks) else ()
        named = {state.ranks[rank].node for rank in culprits}
    return tuple(sorted(node for node in named if node is not None))
