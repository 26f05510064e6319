"""Tensor parallelism: each matrix split over the ranks of a node, and the sequence split between the matrices.

Attention and MLP take the whole sequence and split their width; norms and residual path split the sequence instead
(sequence parallelism), which turns each all-reduce into an all-gather and a reduce-scatter of the same bytes.
See Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.nn.functional as functional
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from bench_workloads.transformer.attention import LatentAttention
from bench_workloads.transformer.mlp import FeedForward, local_part
from bench_workloads.transformer.model import PredictionBlock

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from bench_workloads.transformer.model import Block, Decoder


def apply(
    part: Decoder, mesh: DeviceMesh, *, sequence_parallel: bool, parallel_loss: bool, own_tokens: bool = False
) -> None:
    """Split the weights of one stage over ``mesh``, in place. ``own_tokens``: each rank routes its own part."""
    if mesh.size() == 1:
        return
    between = Shard(1) if sequence_parallel else Replicate()
    parallelize_module(part, mesh, _ends(part, between, parallel_loss=parallel_loss))
    for block in part.blocks:
        parallelize_module(block, mesh, _block(block, between, own_tokens=own_tokens))
    part.tie()


def loss_context(mesh: DeviceMesh, *, parallel_loss: bool) -> AbstractContextManager[None]:
    """Compute the loss on logits that stay split by vocabulary. Forward and backward must both run inside."""
    split: AbstractContextManager[None] = loss_parallel()
    return split if parallel_loss and mesh.size() > 1 else nullcontext()


def _ends(part: Decoder, between: Any, *, parallel_loss: bool) -> dict[str, ParallelStyle]:
    """Embedding and output projection are split by vocabulary."""
    plan: dict[str, ParallelStyle] = {}
    if part.embedding is not None:
        plan["embedding"] = OwnRows(between)
    if part.output is not None:
        further = part.shape.mtp_layers > 0
        if between == Shard(1):
            plan["norm"] = SummedGradient() if further else SequenceParallel()
        plan["output"] = ColwiseParallel(
            input_layouts=Shard(2) if further and between == Shard(1) else between,
            output_layouts=Shard(-1) if parallel_loss else Replicate(),
            use_local_output=not parallel_loss,
        )
    return plan


def _block(block: Block, between: Any, *, own_tokens: bool) -> dict[str, ParallelStyle]:
    plan = _latent(between) if isinstance(block.attention, LatentAttention) else _grouped(block.attention, between)
    plan |= _norms(block, between)
    if isinstance(block.mlp, FeedForward):
        return {
            **plan,
            "mlp": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
            **{f"mlp.{name}": ColwiseParallel() for name in block.mlp.inner},
            "mlp.w2": RowwiseParallel(output_layouts=between),
        }
    mixture: ParallelStyle = OwnTokens() if own_tokens else WholeSequence(between)
    return {**plan, "mlp": mixture, "mlp.router": SummedGradient(), "mlp.shared": SplitWidth(gather=own_tokens)}


def _norms(block: Block, between: Any) -> dict[str, ParallelStyle]:
    """A norm's weight is whole on every rank. Where a rank sees part of the input, its gradient is summed over them."""
    plan: dict[str, ParallelStyle] = {}
    if between == Shard(1):
        plan |= {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()}
        if isinstance(block, PredictionBlock):
            names = ("hidden_norm", "token_norm", "last_norm", "projection")
            plan |= {name: SummedGradient() for name in names}
    return plan


def _grouped(attention: nn.Module, between: Any) -> dict[str, ParallelStyle]:
    by_heads = SequenceParallel(sequence_dim=2, use_local_output=True)
    return {
        "attention": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
        **{f"attention.{name}": ColwiseParallel() for name in attention.projections},
        "attention.wo": RowwiseParallel(output_layouts=between),
        **({"attention.q_norm": by_heads, "attention.k_norm": by_heads} if attention.has_qk_norm else {}),
    }


def _latent(between: Any) -> dict[str, ParallelStyle]:
    """Latents are whole on every rank, heads are split (as in Megatron-LM). What is not there is passed over."""
    return {
        "attention": WholeSequence(between),
        **{f"attention.{name}": SummedGradient() for name in ("q_down", "q_norm", "kv_down", "kv_norm")},
        **{f"attention.{name}": OwnPart(0) for name in ("q_up", "kv_up")},
        "attention.wo": OwnPart(1),
    }


@dataclass(eq=False)
class OwnRows(ParallelStyle):
    """An embedding split by vocabulary: each rank looks up the tokens whose rows it holds, and the ranks' sum is whole.

    The lookup is of plain tensors, so that the gradient is that of the rank's own rows, as in Megatron-LM (arXiv
    1909.08053, sec. 3). Of a distributed embedding torch makes the gradient of the whole vocabulary on each rank.
    """

    between: Placement

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        module.weight = nn.Parameter(distribute_tensor(module.weight, mesh, [Shard(0)]))
        module.forward = lambda tokens: self._embed(module.weight.to_local(), tokens, mesh)
        return module

    def _embed(self, rows: Tensor, tokens: Tensor, mesh: DeviceMesh) -> Tensor:
        """(vocabulary / tp, hidden) and tokens (batch, sequence) -> (batch, sequence or its share, hidden)."""
        mine = tokens - mesh.get_local_rank() * len(rows)
        elsewhere = (mine < 0) | (mine >= len(rows))
        found = functional.embedding(mine.masked_fill(elsewhere, 0), rows).masked_fill(elsewhere[..., None], 0.0)
        return _summed(found, mesh, self.between)


@dataclass(eq=False)
class WholeSequence(ParallelStyle):
    """The module takes plain tensors of the whole sequence and returns a partial sum of its output on each rank."""

    between: Placement

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        module.register_forward_pre_hook(lambda _module, inputs: (self._gather(inputs[0], mesh), *inputs[1:]))
        module.register_forward_hook(lambda _module, _inputs, output: _summed(output, mesh, self.between))
        return module

    def _gather(self, x: Tensor, mesh: DeviceMesh) -> Tensor:
        spread = x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [self.between], run_check=False)
        return spread.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


def _summed(partial: Tensor, mesh: DeviceMesh, between: Placement) -> Tensor:
    """The sum of all ranks' outputs, or this rank's part of it."""
    return DTensor.from_local(partial, mesh, [Partial()], run_check=False).redistribute(placements=[between]).to_local()


class OwnTokens(ParallelStyle):
    """The module takes and returns plain tensors of the rank's part of the sequence."""

    def _apply(self, module: nn.Module, _mesh: DeviceMesh) -> nn.Module:
        module.register_forward_pre_hook(lambda _module, inputs: local_part(inputs[0]))
        return module


class SummedGradient(ParallelStyle):
    """A linear or norm of plain tensors, whole on every rank, whose gradient is summed over the ranks."""

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        module.weight = nn.Parameter(DTensor.from_local(module.weight, mesh, [Replicate()], run_check=False))

        def forward(x: Tensor) -> Tensor:
            weight = module.weight.to_local(grad_placements=[Partial()])
            if isinstance(module, nn.RMSNorm):
                return functional.rms_norm(x, module.normalized_shape, weight, module.eps)
            return functional.linear(x, weight)

        module.forward = forward
        return module


@dataclass(eq=False)
class OwnPart(ParallelStyle):
    """A linear without a bias, split by its outputs (0) or inputs (1), of plain tensors: in the latter case a rank's
    output is a partial sum.
    """

    dim: int

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        module.weight = nn.Parameter(distribute_tensor(module.weight, mesh, [Shard(self.dim)]))
        module.forward = lambda x: functional.linear(x, module.weight.to_local())
        return module


@dataclass(eq=False)
class SplitWidth(ParallelStyle):
    """Experts whose width is split: each rank's output is a partial sum. ``gather``: the ranks have other tokens."""

    gather: bool

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        for name, dim in (("w1", 2), ("w3", 2), ("w2", 1)):
            module.register_parameter(name, nn.Parameter(distribute_tensor(getattr(module, name), mesh, [Shard(dim)])))
        return WholeSequence(Shard(0))._apply(module, mesh) if self.gather else module
