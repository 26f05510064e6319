"""Pipeline parallelism by torch.distributed.pipelining: stages, and the schedule that feeds them micro-batches.

Of a tied embedding, which the first stage looks tokens up in and the last projects onto, both keep a copy and add
up their gradients before each update, so that the copies stay equal (Megatron-LM does the same, arXiv 2104.04473).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

from bench_workloads.transformer.weights import local_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.distributed.device_mesh import DeviceMesh

    from bench_workloads.transformer.model import Decoder


_CLASSES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved1F1B",
    "looped_bfs": "LoopedBFS",
    "interleaved_zero_bubble": "InterleavedZeroBubble",
    "zbv_zero_bubble": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}


class _Stage(PipelineStage):
    """A stage that does not send to itself.

    Before the first step torch lets neighbouring stages exchange a number, to connect them. In V schedules two
    neighbours share a rank, and torch 2.11 then sends to itself, which gloo cannot.
    """

    def _get_init_p2p_neighbors_ops(self) -> list[Any]:
        operations: list[Any] = super()._get_init_p2p_neighbors_ops()
        return [op for op in operations if op.group_peer != self.group_rank]


class PipelineStep:
    """Forward and backward of one global step through the pipeline. Called like ``AccumulationStep``."""

    def __init__(
        self,
        parts: Sequence[Decoder],
        numbers: Sequence[int],
        mesh: DeviceMesh,
        *,
        schedule: str,
        micro_batches: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        device: torch.device,
    ) -> None:
        total = mesh.size() * len(parts)
        held = [
            _Stage(part, number, total, device, group=mesh.get_group())
            for part, number in zip(parts, numbers, strict=True)
        ]
        kind: Any = get_schedule_class(_CLASSES[schedule])
        single = issubclass(kind, PipelineScheduleSingle)
        self._schedule = kind(held[0] if single else held, n_microbatches=micro_batches, loss_fn=loss)
        self.schedule_name = next(name for name, theirs in _CLASSES.items() if get_schedule_class(theirs) is kind)
        """the axis value of the schedule that runs"""
        self.first = any(stage.is_first for stage in held)
        self.last = any(stage.is_last for stage in held)

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor | None:
        """Tokens and targets (local batch, local sequence) -> mean loss, or None where the last stage is not here."""
        losses: list[Tensor] = []
        inputs = (tokens,) if self.first else ()
        self._schedule.step(*inputs, target=targets if self.last else None, losses=losses, return_outputs=False)
        return torch.stack([loss.detach() for loss in losses]).mean() if self.last else None


class TiedEmbedding:
    """The copies of a tied embedding that this rank holds: none, one, or both."""

    def __init__(self, parts: Sequence[Decoder], mesh: DeviceMesh) -> None:
        self._mesh = mesh
        tied = parts[0].shape.tied_embeddings and mesh.size() > 1
        self._first = next((p.embedding.weight for p in parts if tied and p.embedding is not None), None)
        self.last = next((p.output.weight for p in parts if tied and p.output is not None), None)
        """the copy that is not among the model's parameters, if this rank holds it"""

    def add_gradients(self) -> None:
        """Call between backward and optimizer, on every rank."""
        if self._first is not None and self.last is not None:
            mine, other = local_of(self._first.grad), local_of(self.last.grad)
            mine.add_(other)
            other.copy_(mine)
        elif self._first is not None:
            self._exchange(local_of(self._first.grad), self._mesh.size() - 1)
        elif self.last is not None:
            self._exchange(local_of(self.last.grad), 0)

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
