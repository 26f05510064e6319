"""Which nodes the next run may use. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from sweep.pilot.leader.nodes import Link
from sweep.pilot.order import PilotOrder


def usable(order: PilotOrder, links: Iterable[Link], quarantined: Container[str]) -> list[Link]:
    """The nodes that are alive, clean and not in quarantine (a single machine has no other)."""
    clean = [link for link in links if link.alive and link.clean]
    return clean if order.executor == "local" else [link for link in clean if link.node not in quarantined]


def widest(order: PilotOrder, free: int, running: Sequence[int]) -> int:
    """Nodes of the widest run that may start now, given the free nodes and the nodes of each running run.

    A shared machine takes one run at a time, an isolated fabric one across nodes.
    """
    if running and not order.side_by_side:
        return 0
    across = any(nodes > 1 for nodes in running)
    return min(free, 1) if across and order.isolate else free
