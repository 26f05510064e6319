"""On which of the free nodes a run goes, by the cluster's topology. Pure.

Its tensor and expert groups stay inside one NVLink domain (or block); it takes the smallest unit that holds it, else
whole ones, so that whole ones stay free. Ranks follow the units: neighbours are near.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sweep.inputs.topology import Topology
from sweep.physics.groups import PACKED

Unit = Mapping[str, str]
"""node -> the unit of one level that it is in; a node that is absent is alone"""


class Tree:
    """The levels of a topology, from the widest unit to the narrowest. Without any, nodes are taken in their order."""

    def __init__(self, topology: Topology) -> None:
        depth = max((len(spot.switches) for spot in topology.values()), default=0)
        switches: list[Unit] = [
            {node: spot.switches[at] for node, spot in topology.items() if spot.switches and spot.switches[at]}
            for at in range(-depth, 0)
        ]
        self.domains: Unit = {node: spot.domain for node, spot in topology.items() if spot.domain}
        self.levels: list[Unit] = [self.domains, *switches] if self.domains else switches
        self._widest = 0 if self.domains else len(switches) - 1
        """level whose units a placement is about: domains, without any the leaf switches"""

    def choose(
        self, free: Sequence[str], later: Sequence[str], nodes: int, together: Sequence[int], used: Counter[str],
        *, reject_split: bool, placement: str = PACKED,
    ) -> tuple[str, ...] | None:  # fmt: skip
        """So many of the free nodes, in rank order. None where there are too few; and where those that will be free
        later keep groups whole that the free ones would split, or with ``reject_split`` where not even those do.

        ``together``: how many nodes, in rank order, should be in one domain, what asks for most first. ``used``: how
        often a node, and so its unit, has been used: the least used first. ``placement``: ``physics.groups.PLACEMENT``.
        """
        portion = max(together[0], int(placement.rpartition("-")[2]) if "-" in placement else 1)
        if placement != PACKED and (most := self._apart(later, nodes, portion, together[0], used)):
            apart, of = self._apart(free, nodes, portion, together[0], used), self.levels[self._widest]
            units = [len({of.get(node, node) for node in some or ()}) for some in (apart, most)]
            return tuple(apart) if apart and units[0] == units[1] else None
        found = self._take(free, nodes, together[0], used)
        if (
            found is None
            and len(free) >= nodes
            and not reject_split
            and not self._take(later, nodes, together[0], used)
        ):
            found = self._split(free, nodes, [*together, 1], used)
        return None if found is None else tuple(found)

    def _apart(
        self, names: Sequence[str], nodes: int, portion: int, together: int, used: Counter[str]
    ) -> list[str] | None:
        """Such portions of as many units as there are, then further ones of each; the widest unit first."""
        units, portion = self._units(names, self._widest) if self.levels else [], portion // together * together
        counts = [0] * len(units)
        while nodes:
            free = [at for at, unit in enumerate(units) if len(unit) - counts[at] >= min(portion, nodes)]
            if not free:
                return None
            at = min(free, key=lambda at: (counts[at], counts[at] - len(units[at])))
            counts[at] += min(portion, nodes)
            nodes -= min(portion, nodes)
        at = self._widest + 1
        taken = (self._take(unit, count, together, used, at) or [] for unit, count in zip(units, counts, strict=True))
        return [node for some in taken for node in some]

    def _split(self, names: Sequence[str], nodes: int, together: Sequence[int], used: Counter[str]) -> list[str]:
        """As few groups as possible are split: the others come first."""
        if (found := self._take(names, nodes, together[0], used)) is not None:
            return found
        kept = [node for unit in self._units(names, 0) for node in unit[: _floor(unit, together[0])]]
        others = [name for name in names if name not in set(kept)]
        return kept + self._split(others, nodes - len(kept), together[1:], used)

    def _take(
        self, names: Sequence[str], nodes: int, together: int, used: Counter[str], level: int = 0
    ) -> list[str] | None:
        if level == len(self.levels):
            least = set(sorted(names, key=lambda name: used[name])[:nodes])
            return [name for name in names if name in least] if len(names) >= nodes else None
        units = self._units(names, level)
        if sum(_floor(unit, together) for unit in units) < nodes:
            if len(names) < nodes or (self.domains and level == 0):
                return None
            together = 1
        at, taken = {name: place for place, name in enumerate(names)}, list[list[str]]()
        while nodes:
            unit = self._next(units, taken, nodes, together, used, level)
            units.remove(unit)
            count = min(nodes, _floor(unit, together))
            taken.append(self._take(unit, count, together, used, level + 1) or [])
            nodes -= count
        return [name for unit in sorted(taken, key=lambda unit: at[unit[0]]) for name in unit]

    def _next(
        self, units: list[list[str]], taken: list[list[str]], nodes: int, together: int, used: Counter[str], level: int
    ) -> list[str]:
        """The unit to take from next: the least used, smallest and nearest that holds all; else the largest."""
        near = [{of.get(name) for unit in taken for name in unit} - {None} for of in self.levels]
        below = range(level, len(self.levels) if level or not self.domains else 1)

        def apart(unit: list[str]) -> int:
            return -sum(of.get(unit[0]) in seen for of, seen in zip(self.levels, near, strict=True))

        def cost(unit: list[str]) -> tuple[int, ...]:
            inside = [
                (len(one), -at) for at in below for one in self._units(unit, at) if _floor(one, together) >= nodes
            ]
            times = sorted(used[name] for name in unit)
            return min(at for _, at in inside), sum(times[:nodes]), sum(times), min(inside)[0], apart(unit)

        enough = [unit for unit in units if _floor(unit, together) >= nodes]
        return min(enough, key=cost) if enough else min(units, key=lambda unit: (-_floor(unit, together), apart(unit)))

    def _units(self, names: Sequence[str], level: int) -> list[list[str]]:
        units: dict[str, list[str]] = {}
        for name in names:
            units.setdefault(self.levels[level].get(name, name), []).append(name)
        return list(units.values())


FLAT = Tree({})


def _floor(unit: Sequence[str], together: int) -> int:
    """How many nodes a unit has for parts of so many."""
    return len(unit) // together * together
