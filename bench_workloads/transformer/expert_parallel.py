"""Expert parallelism: each rank keeps some experts, and tokens travel to them and back by all-to-all.

Nothing is dropped: the all-to-all is uneven, and its sizes are exchanged first. Attention and router stay replicated
over the expert-parallel ranks, which are taken out of the data-parallel ones.
See Lepikhin et al. 2020 (arXiv 2006.16668), section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.tensor import Shard, distribute_tensor

from bench_workloads.transformer.mlp import Experts, MixtureOfExperts

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from bench_workloads.transformer.mesh import Meshes
    from bench_workloads.transformer.model import Decoder


def apply(part: Decoder, meshes: Meshes) -> None:
    """Split the routed experts of one stage by expert and by width, in place."""
    if meshes.expert_tp is None:
        return
    for block in part.blocks:
        if isinstance(block.mlp, MixtureOfExperts):
            _split(block.mlp.experts, meshes.expert_tp)
            if meshes.ep is not None and meshes.expert_replicas is not None:
                block.mlp.dispatch = AllToAll(meshes.ep, block.mlp.num_experts)
                block.apart.append((block.mlp.experts, meshes.expert_replicas))


class AllToAll:
    """Carries tokens to the ranks of their experts, and the outputs back."""

    def __init__(self, mesh: DeviceMesh, num_experts: int) -> None:
        self._group = mesh.get_group()
        self._ranks = mesh.size()
        self._local_experts = num_experts // self._ranks

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # sizes depend on the data
    def __call__(self, tokens: Tensor, counts: Tensor, experts: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Tokens (n, hidden) sorted by expert, counts (experts,) -> outputs (n, hidden) in the same order."""
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self._group)
        by_source = arriving.view(self._ranks, self._local_experts)
        sent = counts.view(self._ranks, -1).sum(dim=1).tolist()  # waits for the device
        received = by_source.sum(dim=1).tolist()
        travelled = all_to_all_single_autograd(tokens, received, sent, self._group)
        order = self._by_expert(by_source, sum(received))
        outputs = experts(travelled[order], by_source.sum(dim=0))
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        return all_to_all_single_autograd(outputs[back], sent, received, self._group)

    def _by_expert(self, by_source: Tensor, received: int) -> Tensor:
        """The order that sorts tokens, which arrive by source and expert, by expert alone. (received tokens,)"""
        experts = torch.arange(self._local_experts, device=by_source.device).repeat(self._ranks)
        return experts.repeat_interleave(by_source.flatten(), output_size=received).argsort(stable=True)


def _split(experts: Experts, mesh: DeviceMesh) -> None:
    """Expert e on ep rank e // (experts / ep); the width of each expert over tp."""
    width = {"w1": 2, "w3": 2, "w2": 1}
    for name, dim in width.items():
        weight = distribute_tensor(getattr(experts, name).data, mesh, [Shard(0), Shard(dim)])
        experts.register_parameter(name, nn.Parameter(weight))
