"""AdamW and gradient clipping over the shards that a rank holds, independent of how they were sharded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from bench_workloads.transformer.weights import local_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from bench_workloads.transformer.settings import Settings


class Optimizer:
    """AdamW on local shards. Built at the first step, when FSDP has fixed the placement of the shards."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        settings: Settings,
        *,
        uncounted: nn.Parameter | None,
        stages: int,
    ) -> None:
        self._parameters = list(parameters)
        shares = [0.0 if p is uncounted else 1.0 / _copies(p, stages) for p in parameters]
        self._shares = torch.tensor(shares, dtype=torch.float64)
        self._clip = settings.clip_grad
        self._options = {
            "lr": settings.learning_rate,
            "weight_decay": 0.1,
            "betas": (0.9, 0.95),
            "fused": settings.fused_optimizer,
            "foreach": not settings.fused_optimizer,
        }
        self._shards: list[Tensor] = []
        self._inner: torch.optim.Optimizer | None = None

    def step(self) -> Tensor:
        """Clip, update, clear gradients. Returns the gradient norm of the whole model, before clipping, as a scalar."""
        if self._inner is None:
            self._shards = self.shards()
            self._shares = self._shares.to(self._shards[0].device)
            self._inner = torch.optim.AdamW(self._shards, **self._options)
        gradients = [local_of(p.grad) for p in self._parameters if p.grad is not None]
        if len(gradients) != len(self._parameters):
            raise RuntimeError("a parameter has no gradient: this layout loses gradients")
        # Each shard's square counts once, however many ranks hold it. Summed in fp64.
        squares = torch.stack(torch._foreach_norm(gradients, dtype=torch.float32)).double().square()
        total = (squares * self._shares).sum()
        dist.all_reduce(total)
        norm = total.sqrt()
        if self._clip:
            torch._foreach_mul_(gradients, (self._clip / (norm + 1e-6)).clamp(max=1.0).to(gradients[0].dtype))
        for shard, gradient in zip(self._shards, gradients, strict=True):
            shard.grad = gradient
        self._inner.step()
        for tensor in (*self._parameters, *self._shards):
            tensor.grad = None
        return norm

    def shards(self) -> list[Tensor]:
        """This rank's shard of each parameter."""
        return [local_of(p) for p in self._parameters]

    def states(self) -> list[dict[str, Tensor]]:
        """AdamW's own tensors of each shard, once a step was taken: ``step``, ``exp_avg``, ``exp_avg_sq``."""
        assert self._inner is not None
        return [self._inner.state[shard] for shard in self._shards]


def _copies(parameter: Tensor, stages: int) -> int:
    """Ranks of the world that hold the very same shard of a parameter."""
    shards: int = stages
    if isinstance(parameter, DTensor):
        for placement, size in zip(parameter.placements, parameter.device_mesh.shape, strict=True):
            shards *= 1 if placement.is_replicate() else size
    return int(dist.get_world_size()) // shards
