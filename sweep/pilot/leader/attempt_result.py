"""The result of an attempt, from its state: values for the record and the log. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.diagnose.diagnose import diagnose
from sweep.diagnose.model import Diagnosis, RankEnd
from sweep.diagnose.scan import scan
from sweep.outcomes import Outcome
from sweep.pilot.leader.attempt_state import AttemptState

ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP})


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended: its state once its nodes are cleared, and what that means."""

    state: AttemptState
    diagnosis: Diagnosis
    times_s: dict[str, float]

    @classmethod
    def of(cls, state: AttemptState, now: float, found: Diagnosis | None = None) -> AttemptResult:
        """The result of an attempt whose nodes are cleared. ``found``: its diagnosis, where it is known already."""
        return cls(state, found or diagnosis_of(state), state.moments.durations_s(now))

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
            kernel = state.remains.kernel.items()
            found = [(hit.weight, n) for n, lines in kernel for hit in scan("\n".join(lines)) if hit.outcome is outcome]
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
        kernel=[line for lines in state.remains.kernel.values() for line in lines],
        verdict=verdict.outcome if verdict is not None else None,
        verdict_text=verdict.text if verdict is not None else "",
    )
