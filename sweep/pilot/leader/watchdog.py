"""The watchdog: whether an attempt's ranks still make progress. Pure; times are the watchdog's monotonic clock."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.contract import Phase
from sweep.errors import first_names
from sweep.outcomes import Outcome
from sweep.pilot.job_spec import Limits

BUSY_FACTOR = 2.0
"""a rank that works before its first iteration is done times out after this many limits. No later: a rank that waits
in a collective may spin, which looks like work"""
PHASE_ORDER = {phase: number for number, phase in enumerate(Phase)}


@dataclass
class RankProgress:
    """The last known progress of one rank."""

    phase: Phase
    iteration: int | None
    at: float
    due_s: float | None
    ended: bool = False
    busy_at: float | None = None
    """when it was last seen to work, by CPU time or IO of its own or its children"""


@dataclass(frozen=True)
class StopReason:
    """Why an attempt must be stopped."""

    outcome: Outcome
    text: str
    ranks: tuple[int, ...] = ()
    """the ranks without progress"""


class Watchdog:
    """The deadlines of one attempt: of the ranks on these nodes, rank by rank, all of them starting now."""

    def __init__(self, nodes: Sequence[str], limits: Limits, now: float) -> None:
        self.nodes, self.limits, self.started_at = nodes, limits, now
        self.ranks = {rank: RankProgress(Phase.START, None, now, None) for rank in range(len(nodes))}
        self.known_since = float("-inf")
        """since when it is known without a gap what the ranks do, and none writes much: before that, none was late"""
        self._iteration_s: list[float] = []

    def begin(self, now: float) -> None:
        """The nodes are ready and the ranks start now: preloading the fork server does not count as start."""
        for progress in self.ranks.values():
            progress.at = now

    def heartbeat(self, rank: int, phase: Phase, iteration: int | None, due_s: float | None, at: float) -> None:
        """A rank's heartbeat, sent at `at`."""
        last = self.ranks[rank]
        if phase is Phase.STEADY and last.iteration is not None and iteration is not None:
            gone = iteration - last.iteration
            # Heartbeats may arrive batched. A first iteration alone (compilation) does not predict the next.
            if gone > 1 or (gone == 1 and last.phase is Phase.STEADY):
                self._iteration_s.append((at - last.at) / gone)
        self.ranks[rank] = RankProgress(phase, iteration, at, due_s)

    def busy(self, rank: int, at: float) -> None:
        """The rank did work, though it may send no heartbeat."""
        self.ranks[rank].busy_at = at

    def ended(self, rank: int) -> None:
        """The rank's process ended; no more heartbeats are expected."""
        self.ranks[rank].ended = True

    def limit_s(self, progress: RankProgress) -> float:
        """The limit between heartbeats of this rank. The rank itself can lengthen it, never shorten."""
        steady_s = self.limits.first_iteration_s
        if self._iteration_s:
            steady_s = self.limits.steady_factor * statistics.median(self._iteration_s)
        floor = {
            Phase.START: self.limits.start_s,
            Phase.FIRST_ITERATION: self.limits.first_iteration_s,
            Phase.STEADY: max(self.limits.steady_s, steady_s),
            Phase.FINISH: self.limits.finish_s,
        }[progress.phase]
        return max(floor, progress.due_s or 0.0)

    def deadline(self, progress: RankProgress) -> float:
        """When a missing heartbeat becomes a hang. Slow starts that work (imports, compilers) get more."""
        limit_s, at = self.limit_s(progress), max(progress.at, self.known_since)
        if progress.busy_at is None or progress.phase not in (Phase.START, Phase.FIRST_ITERATION):
            return at + limit_s
        return min(max(at, progress.busy_at) + limit_s, at + BUSY_FACTOR * limit_s)

    def next_deadline(self) -> float:
        """When to check again, on the watchdog's clock, if no heartbeat comes before."""
        deadlines = [self.deadline(p) for p in self.ranks.values() if not p.ended]
        return min([self.started_at + self.limits.attempt_s, *deadlines])

    def verdict(self, now: float) -> StopReason | None:
        """Why the attempt must be stopped now, or None."""
        timed_out = [rank for rank, p in self.ranks.items() if not p.ended and now >= self.deadline(p)]
        if timed_out:
            return self._hang(now, timed_out)
        if now < self.started_at + self.limits.attempt_s:
            return None
        living = [p for p in self.ranks.values() if not p.ended]
        where = f"the slowest rank is in {_place(min(living, key=_progress_key))}" if living else "all ranks ended"
        text = f"not done after {self.limits.attempt_s:.0f} s, the limit of one attempt; {where}"
        return StopReason(Outcome.TIME_LIMIT, text)

    def _hang(self, now: float, timed_out: Sequence[int]) -> StopReason:
        """The culprits are the ranks with the least progress: the others wait for them in a collective."""
        living = {rank: p for rank, p in self.ranks.items() if not p.ended}
        slowest = min(_progress_key(p) for p in living.values())
        culprits = tuple(rank for rank, p in living.items() if _progress_key(p) == slowest)
        first = living[culprits[0]]
        named = first_names([f"rank {rank} on {self.nodes[rank]}" for rank in culprits], 4)
        others = len(living) - len(culprits)
        if not others and len(living) > 1:
            named = f"all {len(living)} ranks"
        waiting = f"; the {others} others wait for it" if others > 0 else ""
        text = (
            f"no progress for {now - first.at:.0f} s: {named} stopped in {_place(first)}{waiting}"
            f" ({len(timed_out)} of {len(living)} ranks timed out after {self.limit_s(first):.0f} s)"
        )
        return StopReason(Outcome.HANG, text, culprits)


def _progress_key(progress: RankProgress) -> tuple[int, int]:
    iteration = -1 if progress.iteration is None else progress.iteration
    return PHASE_ORDER[progress.phase], iteration


def _place(progress: RankProgress) -> str:
    return str(progress.phase) + (f", iteration {progress.iteration}" if progress.iteration is not None else "")
