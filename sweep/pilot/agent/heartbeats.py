"""Heartbeats of a node's ranks, gathered for a moment: one message for all of them. Pure."""

from __future__ import annotations

from sweep.contract import Phase
from sweep.pilot.agent.progress import RankHeartbeat
from sweep.pilot.messages import Heartbeat

EARLY_ITERATIONS = 5


class HeartbeatBuffer:
    """Heartbeats since the last message."""

    def __init__(self) -> None:
        self._heartbeats: dict[int, list[tuple[RankHeartbeat, float]]] = {}
        self._iterating: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._heartbeats)

    def iterates(self, rank: int) -> bool:
        """Is its first iteration done?"""
        return rank in self._iterating

    def add(self, rank: int, heartbeat: RankHeartbeat, now: float) -> None:
        """Keep it. The first tell the leader how long an iteration is; of later ones the last tells all."""
        heartbeats = self._heartbeats.setdefault(rank, [])
        if self.iterates(rank) and (heartbeat.iteration or 0) > EARLY_ITERATIONS:
            heartbeats.clear()
        heartbeats.append((heartbeat, now))
        if heartbeat.phase in (Phase.STEADY, Phase.FINISH):
            self._iterating.add(rank)
        else:
            self._iterating.discard(rank)

    def take(self, now: float) -> tuple[Heartbeat, ...]:
        """All that were kept; none is kept any more."""
        taken = tuple(
            Heartbeat(
                rank=rank, phase=heartbeat.phase, iteration=heartbeat.iteration, due_s=heartbeat.due_s, age_s=now - at
            )
            for rank, heartbeats in self._heartbeats.items()
            for heartbeat, at in heartbeats
        )
        self._heartbeats.clear()
        return taken
