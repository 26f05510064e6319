"""Which nodes a further run may have. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from sweep.pilot.leader.nodes import Link
from sweep.pilot.order import PilotOrder


def usable(order: PilotOrder, links: Iterable[Link], quarantined: Container[str]) -> list[Link]:
    """The nodes that live, are clean and are not in quarantine (there is nothing else on this one machine)."""
    clean = [link for link in links if link.alive and link.clean]
    return clean if order.executor == "local" else [link for link in clean if link.node not in quarantined]


def widest(order: PilotOrder, free: int, running: Sequence[int]) -> int:
    """Nodes of the widest run that may begin now, given the free ones and those that each running one takes.

    A shared machine takes one run at a time, an isolated fabric one across nodes.
    """
    if running and not order.side_by_side:
        return 0
    across = any(nodes > 1 for nodes in running)
    return min(free, 1) if across and order.isolate else free
