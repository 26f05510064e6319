"""The MLP of a layer: dense (SwiGLU), or a mixture of experts without token dropping."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

if TYPE_CHECKING:
    from sweep.physics.shapes import ModelShape

Dispatch = Callable[[Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]], Tensor]
"""(tokens sorted by expert, tokens per expert, experts) -> outputs in the order of the tokens"""


Product = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(tokens sorted by expert, a matrix per expert, tokens per expert) -> products in the order of the tokens"""


class FeedForward(nn.Module):
    """SwiGLU, or a plain two-matrix MLP with GELU where the shape is not gated."""

    def __init__(self, shape: ModelShape, width: int, *, fused: bool = False) -> None:
        super().__init__()
        bias, self.gated = shape.mlp_bias, shape.gated_mlp
        self.inner = (("w13",) if fused else ("w1", "w3")) if self.gated else ("w1",)
        """names of the matrices that widen; fused: one product instead of two"""
        for name in self.inner:
            self.add_module(name, nn.Linear(shape.hidden_size, width * (1 + (name == "w13")), bias=bias))
        self.w2 = nn.Linear(width, shape.hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) -> the same."""
        made = [getattr(self, name)(x) for name in self.inner]
        if not self.gated:
            return self.w2(functional.gelu(made[0]))
        gate, up = made if len(made) == 2 else made[0].chunk(2, dim=-1)
        return self.w2(functional.silu(gate) * up)


class Experts(nn.Module):
    """SwiGLU experts as three weights with a leading expert dimension, so that they can be sharded by expert."""

    def __init__(self, count: int, hidden: int, width: int) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(count, hidden, width))
        self.w2 = nn.Parameter(torch.empty(count, width, hidden))
        self.w3 = nn.Parameter(torch.empty(count, hidden, width))
        self.product: Product = by_loop
        """how each expert's tokens are multiplied by its matrix"""

    def forward(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """Tokens (n, hidden) sorted by expert, counts (local experts,) -> outputs (n, hidden) in the same order."""
        w1, w2, w3 = (local_part(w) for w in (self.w1, self.w2, self.w3))
        if len(w1) == 1:
            return (functional.silu(tokens @ w1[0]) * (tokens @ w3[0])) @ w2[0]
        inner = functional.silu(self.product(tokens, w1, counts)) * self.product(tokens, w3, counts)
        return self.product(inner, w2, counts)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # sizes depend on the data
def by_loop(tokens: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Tokens (n, k) sorted by expert, weights (experts, k, m) -> (n, m), expert by expert. Waits for the device."""
    return torch.cat([chunk @ weights[e] for e, chunk in enumerate(tokens.split(counts.tolist()))])


def grouped(tokens: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """The same in one kernel, which reads the counts on the device."""
    return torch._grouped_mm(tokens, weights, offs=counts.cumsum(0).to(torch.int32))


@functools.cache
def product_on(device: str, dtype: torch.dtype, hidden: int, width: int) -> Product:
    """The grouped product where this torch has it for the device, the dtype and experts of that width, else the loop.

    torch 2.13 has it on a CPU, and in bf16 on GPUs of compute capability 8.0 or more; rows must be multiples of 16
    bytes (aten/src/ATen/native/GroupedMMUtils.h).
    """
    found: Product = grouped
    try:
        for rows, columns in ((hidden, width), (width, hidden)):
            tokens, weights = (
                torch.zeros(size, device=device, dtype=dtype) for size in ((2, rows), (2, rows, columns))
            )
            grouped(tokens, weights, torch.ones(2, device=device, dtype=torch.int64))
    except (AttributeError, RuntimeError, NotImplementedError):
        found = by_loop
    return found


class MixtureOfExperts(nn.Module):
    """Router, routed experts and shared experts instead of a dense MLP."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.top_k = shape.experts_per_token
        self.num_experts = shape.num_experts
        self.router = nn.Linear(shape.hidden_size, shape.num_experts, bias=False)
        hidden, width = shape.hidden_size, shape.moe_intermediate_size
        self.experts = Experts(shape.num_experts, hidden, width)
        self.shared = Experts(1, hidden, width * shape.shared_experts) if shape.shared_experts else None
        self.dispatch: Dispatch = lambda tokens, counts, experts: experts(tokens, counts)
        """without expert parallelism a rank computes its own"""
        self.routing = "natural"
        self.stated: Tensor | None = None
        """(sequence, top_k) experts of this rank's positions; None: the router chooses"""

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # sizes depend on the data
    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) -> the same."""
        return self._mix(x)

    def allow_compilation(self) -> None:
        """Let a compiled layer include this: where the grouped product is compiled, and tokens stay on their rank."""
        self.forward = self._mix

    def _mix(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self._route(tokens)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.zeros(self.num_experts, dtype=torch.int64, device=x.device)
        counts = counts.scatter_add(0, chosen.flatten(), torch.ones_like(chosen.flatten()))
        outputs = self.dispatch(tokens[order // self.top_k], counts, self.experts)
        scaled = outputs * weights.flatten()[order, None].to(outputs.dtype)
        mixed = torch.zeros_like(tokens).index_add(0, order // self.top_k, scaled)
        if self.shared is not None:
            mixed = mixed + self.shared(tokens, counts.sum(dim=0, keepdim=True) // self.top_k)
        return mixed.view_as(x)

    def _route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and numbers of each token's experts, both (n, top_k). Scores in fp32, weights that sum to one."""
        scores = self.router(tokens).float().softmax(dim=-1)
        if self.stated is None:
            weights, chosen = scores.topk(self.top_k, dim=-1)
        else:
            chosen = self.stated.repeat(len(tokens) // len(self.stated), 1)
            weights = scores.gather(1, chosen)
        return weights / weights.sum(dim=-1, keepdim=True), chosen


def local_part(weight: Tensor) -> Tensor:
    """The part of a weight that this rank holds. Gradients flow back through it."""
    to_local = getattr(weight, "to_local", None)
    return weight if to_local is None else to_local()
