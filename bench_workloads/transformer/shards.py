"""What a rank holds of the training state, in the names and coordinates of the whole model: the same in every layout.

A matrix that holds others' rows (``weights.FUSED``) has them in an order that depends on tp: its pieces are named after
those matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from bench_workloads.transformer.weights import FUSED, local_of, rows_of_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from bench_workloads.transformer.build import Trainer


@dataclass(frozen=True)
class Piece:
    """A box of one tensor of the whole model."""

    name: str
    size: tuple[int, ...]
    """of the whole tensor"""
    offsets: tuple[int, ...]
    """where the box begins in it"""
    data: Tensor
    """this rank's, shared: what is copied into it is restored"""


def pieces(trainer: Trainer) -> list[Piece]:
    """Weights, both moments of AdamW, and the number of its steps. Call it after the first step."""
    named = [(part, *pair) for part in trainer.parts for pair in part.named_parameters()]
    found = []
    for (part, name, parameter), state in zip(named, trainer.optimizer.states(), strict=True):
        tied = part.shape.tied_embeddings and name == "output.weight"
        tensors = {"": local_of(parameter), **{f".{key}": state[key] for key in ("exp_avg", "exp_avg_sq")}}
        for kind, tensor in tensors.items():
            for name_here, size, offsets, rows in _boxes(trainer, "embedding.weight" if tied else name, parameter):
                found.append(Piece(name_here + kind, size, offsets, tensor[rows]))
    steps = [state["step"].view(1) for state in trainer.optimizer.states()]
    return [*(piece for piece in found if piece.data.numel()), *(Piece("step", (1,), (0,), step) for step in steps)]


def _boxes(
    trainer: Trainer, name: str, parameter: Tensor
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], slice]]:
    """(name, size of the whole tensor, offsets in it, local rows) of each matrix that the parameter has rows of."""
    size, offsets = tuple(parameter.shape), (0,) * parameter.dim()
    local = size
    if isinstance(parameter, DTensor):
        local, offsets = compute_local_shape_and_global_offset(size, parameter.device_mesh, parameter.placements)
    fused = next((kind for kind in FUSED if f".{kind}." in name), None)
    if fused is None:
        yield name, size, tuple(offsets), slice(None)
        return
    first, tp = offsets[0], trainer.run.layout.tp
    at = 0  # in the fused matrix, which has for each tp rank its rows of each part
    counts = rows_of_parts(trainer.shape, fused, size[0])
    for rank in range(tp):
        for part, count in zip(FUSED[fused], counts, strict=True):
            here = count // tp
            begin, end = max(at, first), min(at + here, first + local[0])
            if begin < end:
                where = (rank * here + begin - at, *offsets[1:])
                own = name.replace(f".{fused}.", f".{part}.")
                yield own, (count, *size[1:]), where, slice(begin - first, end - first)
            at += here
