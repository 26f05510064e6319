"""The decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU or a mixture of experts.

Independent of the parallelism. A ``Decoder`` may be the whole model or the part of it that one pipeline
stage holds; its parameters keep the names that they have in the whole model, so that every part starts the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from bench_workloads.transformer.mlp import FeedForward, MixtureOfExperts, Product
from bench_workloads.transformer.output import OutputProjection
from bench_workloads.transformer.routing import experts_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from sweep.physics.shapes import ModelShape

AttentionKernel = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries, keys, values), each (batch, heads, sequence, head_dim) -> (batch, heads, sequence, head_dim)"""

ROPE_THETA = 500_000.0


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention over whole sequences, by the fastest kernel that torch finds."""
    grouped = queries.shape[1] != keys.shape[1]
    return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=grouped)


def attention_by_head(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same with keys and values repeated for each head, for a kernel that takes no grouped queries."""
    keys, values = (x.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1) for x in (keys, values))
    return causal_attention(queries, keys, values)


def rope_table(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding at the positions, each (sequence, head_dim) (arXiv 2104.09864)."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = torch.outer(positions.float(), ROPE_THETA**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding to x (batch, sequence, heads, head_dim), in fp32."""
    cos, sin = cos[:, None, :], sin[:, None, :]
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x.float() * cos + turned * sin).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention. ``core`` is the kernel, which context parallelism replaces."""

    rope: tuple[Tensor, Tensor]

    def __init__(self, shape: ModelShape, *, fused: bool = False) -> None:
        super().__init__()
        hidden, width, kv_width = (
            shape.hidden_size,
            shape.num_heads * shape.head_dim,
            shape.num_kv_heads * shape.head_dim,
        )
        self.head_dim = shape.head_dim
        self.has_qk_norm = shape.qk_norm
        self.queries_per_key = shape.num_heads // shape.num_kv_heads
        self.projections = ("wqkv",) if fused else ("wq", "wk", "wv")
        """names of the matrices that make queries, keys and values; fused: one product instead of three"""
        widths = (width + 2 * kv_width,) if fused else (width, kv_width, kv_width)
        for name, out in zip(self.projections, widths, strict=True):
            self.add_module(name, nn.Linear(hidden, out, bias=shape.qkv_bias))
        self.wo = nn.Linear(width, hidden, bias=shape.attention_output_bias)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=1e-5) if shape.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=1e-5) if shape.qk_norm else nn.Identity()
        self.core: AttentionKernel = causal_attention

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) -> the same. The number of local heads is read from the projections."""
        queries, keys, values = self._project(x)
        queries = rotate(self.q_norm(queries), *self.rope)
        keys = rotate(self.k_norm(keys), *self.rope)
        out = self.core(queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
        return self.wo(out.transpose(1, 2).flatten(2))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, sequence, local heads, head_dim)."""
        made = [self._heads(getattr(self, name)(x)) for name in self.projections]
        if len(made) == 3:
            return made[0], made[1], made[2]
        keys = made[0].shape[2] // (self.queries_per_key + 2)
        queries, keys, values = made[0].split((keys * self.queries_per_key, keys, keys), dim=2)
        # Attention stores its inputs: a view of the values would hold the queries and keys before their rotation too.
        return queries, keys, values.contiguous()

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], -1, self.head_dim)


class Block(nn.Module):
    """One layer: attention and MLP, each with a pre-norm and a residual connection."""

    def __init__(self, shape: ModelShape, index: int, *, fused: bool = False) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden_size, eps=1e-5)
        self.attention = Attention(shape, fused=fused)
        self.mlp_norm = nn.RMSNorm(shape.hidden_size, eps=1e-5)
        mixture = shape.num_experts > 0 and index >= shape.dense_layers
        self.mlp: nn.Module = (
            MixtureOfExperts(shape) if mixture else FeedForward(shape, shape.intermediate_size, fused=fused)
        )
        self.recomputed = "none"
        """what of this layer is recomputed: set by what wraps it"""
        self.compiled = False
        self.apart: list[tuple[nn.Module, DeviceMesh]] = []
        """modules whose weights are on other ranks than the rest's, and these ranks: set by what splits them"""
        self.selective_region = "attend" if mixture else "forward"
        """the method that selective recomputation wraps: routed experts may be sharded apart, and it cannot handle
        a module with its own communication"""

    def attend(self, x: Tensor) -> Tensor:
        """The first half of the layer: (batch, sequence, hidden) -> the same."""
        return x + self.attention(self.attention_norm(x))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) -> the same."""
        x = self.attend(x)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """The given layers, with the embedding where they are the first part and the output projection where the last."""

    def __init__(
        self,
        shape: ModelShape,
        layers: Sequence[int],
        *,
        first: bool = True,
        last: bool = True,
        fused: bool = False,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_size) if first else None
        self.layers = nn.ModuleDict({str(index): Block(shape, index, fused=fused) for index in layers})
        self.norm = nn.RMSNorm(shape.hidden_size, eps=1e-5) if last else None
        self.output = OutputProjection(shape.hidden_size, shape.vocab_size) if last else None
        self.returns_logits = True
        """False: the last part returns normed hidden states, and the loss applies the output projection"""
        self.tie()

    def tie(self) -> None:
        """Let embedding and output projection share one weight, where the shape ties them and this part has both."""
        if self.shape.tied_embeddings and self.embedding is not None and self.output is not None:
            self.output.weight = self.embedding.weight

    @property
    def blocks(self) -> list[Block]:
        """The layers in order."""
        return [block for block in self.layers.values() if isinstance(block, Block)]

    def set_attention(self, core: AttentionKernel) -> None:
        """Set the kernel of every layer."""
        for block in self.blocks:
            block.attention.core = core

    def group_experts(self, product: Product, *, compilable: bool) -> None:
        """Set how the routed experts of each layer are multiplied, and whether a compiled layer includes them."""
        for block in self.blocks:
            if isinstance(block.mlp, MixtureOfExperts):
                block.mlp.experts.product = product
                if compilable:
                    block.mlp.allow_compilation()

    def set_positions(self, positions: Tensor) -> None:
        """Set the positions of this rank's tokens in the sequence: (sequence,) integers."""
        table = rope_table(positions, self.shape.head_dim)
        for block in self.blocks:
            block.attention.rope = table

    def set_routing(self, routing: str, positions: Tensor, sequence_length: int) -> None:
        """State the experts of this rank's positions, instead of the routers' choice."""
        for index, block in self.layers.items():
            if isinstance(block, Block) and isinstance(block.mlp, MixtureOfExperts):
                size = (sequence_length, block.mlp.num_experts, block.mlp.top_k)
                whole = experts_of(routing, int(index), *size)
                block.mlp.routing = routing
                block.mlp.stated = None if whole is None else whole.to(positions.device)[positions]

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, sequence), or hidden states from the stage before, -> logits or hidden states."""
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.layers.values():
            x = block(x)
        if self.norm is not None and self.output is not None:
            x = self.norm(x)
            x = self.output(x) if self.returns_logits else x
        return x


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of logits (batch, sequence, vocabulary) against targets (batch, sequence), in fp32."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))
