"""Attention of one layer, by grouped queries or by latents, and its rotary positions.

Which attention kernel runs: the requested one, and the operator that torch really dispatches to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.backends.cuda import SDPAParams
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench_workloads.transformer.flops import ExecutedFlops

if TYPE_CHECKING:
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


def by_heads(x: Tensor, width: int) -> Tensor:
    """(batch, sequence, heads * width) -> (batch, sequence, heads, width)."""
    return x.view(x.shape[0], x.shape[1], -1, width)


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
        made = [by_heads(getattr(self, name)(x), self.head_dim) for name in self.projections]
        if len(made) == 3:
            return made[0], made[1], made[2]
        keys = made[0].shape[2] // (self.queries_per_key + 2)
        queries, keys, values = made[0].split((keys * self.queries_per_key, keys, keys), dim=2)
        # Attention stores its inputs: a view of the values would hold the queries and keys before their rotation too,
        # which only their norms need.
        return queries, keys, values if self.has_qk_norm else values.contiguous()


class LatentAttention(nn.Module):
    """Keys and values, perhaps queries too, are computed from a narrow latent (DeepSeek-V2, arXiv 2405.04434 sec. 2.1).

    Latents are normed, as DeepSeek-V3 and Kimi-K2 train it. Rotary positions are a further width of queries, and of one
    key that all heads share: ``core`` gets queries and keys that are wider than values.
    """

    rope: tuple[Tensor, Tensor]

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        hidden, rank = shape.hidden_size, shape.kv_rank
        self.head_dim, self.rope_dim = shape.head_dim, shape.rope_head_dim
        self.q_down = nn.Linear(hidden, shape.q_rank, bias=False) if shape.q_rank else None
        self.q_norm = nn.RMSNorm(shape.q_rank, eps=1e-5) if shape.q_rank else None
        queries = shape.num_heads * (shape.head_dim + shape.rope_head_dim)
        self.q_up = nn.Linear(shape.q_rank or hidden, queries, bias=False)
        self.kv_down = nn.Linear(hidden, rank + shape.rope_head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(rank, eps=1e-5)
        self.kv_up = nn.Linear(rank, shape.num_heads * 2 * shape.head_dim, bias=False)
        self.wo = nn.Linear(shape.num_heads * shape.head_dim, hidden, bias=False)
        self.core: AttentionKernel = causal_attention

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) -> the same. The number of local heads is read from the projections."""
        latent, turning = self.kv_down(x).split((self.kv_norm.normalized_shape[0], self.rope_dim), dim=-1)
        keys, values = by_heads(self.kv_up(self.kv_norm(latent)), 2 * self.head_dim).chunk(2, dim=-1)
        narrow = self.q_norm(self.q_down(x)) if self.q_down is not None and self.q_norm is not None else x
        queries = by_heads(self.q_up(narrow), self.head_dim + self.rope_dim)
        still, turned = queries.split((self.head_dim, self.rope_dim), dim=-1)
        shared = rotate(turning[:, :, None], *self.rope).expand(-1, -1, keys.shape[2], -1)
        queries = torch.cat((still, rotate(turned, *self.rope)), dim=-1)
        keys = torch.cat((keys, shared), dim=-1)
        out = self.core(queries.transpose(1, 2), keys.transpose(1, 2), values.contiguous().transpose(1, 2))
        return self.wo(out.transpose(1, 2).flatten(2))


KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "fa3": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def prepare(kernel: str) -> None:
    """Install FlashAttention 3 as torch's flash kernel where it is requested. Raises ImportError if there is none."""
    if kernel != "fa3":
        return
    activate = getattr(nn.attention, "activate_flash_attention_impl", None)
    if activate is None:
        raise ImportError(f"attention=fa3: torch {torch.__version__} cannot install FlashAttention 3 as a kernel")
    activate("FA3")


def takes_groups(kernel: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel takes fewer heads of keys than of queries. Releases of torch differ in ``efficient`` only."""
    if kernel != "efficient":
        return True
    queries, keys = (torch.zeros(1, heads, 16, 64, device=device, dtype=dtype) for heads in (2, 1))
    taken: bool = torch.backends.cuda.can_use_efficient_attention(
        SDPAParams(queries, keys, keys, None, 0.0, True, True)
    )
    return taken


def chosen(kernel: str) -> AbstractContextManager[Any]:
    """Allow only that kernel; auto leaves the choice to torch."""
    context: AbstractContextManager[Any] = nullcontext() if kernel == "auto" else sdpa_kernel(KERNELS[kernel])
    return context


def dispatched(core: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: tuple[Tensor, Tensor, Tensor]) -> str:
    """The attention operators that a kernel calls for such inputs, joined by commas, with FlashAttention's version.

    Collective where the kernel is: call it on every rank of a context-parallel group.
    """
    with ExecutedFlops() as seen:
        core(*inputs)
    called = {name for name in seen.operators if "scaled_dot_product" in name or "flash_attn" in name}
    called |= {"math"} if seen.operators & {"_softmax", "_safe_softmax"} else set()
    version = getattr(nn.attention, "current_flash_attention_impl", lambda: None)()
    names = [f"{name} ({version})" if version and "flash" in name else name for name in sorted(called)]
    return ",".join(names) or "none"
