"""Which nodes the next run may use. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.link import Link

MOST_LOSSES = 1
"""a node whose connection was lost more often is left out of the pilot: each time a run was lost with it"""
UNREACHABLE_S = 180.0
"""after this time an unreachable node is reported; until then a pilot without another node waits for it. As long as for
its first arrival (``timeouts.ARRIVAL_S``)"""


def usable(spec: JobSpec, links: Iterable[Link], excluded: Container[str]) -> list[Link]:
    """The nodes that are connected, clean and not excluded (a single machine has no other)."""
    clean = [link for link in links if link.alive and link.clean and len(link.lost_at) <= MOST_LOSSES]
    return clean if spec.executor == "local" else [link for link in clean if link.node not in excluded]


def widest(spec: JobSpec, free: int, running: Sequence[int]) -> int:
    """Nodes of the widest run that may start now, given the free nodes and the nodes of each running run.

    A shared machine takes one run at a time, an isolated fabric one across nodes.
    """
    if running and spec.executor == "local":
        return 0
    across = any(nodes > 1 for nodes in running)
    return min(free, 1) if across and spec.isolate else free


def may_return(link: Link, now: float) -> bool:
    """Whether its agent was lost not long ago, may live, and would be used again."""
    lost = not link.alive and not link.gone.is_set() and len(link.lost_at) <= MOST_LOSSES
    return lost and now - link.lost_at[-1] < UNREACHABLE_S


def unreachable(links: Sequence[Link], now: float) -> list[Link]:
    """The nodes to be reported as unreachable. None where most are: then it is the leader's node that is cut off."""
    lost = [link for link in links if not link.alive and not link.gone.is_set()]
    long = [link for link in lost if now - link.lost_at[-1] >= UNREACHABLE_S]
    return long if 2 * len(lost) < len(links) else []
