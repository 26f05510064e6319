"""Tiers ``pair`` and ``all-nodes``: which nodes exchange data when, and the search for the guilty one by bisection.

As Primus' preflight_bisect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace

from sweep.checks.pairs import (
    MESSAGE_BYTES,
    TOLERANCES,
    Exchange,
    Group,
    best_rates,
    disjoint,
    first_round,
    groups_of,
    halves,
    once_more,
    second_round,
    slow_in_pairs,
    widths,
)
from sweep.checks.speeds import rows
from sweep.doctor.request import Answers
from sweep.inputs.topology import located, meeting, stated_domains
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.check_attempts import EXCHANGE, FURTHER, CheckAttempts
from sweep.pilot.leader.link import Link

PAIR_CASES = {
    True: f"message:{MESSAGE_BYTES},send:1073741824,all_reduce:1073741824",
    False: f"message:{MESSAGE_BYTES},send:8388608,all_reduce:8388608",
}
"""GPUs: 1 GiB, as GCM's largest; on CPUs gloo takes as long for 8 MiB"""
ALL_NODES_CASES = {
    True: "all_reduce:67108864,all_reduce:1073741824,all_gather:1073741824",
    False: "all_reduce:8388608,all_gather:8388608",
}
ALL_TO_ALL_NODES = 16
"""no wider: the number of messages grows with the square of the ranks (Primus)"""


class Exchanges:
    """Exchanges between nodes of the pilot."""

    def __init__(self, attempts: CheckAttempts, answers: Answers, spec: JobSpec, links: Sequence[Link]) -> None:
        self._attempts = attempts
        self._answers = answers
        self._links = {link.node: link for link in links}
        self._gpu = spec.gpu not in (None, "cpu")
        self._ranks = spec.gpus_per_node if self._gpu else 1
        self._spots = located({link.node: link.spot for link in links}, {}, stated_domains(spec.domain_nodes), {})
        self._domains = {node: spot.domain for node, spot in self._spots.items() if spot.domain}
        self._asked = False

    async def pairs(self) -> None:
        """Two rounds; who is slow then meets others before it is accused."""
        nodes = list(self._links)
        if len(nodes) < 2:
            return
        groups = first_round(nodes)
        found = await self._round(groups)
        found += await self._round(second_round(nodes, best_rates(found, "send"), groups))
        for _ in range(FURTHER):
            slow = dict.fromkeys(node for operation in TOLERANCES for node in slow_in_pairs(found, operation))
            found += await self._round(once_more(list(slow), found))

    async def all_nodes(self) -> None:
        """Each width, in groups that cover all nodes, those of a domain side by side. A group that fails is halved, by
        domain first, until the guilty node is found, or the domain whose nodes together reach no other.
        """
        guilty: set[str] = set()
        for width in widths(len(self._links)):
            nodes = sorted(
                (node for node in self._links if node not in guilty), key=lambda node: self._domains.get(node, "")
            )
            if len(nodes) < 2:
                return
            groups = groups_of(nodes, min(width, len(nodes)))
            found = await asyncio.gather(*(self._exchange(group, "all-nodes") for group in groups))
            fine = [node for one in found if not one.problem for node in one.nodes]
            for failed in (one for one in found if one.problem):
                named = await self._halve(failed, [node for node in fine if node not in failed.nodes])
                only = "each half alone is fine: it fails at this width only"
                why = failed.problem if named else f"{failed.problem}; {only}"
                if not named and (named := await self._cut_off()):
                    why = f"{failed.problem}; the nodes of its domain reach each other, but no other domain"
                self._answers.write("guilty", nodes=list(named), group=list(failed.nodes), why=why)
                guilty.update(named)

    async def _halve(self, failed: Exchange, good: list[str]) -> list[str]:
        """``good``: nodes that took part in an exchange that was fine; one of them is the partner of a single node."""
        if len(failed.nodes) == 1:
            return list(failed.nodes)
        if len(failed.nodes) == 2 and not good:  # no other node to ask
            return [node for node in failed.nodes if node in failed.accused] or list(failed.nodes)
        found: list[str] = []
        for half in sorted(halves(failed.nodes, self._domains), key=len, reverse=True):
            if len(half) == 1 and not good:  # the other half failed without it, or else it is the guilty one
                found += () if found else half
                continue
            near = sorted(good, key=lambda node: self._domains.get(node) != self._domains.get(half[0]))
            again = await self._exchange(half if len(half) > 1 else (*half, near[0]), "all-nodes")
            if again.problem:
                found += await self._halve(replace(again, nodes=half), good)
            else:
                good = [*good, *half]
        return found

    async def _cut_off(self) -> list[str]:
        """The nodes of domains that do not reach either of two others, if any domain does. Asked once."""
        first = {domain: node for node, domain in reversed(self._domains.items())}
        if len(first) < 3 or self._asked:
            return []
        self._asked, domains, reached = True, list(first), set[str]()
        for at, domain in enumerate(domains):
            for other in (domains[at - 1], domains[at - 2]):
                if not (await self._exchange((first[domain], first[other]), "all-nodes")).problem:
                    reached |= {domain, other}
        return [node for node, domain in self._domains.items() if reached and domain not in reached]

    async def _round(self, groups: Sequence[Group]) -> list[Exchange]:
        found: list[Exchange] = []
        for part in disjoint(groups):
            found += await asyncio.gather(*(self._exchange(group, "pair") for group in part))
        return found

    async def _exchange(self, group: Group, tier: str) -> Exchange:
        cases = (PAIR_CASES if tier == "pair" else ALL_NODES_CASES)[self._gpu]
        if tier == "all-nodes" and len(group) <= ALL_TO_ALL_NODES and self._gpu:
            cases += ",all_to_all:67108864"
        links = [self._links[node] for node in group]
        answer = await self._attempts.conduct(EXCHANGE, links, self._ranks, {"cases": cases})
        # Seconds are the slowest rank's, the same for all
        measured = [dict(row) for row in rows(answer.ranks[group[0]][0]["exchange"])] if answer.ranks else []
        found = Exchange(nodes=group, rows=measured, problem=answer.problem, accused=answer.accused, tier=tier)
        found = replace(found, level=meeting(map(self._spots.get, group)))
        self._answers.write("exchange", **asdict(found))
        return found
