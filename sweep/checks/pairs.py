"""Which nodes exchange data with which, and who is slow by that. Pure.

Two rounds, as DLRover's straggler detection: pairs in any order, then the slow with the fast; a node's rate is the
better of its two, so that a healthy node is not accused for its partner. Who is slow then meets others, twice. The odd
node out meets one that has had its turn: in a group of three a sick node would spoil both others.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.checks.check import Json
from sweep.checks.fleet import FEWEST, TOLERANCE, slowest_healthy
from sweep.checks.rules import number_of
from sweep.physics.measured import Level, bus_bandwidth

Group = tuple[str, ...]
MESSAGE_BYTES = 4096
TOLERANCES = {"send": TOLERANCE, "all_reduce": TOLERANCE, "message": 0.5}
"""What a pair measures -> by how much a node may be below the others. A small message may take twice as long: its time
is the network's latency, which differs with the switches between two nodes"""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What nodes measured together."""

    nodes: Group
    rows: Sequence[Mapping[str, Json]] = ()
    """operation, bytes, ranks, seconds, spread; empty: it failed"""
    problem: str = ""
    accused: Sequence[str] = ()
    """nodes that the watchdog names: the ranks with the least progress"""
    tier: str = "pair"
    level: Level = ""
    """where its nodes meet"""

    def bytes_per_s(self, operation: str) -> float:
        """Bus bandwidth of the largest size, as nccl-tests counts it; 0 where it failed."""
        mine = [row for row in self.rows if row.get("operation") == operation]
        return rate_of(max(mine, key=lambda row: number_of(row, "bytes"))) if mine else 0.0


def rate_of(row: Mapping[str, Json]) -> float:
    """Bus bandwidth of a measured operation, bytes/s."""
    size, seconds, ranks = (number_of(row, name) for name in ("bytes", "least_s", "ranks"))
    return bus_bandwidth(str(row.get("operation")), size, seconds, ranks)


def first_round(nodes: Sequence[str]) -> list[Group]:
    """Neighbours; the odd one out with the first."""
    groups: list[Group] = [(nodes[at], nodes[at + 1]) for at in range(0, len(nodes) - 1, 2)]
    return [*groups, (nodes[-1], nodes[0])] if len(nodes) % 2 and groups else groups


def second_round(nodes: Sequence[str], rates: Mapping[str, float], met: Sequence[Group]) -> list[Group]:
    """The slowest with the fastest, and so on inwards; who met in the first round does not meet again if avoidable.

    The odd one out meets the fastest that it has not met.
    """
    order = sorted(nodes, key=lambda node: (rates.get(node, 0.0), node))
    fastest = order[::-1]
    groups: list[Group] = []
    while len(order) > 1:
        slow = order.pop(0)
        fast = _fresh(slow, order[::-1], met)
        order.remove(fast)
        groups.append((slow, fast))
    if order and groups:
        others = [node for node in fastest if node != order[0]]
        groups.append((order[0], _fresh(order[0], others, met)))
    return groups


def _fresh(node: str, others: Sequence[str], met: Sequence[Group]) -> str:
    return next((other for other in others if not any({node, other} <= set(group) for group in met)), others[0])


def best_rates(exchanges: Sequence[Exchange], operation: str) -> dict[str, float]:
    """Node -> its best rate over the rounds; 0 where every one failed."""
    found: dict[str, float] = {}
    for one in exchanges:
        rate = one.bytes_per_s(operation)
        for node in one.nodes:
            found[node] = max(found.get(node, 0.0), rate)
    return found


def slow_in_pairs(exchanges: Sequence[Exchange], operation: str) -> dict[str, float]:
    """Node -> the usual rate, for each node whose best rate is below that of the exchanges without it.

    By more than the tolerance, and by more than those vary. A rate is that of two nodes: among the nodes' own rates
    each would count twice, and healthy ones would seem to vary less than they do.
    """
    found: dict[str, float] = {}
    best = best_rates(exchanges, operation)
    if len(best) < FEWEST:
        return found
    for node, rate in best.items():
        others = [one.bytes_per_s(operation) for one in exchanges if node not in one.nodes]
        others = [other for other in others if other]
        if rate and len(others) > 1 and rate < slowest_healthy(others, TOLERANCES[operation]):
            found[node] = statistics.median(others)
    return found


def once_more(slow: Sequence[str], exchanges: Sequence[Exchange]) -> list[Group]:
    """Each slow node with the fastest other that it has not met, if there is one."""
    rates = best_rates(exchanges, "send")
    others = sorted((node for node in rates if node not in slow), key=lambda node: -rates[node])
    met = [one.nodes for one in exchanges]
    return [(node, _fresh(node, others, met)) for node in slow] if others else []


def widths(nodes: int) -> list[int]:
    """2, 4, 8 … and all nodes."""
    found = [2**power for power in range(1, nodes.bit_length()) if 2**power < nodes]
    return [*found, nodes] if nodes > 1 else []


def groups_of(nodes: Sequence[str], width: int) -> list[Group]:
    """Groups of this width that cover every node: the last one borrows from the others."""
    starts = (min(at, len(nodes) - width) for at in range(0, len(nodes), width))
    return [tuple(nodes[at : at + width]) for at in starts]


def halves(nodes: Group, domains: Mapping[str, str]) -> tuple[Group, Group]:
    """The two halves of a group; of one that spans domains they are whole domains, about equal in nodes."""
    borders = [at for at in range(1, len(nodes)) if domains.get(nodes[at - 1]) != domains.get(nodes[at])]
    middle = min(borders or [len(nodes) // 2], key=lambda at: abs(2 * at - len(nodes)))
    return nodes[:middle], nodes[middle:]


def disjoint(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups in as few parts as it takes for those of a part to share no node: they run at the same time."""
    parts: list[list[Group]] = []
    for group in groups:
        free = (part for part in parts if not any(set(group) & set(other) for other in part))
        part = next(free, None)
        if part is None:
            parts.append([group])
        else:
            part.append(group)
    return parts
