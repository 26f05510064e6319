"""Expert parallelism: each rank keeps some experts, and tokens travel to them and back by all-to-all.

Nothing is dropped: the all-to-all is uneven, and its sizes are exchanged first. Attention and router stay replicated
over the expert-parallel ranks, which are taken out of the data-parallel ones. With an ``etp`` apart from tp they are
taken out of all ranks of a stage, and a token goes to each of the ranks that share its expert: their outputs add up.
See Lepikhin et al. 2020 (arXiv 2006.16668), section 3; Liu et al. 2025 (arXiv 2504.14960) for etp.
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
    if meshes.experts is None:
        return
    for block in part.blocks:
        if isinstance(block.mlp, MixtureOfExperts):
            _split(block.mlp.experts, meshes.experts)
            if meshes.expert_replicas is not None:
                block.apart.append((block.mlp.experts, meshes.expert_replicas))
            if meshes.tokens_travel is not None:
                block.mlp.dispatch = AllToAll(meshes.tokens_travel, block.mlp.num_experts, meshes.experts.size(0))


class AllToAll:
    """Carries tokens to the ranks of their experts, and the outputs back."""

    def __init__(self, mesh: DeviceMesh, num_experts: int, ep: int) -> None:
        """``mesh``: ep * copies ranks; each token goes to all copies of the ep rank of its expert."""
        self._group = mesh.get_group()
        self._ranks = mesh.size()
        self._copies = self._ranks // ep
        self._local_experts = num_experts // ep

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # sizes depend on the data
    def __call__(self, tokens: Tensor, counts: Tensor, experts: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Tokens (n, hidden) sorted by expert, counts (experts,) -> outputs (n, hidden) in the same order."""
        leaving = counts.view(-1, self._local_experts).repeat_interleave(self._copies, dim=0)
        by_source = torch.empty_like(leaving)
        dist.all_to_all_single(by_source, leaving, group=self._group)
        sent = leaving.sum(dim=1).tolist()  # waits for the device
        received = by_source.sum(dim=1).tolist()
        copied: Tensor | slice = slice(None)
        if self._copies > 1:  # the tokens of an ep rank's experts leave once for each of its copies
            places = torch.arange(sum(sent) // self._copies, device=tokens.device).split(sent[:: self._copies])
            copied = torch.cat([place for place in places for _ in range(self._copies)])
        travelled = all_to_all_single_autograd(tokens[copied], received, sent, self._group)
        # Tokens arrive by source and expert; the order sorts them by expert alone.
        numbers = torch.arange(self._local_experts, device=by_source.device).repeat(self._ranks)
        order = numbers.repeat_interleave(by_source.flatten(), output_size=sum(received)).argsort(stable=True)
        outputs = experts(travelled[order], by_source.sum(dim=0))
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        returned = all_to_all_single_autograd(outputs[back], sent, received, self._group)
        return returned if self._copies == 1 else torch.zeros_like(tokens).index_add(0, copied, returned)


def _split(experts: Experts, mesh: DeviceMesh) -> None:
    """Expert e on ep rank e // (experts / ep); the width of each over the ranks that share it."""
    width = {"w1": 2, "w3": 2, "w2": 1}
    for name, dim in width.items():
        weight = distribute_tensor(getattr(experts, name).data, mesh, [Shard(0), Shard(dim)])
        experts.register_parameter(name, nn.Parameter(weight))
