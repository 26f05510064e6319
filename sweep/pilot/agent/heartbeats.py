"""Heartbeats of a node's ranks, batched into one message. Pure."""

from __future__ import annotations

from sweep.contract import Phase
from sweep.pilot.agent.progress import RankHeartbeat
from sweep.pilot.messages import Heartbeat

EARLY_ITERATIONS = 5


class HeartbeatBuffer:
    """Buffers the heartbeats since the last message."""

    def __init__(self) -> None:
        self._heartbeats: dict[int, list[tuple[RankHeartbeat, float]]] = {}
        self._iterating: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._heartbeats)

    def iterates(self, rank: int) -> bool:
        """Is its first iteration done?"""
        return rank in self._iterating

    def add(self, rank: int, heartbeat: RankHeartbeat, now: float) -> None:
        """Store it. The first ones give the iteration time; of later ones only the last is needed."""
        heartbeats = self._heartbeats.setdefault(rank, [])
        if self.iterates(rank) and (heartbeat.iteration or 0) > EARLY_ITERATIONS:
            heartbeats.clear()
        heartbeats.append((heartbeat, now))
        if heartbeat.phase in (Phase.STEADY, Phase.FINISH):
            self._iterating.add(rank)
        else:
            self._iterating.discard(rank)

    def take(self, now: float) -> tuple[Heartbeat, ...]:
        """Return all buffered heartbeats and empty the buffer."""
        taken = tuple(
            Heartbeat(
                rank=rank, phase=heartbeat.phase, iteration=heartbeat.iteration, due_s=heartbeat.due_s, age_s=now - at
            )
            for rank, heartbeats in self._heartbeats.items()
            for heartbeat, at in heartbeats
        )
        self._heartbeats.clear()
        return taken
