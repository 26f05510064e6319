"""Where nodes are: their NVLink domain (or Slurm's block) and their switches, as texts of Slurm state it. Pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sweep.physics.measured import Fabric, Level

MOST_HOSTS = 1 << 17
"""names in one host list"""


@dataclass(frozen=True)
class Spot:
    """Where a node is. Without any unit: it is known that Slurm states none."""

    domain: str | None = None
    """the nodes that NVLink joins: by the site, by the fabric's own id, else Slurm's block; None: not known"""
    switches: tuple[str, ...] = ()
    """from the top to the leaf, "" where it is on none; Slurm's block counts as one"""

    @property
    def leaf(self) -> str | None:
        """The leaf switch, or block, that the node hangs on."""
        return self.switches[-1] or None if self.switches else None


Topology = Mapping[str, Spot]
"""node -> where it is; nodes that are absent are at a place that could not be read"""


def spot_at(address: str, pattern: str) -> Spot | None:
    """The place that ``SLURM_TOPOLOGY_ADDR`` and its pattern state; None where they state nothing.

    Slurmd sets them for each task: "core.rack2.n7" with "switch.switch.node" (topology/tree), "b3.n7" with "block.node"
    (topology/block), the node alone with "node" without a topology. A node on several leaf switches has a list of them,
    "leaf[1-2]"; one on none has empty parts, "..n7".
    """
    kinds = pattern.split(".")
    parts = address.split(".", len(kinds) - 1)  # a node's name may contain dots
    if kinds[-1] != "node" or len(parts) != len(kinds) or not parts[-1]:
        return None
    block = parts[-2] if kinds[-2:-1] == ["block"] else None
    return Spot(domain=block or None, switches=tuple(parts[:-1]) if any(parts[:-1]) else ())


def parse_topology(text: str) -> dict[str, Spot]:
    """Node -> where it is, of ``scontrol show topology`` with topology/tree or topology/block.

    Aggregated blocks are several domains. Empty for other plug-ins' texts, and where it is cut: not known.
    """
    rows = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
    names = ("BlockName", "SwitchName")
    try:
        units = [(row, hosts(row.get("Nodes", ""))) for row in rows if not row.keys().isdisjoint(names)]
        depth = 1 + max((int(row["Level"]) for row, _ in units if "SwitchName" in row), default=-1)
    except (KeyError, ValueError):
        return {}
    found = {}
    for row, nodes in units:
        for node in nodes:
            if "BlockName" in row:
                found[node] = Spot(row["BlockName"], (row["BlockName"],))
                continue
            on = list(found.get(node, Spot(None, ("",) * depth)).switches)
            at = depth - 1 - int(row["Level"])
            on[at] = ",".join(filter(None, (on[at], row["SwitchName"])))
            found[node] = Spot(None, tuple(on))
    return found


def hosts(text: str) -> list[str]:
    """The names in a host list of Slurm, such as ``n[01-03,7],r[1-2]c[1-4]``. Raises ValueError where it is none."""
    pieces = re.split(r"[\[\]]", text)
    items: list[list[list[str]]] = [[]]
    for place, piece in enumerate(pieces):  # inside brackets every second one
        first, *others = [_numbers(piece)] if place % 2 else [[part] for part in piece.split(",")]
        items[-1].append(first)
        items += [[other] for other in others]
    names = list(itertools.islice(("".join(one) for item in items for one in itertools.product(*item)), MOST_HOSTS + 1))
    names = [name for name in names if name]
    balanced = re.sub(r"[^\[\]]", "", text) == "[]" * (len(pieces) // 2)
    if not balanced or len(names) > MOST_HOSTS or any(not re.fullmatch(r"[\w.-]+", name) for name in names):
        raise ValueError(f"{text[:60]!r} is no list of nodes, such as gb[001-018],gb020")
    return names


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for one in ranges.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", one.strip())
        if found is None:
            raise ValueError(f"[{ranges[:60]}] is no range of nodes, such as [001-018,20]")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last <= first + MOST_HOSTS:
            raise ValueError(f"[{ranges[:60]}]: the range {one[:20]} of nodes is empty or too long")
        numbers += [f"{number:0{len(found[1])}}" for number in range(first, last + 1)]
    return numbers


def stated_domains(lists: Iterable[str]) -> dict[str, str]:
    """Node -> its domain, the host list that names it. Raises ValueError for a node in two, and for what is no list."""
    pairs = [(node, text) for text in lists for node in hosts(text)]
    twice = [node for node, times in Counter(node for node, _ in pairs).items() if times > 1]
    if twice or any(not hosts(text) for text in lists):
        raise ValueError(f"{twice[0]} is in two domains" if twice else "a domain without nodes")
    return dict(pairs)


def fabric_of(topology: Topology) -> Fabric | None:
    """The widths and numbers of a topology's domains and leaf switches; None where it has neither."""
    spots = topology.values()
    domains, leaves = (Counter(filter(None, some)) for some in ((s.domain for s in spots), (s.leaf for s in spots)))
    domain, leaf = (max(units.values(), default=0) for units in (domains, leaves))
    found = Fabric(domain_nodes=domain, domains=len(domains), switch_nodes=leaf, switches=len(leaves))
    return found if domain or leaf else None


def meeting(spots: Iterable[Spot | None]) -> Level:
    """The level of ``physics.measured.LEVELS`` at which nodes that are there meet; empty: not known."""
    known = [spot or Spot() for spot in spots]
    domains, leaves = {spot.domain for spot in known}, {spot.leaf for spot in known}
    if None not in domains and len(domains) == 1:
        return "domain"
    if None in leaves:
        return "" if None in domains else "across"
    return "switch" if len(leaves) == 1 else "across"


def located(
    spots: Mapping[str, Spot | None], shown: Mapping[str, Spot], stated: Mapping[str, str], fabrics: Mapping[str, str]
) -> dict[str, Spot]:
    """Node -> where it is. Its domain is what the site states, else the fabric's id, else Slurm's block.

    ``spots``: by the nodes' own daemons; ``shown``: by the controller, for nodes whose daemon says nothing; ``stated``,
    ``fabrics``: node -> domain.
    """
    found = {}
    for node, of_daemon in spots.items():
        spot, domain = of_daemon or shown.get(node), stated.get(node) or fabrics.get(node)
        if spot is not None or domain:
            known = spot or Spot()
            found[node] = replace(known, domain=domain or known.domain)
    return found


def units_of(topology: Topology) -> dict[str, frozenset[str]]:
    """Name -> nodes: of each node, domain and switch but those that have all the nodes, or the same as another."""
    units: dict[str, set[str]] = {node: {node} for node in topology}
    for node, spot in topology.items():
        names = [f"domain {spot.domain}"] * bool(spot.domain) + [f"switch {name}" for name in spot.switches if name]
        for name in names:
            units.setdefault(name, set()).add(node)
    found = {frozenset(nodes): name for name, nodes in reversed(units.items()) if len(nodes) < len(topology)}
    return {name: nodes for nodes, name in found.items()}
