"""Process groups: one per axis, all cut from one mesh over all ranks.

The mesh is always indexed (pp, dp, cp, tp); ``order`` maps ranks to indices, so that the axes written
last are neighbours. Intra-node axes belong there: tp, then cp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.testing._internal.distributed.fake_pg  # registers the backend
from torch.distributed.device_mesh import DeviceMesh

if TYPE_CHECKING:
    from sweep.contract import Layout

AXES = ("pp", "dp", "cp", "tp")


def ranks_in_order(layout: Layout, order: str) -> torch.Tensor:
    """Global ranks, shape (pp, dp, cp, tp), laid out so that the last axis of ``order`` holds neighbours.

    >>> from sweep.contract import Layout
    >>> ranks_in_order(Layout(dp=2, pp=2), "dp,pp,cp,tp").flatten().tolist()
    [0, 2, 1, 3]
    """
    names = order.split(",")
    if sorted(names) != sorted(AXES):
        raise ValueError(f"mesh_order must name each of {', '.join(AXES)} once, not {order!r}")
    sizes = [getattr(layout, name) for name in names]
    ranks = torch.arange(layout.gpus).view(sizes)
    return ranks.permute([names.index(name) for name in AXES]).contiguous()


@dataclass(frozen=True)
class Meshes:
    """One mesh per axis (size 1 where the axis is off), and the axes that share a job."""

    pp: DeviceMesh
    dp: DeviceMesh
    cp: DeviceMesh
    tp: DeviceMesh
    replicas: DeviceMesh
    """dp and cp together: the ranks that hold the same weights and see different tokens"""
    sharding: DeviceMesh
    """replicas again; as (replicate, shard) where sharding is hybrid"""
    experts: DeviceMesh | None = None
    """(ep, ranks that share each expert) as one mesh; None where a rank has all of them, whole"""
    expert_replicas: DeviceMesh | None = None
    """the ranks that hold the same of the experts and see different tokens; None where these are ``replicas``"""
    tokens_travel: DeviceMesh | None = None
    """the ranks among which tokens go to their experts; None where each has those of its tokens"""


def build_meshes(device_type: str, layout: Layout, *, order: str, shard_size: int, experts: bool) -> Meshes:
    """Cut all meshes from one. Every rank calls it with the same arguments, after ``init_process_group``.

    ``shard_size``: ranks over which weights are sharded, replicated beyond (hybrid sharding); 0 for all.
    ``experts``: the model has a mixture of experts.
    """
    ranks = ranks_in_order(layout, order)
    world = DeviceMesh(device_type, ranks.flatten(), mesh_dim_names=("world",))
    axes = _cut(world, AXES, (layout.pp, layout.dp, layout.cp, layout.tp))
    alone = next((axes[name] for name, other in (("dp", layout.cp), ("cp", layout.dp)) if other == 1), None)
    replicas = alone or axes["dp", "cp"]._flatten("replicas")
    return Meshes(
        pp=axes["pp"],
        dp=axes["dp"],
        cp=axes["cp"],
        tp=axes["tp"],
        replicas=replicas,
        sharding=_sharding(world, replicas, layout, shard_size),
        **(_expert_meshes(world, layout) if experts and layout.ep * layout.tp * max(1, layout.etp) > 1 else {}),
    )


def _sharding(world: DeviceMesh, replicas: DeviceMesh, layout: Layout, shard_size: int) -> DeviceMesh:
    if shard_size in (0, replicas.size()):
        return replicas
    sizes = (layout.pp, replicas.size() // shard_size, shard_size, layout.tp)
    return _cut(world, ("hybrid_pp", "replicate", "shard", "hybrid_tp"), sizes)["replicate", "shard"]


def _cut(world: DeviceMesh, names: tuple[str, ...], sizes: tuple[int, ...]) -> DeviceMesh:
    """The world as a mesh of these axes. One of a single rank has a group that sends nothing: else NCCL makes a
    communicator for it, with its threads and memory (as torchtitan does).
    """
    alone = {name: "fake" for name, size in zip(names, sizes, strict=True) if size == 1}
    return world._unflatten(0, sizes, names, backend_override=alone)


def _expert_meshes(world: DeviceMesh, layout: Layout) -> dict[str, DeviceMesh]:
    width = layout.etp or layout.tp
    sizes = (layout.pp, layout.dp * layout.cp * layout.tp // (layout.ep * width), layout.ep, width)
    axes = _cut(world, ("expert_pp", "expert_replicas", "ep", "expert_tp"), sizes)
    found = {"experts": axes["ep", "expert_tp"]}
    if layout.ep > 1 or has_own_width(layout):
        found["expert_replicas"] = axes["expert_replicas"]
    among = [name for name, size in (("ep", layout.ep), ("expert_tp", width * has_own_width(layout))) if size > 1]
    if among:
        found["tokens_travel"] = axes[among[0]] if len(among) == 1 else found["experts"]._flatten("tokens_travel")
    return found


def has_own_width(layout: Layout) -> bool:
    """Whether experts are split over another number of ranks than the other matrices: each rank routes its tokens."""
    return layout.etp not in (0, layout.tp)
