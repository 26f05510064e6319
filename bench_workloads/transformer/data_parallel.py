"""Data parallelism and ZeRO: one code path, FSDP2, for every stage.

========  ==========================  ===========================================  ==============================
stage     weights between steps       gradients between micro-batches              weights between forward and backward
========  ==========================  ===========================================  ==============================
0         whole (``replicate``)       whole, reduced after the last micro-batch    whole
1         sharded                     whole, reduced after the last micro-batch    whole until the step ends
2         sharded                     sharded, reduced after every micro-batch     whole until the step ends
3         sharded                     sharded, reduced after every micro-batch     gathered again, layer by layer
========  ==========================  ===========================================  ==============================

Stages 1 and 2 gather the weights once per step, where ZeRO's text updates its shard and then gathers: the same bytes.
Inside a pipeline torch reduces once, after the last micro-batch, in every stage: there 2 holds whole gradients too.
See Rajbhandari et al. 2020 (arXiv 1910.02054).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh

    from bench_workloads.transformer.mesh import Meshes
    from bench_workloads.transformer.model import Decoder


def apply(
    part: Decoder, meshes: Meshes, *, zero: int, dtype: torch.dtype, weights_dtype: torch.dtype, reshard: bool
) -> None:
    """Spread the weights of one stage over the ranks that see different tokens, in place.

    A rank that has no peer and computes in the weights' own dtype keeps the plain module: no copies, no hooks.
    Gradients are accumulated and reduced in fp32, except where the weights themselves are in bf16.
    ``reshard``: free gathered weights between forward and backward (stage 3 only).
    """
    if meshes.replicas.size() * meshes.tp.size() == 1 and dtype == weights_dtype:
        return
    alone = dtype == weights_dtype == torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.bfloat16 if alone else torch.float32)
    free = zero == 3 and reshard

    def wrap(modules: Any, mesh: DeviceMesh, *, free_after_forward: bool) -> None:
        if zero == 0:
            replicate(modules, mesh=mesh, mp_policy=policy)
        else:
            fully_shard(modules, mesh=mesh, mp_policy=policy, reshard_after_forward=free_after_forward)

    dense = meshes.replicas if zero == 0 else meshes.sharding
    for block in part.blocks:
        for module, holders in block.apart:
            wrap(module, holders, free_after_forward=free)
            _average_over(module, holders, meshes.replicas.size(), sharded=zero > 0)
        wrap(block, dense, free_after_forward=free)
    for end in _ends(part):
        wrap(end, dense, free_after_forward=free and end is part.embedding)
    wrap(part, dense, free_after_forward=False)
    for block, following in itertools.pairwise(part.blocks) if zero > 0 else ():
        # Each layer gathers the next one's weights before it computes, in either direction.
        assert isinstance(block, FSDPModule)
        assert isinstance(following, FSDPModule)
        block.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([block])


def _ends(part: Decoder) -> list[nn.Module]:
    """Embedding and output projection as groups of their own; none where they share a weight: the outermost has it."""
    found = [end for end in (part.embedding, part.output) if end is not None]
    return [] if len(found) == 2 and part.shape.tied_embeddings else found


@dataclass
class AccumulationStep:
    """Forward and backward of one global step without a pipeline, micro-batch by micro-batch."""

    model: Decoder
    zero: int
    micro_batches: int
    loss: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor | None:
        """Tokens and targets (local batch, local sequence) -> their mean loss."""
        losses = []
        pairs = list(zip(tokens.chunk(self.micro_batches), targets.chunk(self.micro_batches), strict=True))
        for number, (inputs, wanted) in enumerate(pairs, start=1):
            last = number == len(pairs)
            if isinstance(self.model, FSDPModule):
                self.model.set_requires_gradient_sync(last or self.zero >= 2)
                self.model.set_reshard_after_backward(last or self.zero == 3)
                self.model.set_is_last_backward(last)
            loss = self.loss(self.model(inputs), wanted)
            (loss / len(pairs)).backward()
            losses.append(loss.detach())
        return torch.stack(losses).mean()


def _average_over(module: nn.Module, holders: DeviceMesh, ranks: int, *, sharded: bool) -> None:
    """Divide gradients by all the ranks whose tokens they come from, not only by the holders of the same weights."""
    assert isinstance(module, FSDPModule)
    module.set_gradient_divide_factor(float(ranks))
    # gloo has no scaled sum. Elsewhere, and where nothing is scattered, torch 2.13 would divide twice.
    scattered = sharded and holders.size() > 1
    module.set_force_sum_reduction_for_comms(scattered and holders.device_type == "cpu")
