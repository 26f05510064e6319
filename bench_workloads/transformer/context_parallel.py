"""Context parallelism: each sequence cut over the ranks, with the causal work shared evenly.

``allgather``: every rank gathers all keys and values. The sequence is cut in 2 * cp chunks and rank r takes chunks
r and 2 * cp - 1 - r, so that all ranks attend to equally many keys (Llama 3, arXiv 2407.21783, section 3.3.2).
``ulysses``: an all-to-all turns a slice of the sequence with all heads into the whole sequence with a slice of the
heads, and back (DeepSpeed-Ulysses, arXiv 2309.14509). Ranks hold contiguous slices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.distributed import _functional_collectives as collectives
from torch.nn.attention.bias import causal_lower_right

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

    from bench_workloads.transformer.attention import AttentionKernel
    from bench_workloads.transformer.model import Decoder

# renamed in torch 2.13
_all_gather = getattr(collectives, "all_gather_single_autograd", None) or collectives.all_gather_tensor_autograd


def positions(sequence_length: int, rank: int, ranks: int, kind: str) -> Tensor:
    """The positions of the sequence that a rank holds, in the order in which it holds them.

    >>> positions(8, 0, 2, "allgather").tolist()
    [0, 1, 6, 7]
    """
    everything = torch.arange(sequence_length)
    if ranks == 1 or kind == "ulysses":
        return everything.chunk(ranks)[rank]
    chunks = everything.chunk(2 * ranks)
    return torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]))


def apply(part: Decoder, mesh: DeviceMesh, kind: str, sequence_length: int) -> None:
    """Set the kernel over the whole sequence in every attention of one stage."""
    if mesh.size() == 1:
        return
    if kind == "ulysses" and part.blocks:
        part.set_attention(Ulysses(mesh, part.blocks[0].attention.core))
    else:
        part.set_attention(GatheredKeys(mesh, sequence_length))


class GatheredKeys:
    """Attention of this rank's two chunks of queries over all the keys before them."""

    def __init__(self, mesh: DeviceMesh, sequence_length: int) -> None:
        self._group: ProcessGroup = mesh.get_group()
        self._rank = mesh.get_local_rank()
        self._ranks = mesh.size()
        # Built here, since torch 2.13 cannot make them while operators are counted or selectively recomputed.
        length = sequence_length // (2 * self._ranks)
        self._masks = {c: causal_lower_right(length, (c + 1) * length) for c in range(2 * self._ranks)}

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch 2.13 cannot trace the masks
    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Local (batch, heads, sequence / cp, head_dim) -> the same."""
        widths = keys.shape[-1], values.shape[-1]
        keys, values = self._gather(torch.cat((keys, values), dim=-1)).split(widths, dim=-1)
        grouping = queries.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(grouping, dim=1) for x in (keys, values))
        chunks = (self._rank, 2 * self._ranks - 1 - self._rank)
        halves = zip(queries.chunk(2, dim=2), chunks, strict=True)
        return torch.cat([self._attend(half, keys, values, chunk) for half, chunk in halves], dim=2)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, chunk: int) -> Tensor:
        """Queries of the given chunk of the sequence, over the keys of it and of all chunks before."""
        length = queries.shape[2]
        seen = (chunk + 1) * length
        mask = self._masks[chunk]
        return functional.scaled_dot_product_attention(queries, keys[:, :, :seen], values[:, :, :seen], attn_mask=mask)

    def _gather(self, local: Tensor) -> Tensor:
        """(batch, heads, local sequence, width) of every rank, in the order of the sequence."""
        gathered = _all_gather(local.contiguous(), 0, self._group).unflatten(0, (self._ranks, len(local)))
        early, late = gathered.chunk(2, dim=3)
        return torch.cat((*early.unbind(), *late.flip(0).unbind()), dim=2)


class Ulysses:
    """Attention over the whole sequence for this rank's share of the heads."""

    def __init__(self, mesh: DeviceMesh, kernel: AttentionKernel) -> None:
        self._group: ProcessGroup = mesh.get_group()
        self._ranks = mesh.size()
        self._kernel = kernel

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Local (batch, heads, sequence / cp, head_dim) -> the same."""
        whole = self._kernel(*(self._to_heads(x) for x in (queries, keys, values)))
        return self._to_sequence(whole)

    def _to_heads(self, x: Tensor) -> Tensor:
        """(batch, heads, sequence / cp, dim) -> (batch, heads / cp, sequence, dim)."""
        parts = self._exchange(torch.stack(x.chunk(self._ranks, dim=1)))
        return torch.cat(parts.unbind(), dim=2)

    def _to_sequence(self, x: Tensor) -> Tensor:
        """(batch, heads / cp, sequence, dim) -> (batch, heads, sequence / cp, dim)."""
        parts = self._exchange(torch.stack(x.chunk(self._ranks, dim=2)))
        return torch.cat(parts.unbind(), dim=1)

    def _exchange(self, parts: Tensor) -> Tensor:
        """Send part i of the first dimension to rank i, and receive this rank's part from each."""
        return collectives.all_to_all_single_autograd(parts.contiguous(), None, None, self._group)
