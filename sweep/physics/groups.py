"""Which ranks form the groups of a layout's axes, and which of them lie inside one part of the machine. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sweep.contract import Run

ORDER = "pp,dp,cp,tp"
"""the axes, the last one of neighbouring ranks: Megatron-LM's "tp-cp-ep-dp-pp" (core/parallel_state.py), nanotron
(parallel/context.py), torchtitan (distributed/parallel_dims.py)"""
ORDERS = {"picotron": "dp,pp,cp,tp"}
"""its process_group_manager.py; the built-in workload states its own: ``mesh_order``"""
WITHOUT_ETP = frozenset({"torchtitan"})
"""trainers that split no expert: those of ``ep`` are neighbours (its sparse mesh). Elsewhere it is split as ``tp`` is,
unless ``etp`` says otherwise"""
FAST = ("tp", "ep")
"""whose groups exchange activations in every layer: they should lie inside one NVLink domain"""
GROUPS = (*FAST, "cp", "pp")
PLACEMENT = "SWEEP_PLACEMENT"
"""the variable of a run that names its placement: PACKED; ``spread``, over as many domains as it can be; or
``segment-N``, N nodes side by side in each domain"""
PACKED = "packed"


def strides(run: Run) -> Mapping[str, tuple[int, int]]:
    """Axis -> (distance of two neighbours of a group in ranks, ranks of a group), of GROUPS."""
    layout, found, inner = run.layout, {}, 1
    order = str(run.params.get("mesh_order") or ORDERS.get(run.workload, ORDER))
    for axis in reversed(order.split(",")):
        found[axis] = (inner, getattr(layout, axis, 1))
        inner *= found[axis][1]
    found["ep"] = (1 if run.workload in WITHOUT_ETP else layout.etp or layout.tp, layout.ep)
    return {axis: found[axis] for axis in GROUPS if axis in found}


def nodes_together(run: Run, axes: Sequence[str] = FAST) -> int:
    """Nodes, in rank order, that form a unit: no group of these axes has ranks in two of them."""
    at = strides(run)
    spans = [stride * size for stride, size in (at[axis] for axis in axes if axis in at) if size > 1]
    return math.lcm(run.gpus_per_node, *spans) // run.gpus_per_node


def split(run: Run, parts: Sequence[str]) -> list[str]:
    """The axes of which a group has ranks in several parts. ``parts``: of each node, in rank order."""
    found = []
    for axis, (stride, size) in strides(run).items():
        part_of: dict[tuple[int, int], str] = {}
        groups = ((rank // (stride * size), rank % stride) for rank in range(run.gpus))
        if size > 1 and any(
            part_of.setdefault(group, parts[rank // run.gpus_per_node]) != parts[rank // run.gpus_per_node]
            for rank, group in enumerate(groups)
        ):
            found.append(axis)
    return found
