"""Heartbeats of a node's ranks, gathered for a moment: one message for all of them. Pure."""

from __future__ import annotations

from sweep.contract import Phase
from sweep.pilot.agent.progress import Beat
from sweep.pilot.messages import Heartbeat

EARLY_ITERATIONS = 5


class HeartbeatBuffer:
    """Heartbeats since the last message."""

    def __init__(self) -> None:
        self._beats: dict[int, list[tuple[Beat, float]]] = {}
        self._iterating: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._beats)

    def iterates(self, rank: int) -> bool:
        """Is its first iteration done?"""
        return rank in self._iterating

    def add(self, rank: int, beat: Beat, now: float) -> None:
        """Keep it. The first tell the leader how long an iteration is; of later ones the last tells all."""
        beats = self._beats.setdefault(rank, [])
        if self.iterates(rank) and (beat.iteration or 0) > EARLY_ITERATIONS:
            beats.clear()
        beats.append((beat, now))
        if beat.phase in (Phase.STEADY, Phase.FINISH):
            self._iterating.add(rank)
        else:
            self._iterating.discard(rank)

    def take(self, now: float) -> tuple[Heartbeat, ...]:
        """All that were kept; none is kept any more."""
        taken = tuple(
            Heartbeat(rank=rank, phase=beat.phase, iteration=beat.iteration, due_s=beat.due_s, age_s=now - at)
            for rank, beats in self._beats.items()
            for beat, at in beats
        )
        self._beats.clear()
        return taken
