"""Bring a model from meta to its device, with the same initial weights in every layout.

Each parameter is sampled whole from a generator keyed by the seed and its name, and a rank keeps its shard of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

if TYPE_CHECKING:
    from bench_workloads.transformer.model import Decoder
    from sweep.physics.shapes import ModelShape

INIT_STD = 0.02


FUSED = {"wqkv": ("wq", "wk", "wv"), "w13": ("w1", "w3")}
"""a fused matrix -> the matrices whose rows it holds"""


def materialise(part: Decoder, device: torch.device, seed: int, tp: int = 1) -> None:
    """Allocate one stage's shards on ``device`` and initialise them. ``tp``: ranks that split its matrices."""
    part.to_empty(device=device)
    part.tie()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            drawn = "embedding.weight" if part.shape.tied_embeddings and name == "output.weight" else name
            whole = _whole(part.shape, drawn, tuple(parameter.shape), tp, device, seed)
            local_of(parameter).copy_(_shard(parameter, whole))


def local_of(tensor: Tensor) -> Tensor:
    """This rank's shard of a tensor. Shares its storage."""
    if isinstance(tensor, DTensor):
        return getattr(tensor._local_tensor, "_tensor", tensor._local_tensor)  # torchao wraps what it gathers in 8 bits
    return tensor.detach()


def _whole(shape: ModelShape, name: str, size: tuple[int, ...], tp: int, device: torch.device, seed: int) -> Tensor:
    """A parameter of that size. A fused one has, for each tp rank, that rank's rows of each matrix that it holds."""
    fused = next((kind for kind in FUSED if f".{kind}." in name), None)
    if fused is None:
        return _draw(name, size, device, seed)
    parts = [
        _draw(name.replace(f".{fused}.", f".{one}."), (rows, *size[1:]), device, seed)
        for one, rows in zip(FUSED[fused], rows_of_parts(shape, fused, size[0]), strict=True)
    ]
    by_rank = zip(*(part.chunk(tp) for part in parts), strict=True)
    return torch.cat([piece for pieces in by_rank for piece in pieces])


def rows_of_parts(shape: ModelShape, fused: str, rows: int) -> list[int]:
    """Rows of each matrix that a fused one of that many rows holds."""
    heads, keys = shape.num_heads, shape.num_kv_heads
    shares = (heads, keys, keys) if fused == "wqkv" else (1, 1)
    return [rows // sum(shares) * share for share in shares]


def _draw(name: str, shape: tuple[int, ...], device: torch.device, seed: int) -> Tensor:
    """The whole parameter: norms are one, biases zero, matrices normal."""
    if name.endswith("norm.weight"):
        return torch.ones(shape, device=device)
    if name.endswith("bias"):
        return torch.zeros(shape, device=device)
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randn(shape, device=device, generator=generator) * INIT_STD


def _shard(parameter: Tensor, whole: Tensor) -> Tensor:
    """This rank's part of a whole parameter."""
    if not isinstance(parameter, DTensor):
        return whole
    sizes, offsets = compute_local_shape_and_global_offset(whole.shape, parameter.device_mesh, parameter.placements)
    return whole[tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))]
