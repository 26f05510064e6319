"""Context parallelism: each sequence cut over the ranks, with the causal work shared evenly.

Every rank gathers all keys and values. The sequence is cut in 2 * cp chunks and rank r takes chunks r and
2 * cp - 1 - r, so that all ranks attend to equally many keys (Llama 3, arXiv 2407.21783, section 3.3.2).
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

    from bench_workloads.transformer.model import Decoder

# renamed in torch 2.13
_all_gather = getattr(collectives, "all_gather_single_autograd", None) or collectives.all_gather_tensor_autograd


def positions(sequence_length: int, rank: int, ranks: int) -> Tensor:
    """The positions of the sequence that a rank holds, in the order in which it holds them.

    >>> positions(8, 0, 2).tolist()
    [0, 1, 6, 7]
    """
    everything = torch.arange(sequence_length)
    if ranks == 1:
        return everything
    chunks = everything.chunk(2 * ranks)
    return torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]))


def apply(part: Decoder, mesh: DeviceMesh, sequence_length: int) -> None:
    """Set the kernel over the whole sequence in every attention of one stage."""
    if mesh.size() > 1:
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
