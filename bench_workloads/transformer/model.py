"""The decoder: RMSNorm, rotary positions, grouped-query or latent attention, SwiGLU or a mixture of experts, and layers
that predict further tokens.

Independent of the parallelism. A ``Decoder`` may be the whole model or the part of it that one pipeline
stage holds; its parameters keep the names that they have in the whole model, so that every part starts the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from bench_workloads.transformer.attention import Attention, AttentionKernel, LatentAttention, rope_table
from bench_workloads.transformer.mlp import FeedForward, MixtureOfExperts, Product
from bench_workloads.transformer.output import OutputProjection

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from sweep.physics.shapes import ModelShape


class Block(nn.Module):
    """One layer: attention and MLP, each with a pre-norm and a residual connection."""

    def __init__(self, shape: ModelShape, index: int, *, fused: bool = False) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden_size, eps=1e-5)
        self.attention: nn.Module = LatentAttention(shape) if shape.kv_rank else Attention(shape, fused=fused)
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


class PredictionBlock(Block):
    """A layer of multi-token prediction (DeepSeek-V3, arXiv 2412.19437 sec. 2.2), with a last norm of its own.

    Takes what the layer before returned and the embedding of the next token, side by side.
    """

    def __init__(self, shape: ModelShape, index: int, *, fused: bool = False) -> None:
        super().__init__(shape, index, fused=fused)
        hidden = shape.hidden_size
        self.hidden_norm, self.token_norm, self.last_norm = (nn.RMSNorm(hidden, eps=1e-5) for _ in range(3))
        self.projection = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, 2 * hidden) -> (batch, sequence, hidden), normed."""
        before, token = x.chunk(2, dim=-1)
        x = self.projection(torch.cat((self.hidden_norm(before), self.token_norm(token)), dim=-1))
        return self.last_norm(super().forward(x))


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
        for index in range(shape.num_layers, (shape.num_layers + shape.mtp_layers) * last):
            self.layers[str(index)] = PredictionBlock(shape, index, fused=fused)
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
        table = rope_table(positions, self.shape.rope_head_dim or self.shape.head_dim)
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
        """Tokens (batch, sequence), or hidden states from the stage before, -> logits or hidden states.

        With multi-token prediction tokens (batch, sequence, 1 + depth) are each position's and those after it, and what
        it returns has a leading dimension (1 + depth): what predicts each one's next.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        following: list[Tensor] = []
        if self.shape.mtp_layers:
            # Contiguous: else torch 2.13 compiles the first layer apart, and fails at its strides under tp.
            x, *following = (each.contiguous() for each in x.unbind(2))
        for block in self.blocks[: len(self.blocks) - len(following)]:
            x = block(x)
        if self.norm is not None and self.output is not None:
            x = self._with_further(x, following) if following else self.norm(x)
            x = self.output(x) if self.returns_logits else x
        return x

    def _with_further(self, x: Tensor, following: Sequence[Tensor]) -> Tensor:
        assert self.norm is not None
        outputs = [self.norm(x)]
        for block, token in zip(self.blocks[-len(following) :], following, strict=True):
            x = block(torch.cat((x, token), dim=-1))
            outputs.append(x)
        return torch.stack(outputs)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of logits (batch, sequence, vocabulary) against targets (batch, sequence), in fp32."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))


def experts_of(routing: str, layer: int, sequence_length: int, experts: int, per_token: int) -> Tensor | None:
    """(sequence, per_token) numbers of experts; None where the router chooses.

    ``balanced``: in turn. ``skewed:S``: drawn without replacement, the first with a probability proportional to
    1 / rank^S (Zipf), by the largest of log-probabilities with Gumbel noise (Kool et al. 2019, arXiv 1903.06059); which
    expert has which rank differs by layer.
    """
    if routing == "natural":
        return None
    if routing == "balanced":
        return torch.arange(sequence_length * per_token).view(sequence_length, per_token) % experts
    exponent = float(routing.partition(":")[2])
    generator = torch.Generator().manual_seed(layer)
    ranks = 1 + torch.randperm(experts, generator=generator)
    noise = -torch.log(torch.empty(sequence_length, experts).exponential_(generator=generator))
    return (noise - exponent * torch.log(ranks.float())).topk(per_token, dim=-1).indices
