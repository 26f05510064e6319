"""One embedding on two pipeline stages: the first looks tokens up in it, the last projects onto it.

Both stages keep a copy and add up their gradients before each update, so that the copies stay equal
(Megatron-LM does the same, arXiv 2104.04473).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from bench_workloads.transformer.weights import local_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh

    from bench_workloads.transformer.model import Decoder


class TiedEmbedding:
    """The copies of a tied embedding that this rank holds: none, one, or both."""

    def __init__(self, parts: Sequence[Decoder], mesh: DeviceMesh) -> None:
        self._mesh = mesh
        tied = parts[0].shape.tied_embeddings and mesh.size() > 1
        self._first = next((p.embedding.weight for p in parts if tied and p.embedding is not None), None)
        self._last = next((p.output.weight for p in parts if tied and p.output is not None), None)

    @property
    def copy(self) -> nn.Parameter | None:
        """The copy that is not among the model's parameters, if this rank holds it."""
        return self._last

    def add_gradients(self) -> None:
        """Call between backward and optimizer, on every rank."""
        if self._first is not None and self._last is not None:
            mine, other = local_of(self._first.grad), local_of(self._last.grad)
            mine.add_(other)
            other.copy_(mine)
        elif self._first is not None:
            self._exchange(local_of(self._first.grad), self._mesh.size() - 1)
        elif self._last is not None:
            self._exchange(local_of(self._last.grad), 0)

    def _exchange(self, gradient: Tensor, stage_rank: int) -> None:
        """Add the gradient of the peer's copy to this one."""
        group = self._mesh.get_group()
        peer = dist.get_global_rank(group, stage_rank)
        theirs = torch.empty_like(gradient)
        operations = [
            dist.P2POp(dist.isend, gradient.contiguous(), peer, group),
            dist.P2POp(dist.irecv, theirs, peer, group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        gradient.add_(theirs)
