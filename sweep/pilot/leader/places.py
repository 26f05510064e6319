"""Where a pilot's nodes are, by the site, the nodes themselves and the controller: NVLink domains and switches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sweep.inputs.topology import Spot, Topology, located, parse_topology, stated_domains, units_of
from sweep.outcomes import BY_A_PART, Outcome
from sweep.pilot.job import shown_topology
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.link import Link
from sweep.search.placing import FLAT, Tree
from sweep.search.search import Search
from sweep.search.slow import Slow, slowed
from sweep.state.blame import Blame, blamed, nodes_of, trials_of
from sweep.state.state import SweepState

UNKNOWN = "the topology of its nodes could not be read: they were chosen as if there were none"


class Places:
    """Follows the nodes that join."""

    def __init__(self, spec: JobSpec) -> None:
        self.tree: Tree = FLAT
        self._spec = spec
        self._stated = stated_domains(spec.domain_nodes)
        self._shown: Mapping[str, Spot] | None = None
        self._topology: Topology = {}
        self._units: Mapping[str, frozenset[str]] = {}
        self._look = 0

    async def update(self, links: Sequence[Link], fabrics: Mapping[str, str]) -> None:
        """``fabrics``: node -> the NVLink domain of its GPUs, where known."""
        slurm = self._spec.executor == "slurm"
        if self._shown is None and slurm and any(link.spot is None for link in links):
            self._shown = parse_topology(await asyncio.to_thread(shown_topology))
        spots = {link.node: link.spot for link in links}
        topology = located(spots, self._shown or {}, self._stated, fabrics)
        if topology != self._topology:
            self._topology, self.tree, self._units = topology, Tree(topology), units_of(topology)

    def unfit(self, sweep_state: SweepState, search: Search, outcome: Outcome) -> list[tuple[str, str]]:
        """(node, why) of the unit that explains the sweep's failures or slow runs, if one does, after an attempt with
        that outcome. A node's own failures are judged by ``sweep.state.exclusion``.
        """
        units = self._units
        if not any(len(nodes) > 1 for nodes in units.values()):
            return []
        found: Blame | Slow | None = None
        if outcome is Outcome.OK:
            errors, run_ids = search.errors(sweep_state)
            if errors.fits != self._look:
                self._look, found = errors.fits, slowed(errors, nodes_of(sweep_state, run_ids), units)
        elif outcome in BY_A_PART:
            failing = blamed(trials_of(sweep_state), units)
            found = failing if failing is not None and len(failing.nodes) > 1 else None
        excluded = sweep_state.excluded_nodes
        return [(node, str(found)) for node in sorted(found.nodes) if node not in excluded] if found else []

    def of(self, nodes: Sequence[str]) -> tuple[list[str | None], list[str | None], tuple[str, ...]]:
        """The leaf switch and the domain of each, and what a record notes of them."""
        spots = [self._topology.get(node) for node in nodes]
        unknown = self._spec.executor == "slurm" and len(nodes) > 1 and None in spots
        leaves = [spot.leaf if spot else None for spot in spots]
        domains = [spot.domain if spot else None for spot in spots]
        return leaves, domains, (UNKNOWN,) * unknown
