"""How far apart the ranks of a group are, by the placement that a run will have: of equal units, none in use. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics.columns import expert_split, read, words_in
from sweep.physics.groups import PACKED, PLACEMENT
from sweep.physics.measured import Fabric

INNER: Mapping[str, tuple[str, ...]] = {"tp": (), "cp": ("tp",), "ep": (), "dp": ("tp", "cp"), "pp": ("tp", "cp", "dp")}
"""axis -> those of nearer ranks (Megatron's order)"""


def placed(columns: Mapping[str, Any], fabric: Fabric) -> dict[str, Any]:
    """``domain_gpus`` and ``switch_gpus`` of candidates: how many ranks, in their order, are in one unit.

    As ``sweep.search.placing`` chooses nodes. Of tp and ep groups that no choice keeps whole, half are in each of two.
    """
    each = read(columns, "gpus_per_node")
    nodes = np.ceil(read(columns, "dp") * read(columns, "tp") * read(columns, "pp") * read(columns, "cp") / each)
    tensor = _nodes_together(each, read(columns, "tp"))
    groups = np.lcm(tensor, _nodes_together(each, expert_split(columns)))
    known = bool(fabric.domain_nodes)
    unit, count = (fabric.domain_nodes, fabric.domains) if known else (fabric.switch_nodes, fabric.switches)
    portion = np.minimum(unit // groups * groups if known else unit, nodes)
    for split in (groups, tensor) if known else ():
        broken = unit // split * split * np.maximum(count, np.ceil(nodes / unit)) < nodes
        portion = np.where(broken, np.minimum(unit, np.ceil(split / 2)), portion)
    asked = read(columns, PLACEMENT)
    for placement in words_in(asked):
        least = np.maximum(groups, int(placement.rpartition("-")[2]) if "-" in placement else 1) // groups * groups
        apart = np.ceil(np.ceil(nodes / least) / count) * least
        portion = np.where((asked == placement) & (placement != PACKED) & (apart <= unit), apart, portion)
    portion = np.clip(portion, 1, nodes)
    switch = portion
    if known and fabric.switch_nodes:
        wide = fabric.switch_nodes // fabric.domain_nodes
        switch = portion * wide if wide else np.minimum(portion, fabric.switch_nodes)
    return {"domain_gpus": portion * each * known, "switch_gpus": switch * each, "all_gpus": nodes * each}


def _nodes_together(each: Any, ranks: Any) -> Any:
    per_node, span = each.astype(np.int64), np.asarray(ranks).astype(np.int64)
    return np.lcm(per_node, span) // per_node


def span(columns: Mapping[str, Any], axis: str) -> Any:
    """Ranks from the first of a group of the axis to where the next group of the same kind begins."""
    found = expert_split(columns) if axis == "ep" else read(columns, axis)
    for name in INNER[axis]:
        found = found * read(columns, name)
    return found


def level(columns: Mapping[str, Any], axis: str) -> Any:
    """Number of the level of ``measured.LEVELS`` at which a group of the axis meets; None: nothing is known of it."""
    if "switch_gpus" not in columns:
        return None
    ranks = span(columns, axis)
    inside, near = (
        (columns["all_gpus"] <= unit) | ((ranks <= unit) & (unit % ranks == 0))
        for unit in (read(columns, "domain_gpus"), read(columns, "switch_gpus"))
    )
    return np.where(inside, 0, np.where(near, 1, 2))
